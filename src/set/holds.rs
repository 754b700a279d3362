//! How long writers hold the commit mutex: in builds with `--cfg holds`, for the program that records it.
//!
//! A thread's holds are kept for that thread.

#![forbid(unsafe_code)]

use std::cell::RefCell;

thread_local! {
    static HOLDS: RefCell<(fn() -> u64, Vec<u64>)> = const { RefCell::new((|| 0, Vec::new())) };
}

/// Times this thread's holds by this clock from now on, with room for so many. Returns those since the last call.
pub fn time_holds(clock: fn() -> u64, room: usize) -> Vec<u64> {
    HOLDS.with(|holds| holds.replace((clock, Vec::with_capacity(room))).1)
}

/// Times a hold until its drop.
pub(crate) struct Hold(u64);

impl Hold {
    pub(crate) fn begin() -> Self {
        Hold(HOLDS.with(|holds| (holds.borrow().0)()))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        HOLDS.with(|holds| {
            let (clock, spans) = &mut *holds.borrow_mut();
            spans.push(clock() - self.0);
        });
    }
}
