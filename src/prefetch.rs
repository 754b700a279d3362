//! Prefetches: hints to the processor that an address will be read soon. They read nothing, so any
//! address is allowed.
//!
//! Invariants:
//! * PREFETCH-1: a prefetch instruction never faults and never changes memory, whatever the
//!   address.

#![cfg_attr(
    all(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        not(any(loom, miri))
    ),
    expect(
        unsafe_code,
        reason = "prefetch intrinsics are unsafe functions on some supported compilers"
    )
)]

/// Prefetches this many cache lines of 64 bytes from `address` on.
#[inline(always)]
pub(crate) fn prefetch_lines(address: usize, lines: usize) {
    for line in 0..lines {
        prefetch_read(std::ptr::without_provenance(
            address.wrapping_add(64 * line),
        ));
    }
}

/// Prefetches the cache line at `pointer`, on x86-64 and aarch64. Elsewhere it does nothing, and
/// reads wait for memory.
#[inline(always)]
pub(crate) fn prefetch_read(pointer: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
    // SAFETY: PREFETCH-1: _mm_prefetch is a hint; SSE is part of x86_64's baseline.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(pointer.cast::<i8>());
    }
    #[cfg(all(target_arch = "aarch64", not(any(loom, miri))))]
    // SAFETY: PREFETCH-1: PRFM is a hint of aarch64's base instructions; it touches no register, no
    // flag and no stack.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{line}]",
            line = in(reg) pointer,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(all(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        not(any(loom, miri))
    )))]
    let _ = pointer;
}
