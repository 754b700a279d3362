//! Memory by itself, in thread time: what it costs to have 2 MiB of it backed, cleared and given back.
//!
//! A guest whose kernel reports free pages to its host (`page_reporting`, virtio balloon) gives them up when they were free
//! for some seconds; the host has to find them again, small page by small page, at the next touch. So memory that was given
//! back just now is cheap, and the same memory some seconds later is not.

use std::hint::black_box;
use std::time::Duration;

use anyhow::Context;
use memmap2::{Advice, MmapMut, MmapOptions};
use serde::Serialize;

use crate::turns::thread_time;

const HUGE_PAGE: usize = 2 << 20;
const BYTES: usize = 64 << 20;
const PAUSES: [u64; 6] = [0, 0, 0, 4, 4, 4];

/// Microseconds for 2 MiB each, in the order in which they were measured.
#[derive(Debug, Serialize)]
pub struct Span {
    pub what: String,
    pub micros: Vec<f64>,
}

fn timed(work: impl FnOnce()) -> f64 {
    let started = thread_time();
    work();
    thread_time().saturating_sub(started).as_secs_f64() * 1e6
}

/// A mapping, and where its first huge page begins.
fn mapping(pages: Advice) -> anyhow::Result<(MmapMut, usize)> {
    let map = MmapOptions::new().len(BYTES + HUGE_PAGE).no_reserve_swap().map_anon()?;
    let start = map.as_ptr().addr().next_multiple_of(HUGE_PAGE) - map.as_ptr().addr();
    map.advise_range(pages, start, BYTES)?;
    Ok((map, start))
}

/// All spans, with pauses during which nothing is mapped.
pub fn spans() -> anyhow::Result<Vec<Span>> {
    let mut spans = Vec::new();
    for (name, pages) in [("2 MiB", Advice::HugePage), ("4 KiB", Advice::NoHugePage)] {
        let (mut at_once, mut later, mut cleared) = (Vec::new(), Vec::new(), Vec::new());
        for pause in PAUSES {
            std::thread::sleep(Duration::from_secs(pause));
            let (mut map, start) = mapping(pages)?;
            let to = if pause == 0 { &mut at_once } else { &mut later };
            for at in (start..start + BYTES).step_by(HUGE_PAGE) {
                let mut backed = Ok(());
                to.push(timed(|| backed = map.advise_range(Advice::PopulateWrite, at, HUGE_PAGE)));
                backed.context("the system cannot back memory ahead")?;
                let piece = &mut map[at..at + HUGE_PAGE];
                cleared.push(timed(|| black_box(piece).fill(0)));
            }
        }
        // The first pages come from wherever the system has them.
        at_once.drain(..BYTES / HUGE_PAGE);
        for (what, micros) in [
            ("given back just before", at_once),
            ("given back 4 s before", later),
            ("mapped, only cleared", cleared),
        ] {
            spans.push(Span { what: format!("pages of {name}, {what}"), micros });
        }
    }
    Ok(spans)
}
