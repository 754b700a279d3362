//! A hint to the processor that an address will be read soon. It reads nothing, so any address is allowed.
//!
//! Invariants:
//! * PREFETCH-1: a prefetch instruction never faults and never changes memory, whatever the address.

#![expect(unsafe_code, reason = "prefetch intrinsics are unsafe functions on some supported compilers")]

/// Prefetches the cache line at `pointer`. Does nothing on targets without a stable intrinsic.
#[inline(always)]
pub(crate) fn prefetch_read(pointer: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: PREFETCH-1: _mm_prefetch is a hint; SSE is part of x86_64's baseline.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(pointer.cast::<i8>());
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = pointer;
}
