//! Hung is failed: a test without a verdict in time ends the process and prints how to run it again.

use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::rng::number_from_env;

/// Seconds without a verdict, unless `PARANOID_TEST_PATIENCE` says otherwise: instrumented programs are slow.
const PATIENCE_SECONDS: u64 = 120;

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Watchdog {
    verdict: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts to watch; `replay` is printed with the seed if the test takes too long. Under Miri nobody watches: a second thread
    /// alone makes a test several times slower there.
    pub fn new(test: &str, seed: u64) -> Watchdog {
        if cfg!(miri) {
            return Watchdog { verdict: None, thread: None };
        }
        let replay = replay_line(test, seed);
        let patience = number_from_env("PARANOID_TEST_PATIENCE").unwrap_or(PATIENCE_SECONDS);
        let (verdict, waiting) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let timed_out = waiting.recv_timeout(Duration::from_secs(patience));
            if timed_out == Err(RecvTimeoutError::Timeout) {
                let mut out = std::io::stderr();
                let _ = writeln!(out, "no verdict after {patience} s; seed {seed:#x}\nreplay: {replay}");
                let _ = out.flush();
                std::process::abort();
            }
        });
        Watchdog { verdict: Some(verdict), thread: Some(thread) }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.verdict.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The command that runs a test of the suite again with this seed.
pub fn replay_line(test: &str, seed: u64) -> String {
    format!("PARANOID_TEST_SEED={seed:#x} cargo test --release --test suite {test} -- --exact --nocapture")
}
