//! Flips one bit of a register or a flag at one instruction of one operation, and looks what comes of it: the fault of a
//! processor, where `fault_campaign` has those of memory.
//!
//! A *subject* is a process that makes a table, calls [`ready`], runs one operation inside [`measured`], compares everything that
//! the table says with a model, and ends with a [`Verdict`] as its exit code. The *tracer* counts the operation's instructions, and
//! copies the subject by `fork` at each instruction that it has drawn: each copy gets one fault and runs on to its verdict.
//!
//! The faults are those of RocksDB's `tools/cpu_corruption_injector`: a flag after a comparison, a bit of a register that was
//! loaded, or is about to be stored ([`Faults::Moves`]); or any bit of any register that an instruction reads or writes
//! ([`Faults::Any`]).
#![forbid(unsafe_code)]

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod report;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tracer;

use std::hint::black_box;

/// What came of one fault. The order is that of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// Every answer was right, and nothing was noticed.
    Right,
    /// The operation itself returned an error.
    Refused,
    /// The operation returned `Ok`, all answers after it were right or errors.
    Noticed,
    /// Only a scrub found something.
    Scrubbed,
    /// A call answered wrongly and without an error.
    Silent,
    /// The operation returned `Ok`, and what it wrote is not there, without an error.
    Lost,
    /// What the process needs to judge was damaged itself.
    Stray,
    /// A panic.
    Panicked,
    /// A signal ended the process.
    Crashed,
    /// The process did not end in time.
    Hung,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Verdict; 10] = [
        Verdict::Right,
        Verdict::Refused,
        Verdict::Noticed,
        Verdict::Scrubbed,
        Verdict::Silent,
        Verdict::Lost,
        Verdict::Stray,
        Verdict::Panicked,
        Verdict::Crashed,
        Verdict::Hung,
    ];

    /// The exit code by which a subject says it. Other codes mean a panic.
    fn code(self) -> u8 {
        self as u8 + 40
    }

    /// Ends this process with it.
    pub fn exit(self) -> ! {
        std::process::exit(self.code().into())
    }

    /// The verdict of a process that ended with this code.
    #[must_use]
    pub fn of_code(code: i32) -> Verdict {
        Verdict::ALL
            .into_iter()
            .find(|verdict| i32::from(verdict.code()) == code)
            .unwrap_or(Verdict::Panicked)
    }
}

/// Which faults are injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Faults {
    /// A flag after a comparison, the low byte of a register that a move loads or stores (RocksDB's).
    Moves,
    /// Any bit of any register that an instruction reads or writes.
    Any,
}

/// Stops this process until its tracer lets it go on. Without a tracer it stops for good.
///
/// # Errors
/// Those of the operating system, and always on other systems than Linux.
pub fn ready() -> std::io::Result<()> {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    {
        nix::sys::ptrace::traceme()?;
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP)?;
        Ok(())
    }
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Runs the operation whose instructions are counted and damaged.
pub fn measured<T>(operation: impl FnOnce() -> T) -> T {
    operation_begins();
    let answer = operation();
    operation_ends();
    answer
}

/// Where the tracer begins to count. The two bodies differ, so that the linker keeps both.
#[inline(never)]
extern "C" fn operation_begins() {
    black_box(1_u8);
}

/// Where it ends.
#[inline(never)]
extern "C" fn operation_ends() {
    black_box(2_u16);
}

/// What a table holds, as a map, and where its keys and values come from.
pub mod model {
    use std::cmp::Reverse;
    use std::collections::BTreeMap;
    use std::hash::{DefaultHasher, Hash, Hasher};

    use paranoid_memtable::{Kind, SequenceNumber};

    /// A generator of Sebastiano Vigna's (SplitMix64).
    #[derive(Debug, Clone)]
    pub struct Random(pub u64);

    impl Random {
        /// The next number.
        pub fn draw(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }

        /// One below a bound.
        pub fn below(&mut self, bound: u64) -> u64 {
            self.draw() % bound
        }
    }

    /// A key of 16 bytes, in the order of `number`.
    pub fn key(number: u64) -> Vec<u8> {
        format!("{number:016x}").into_bytes()
    }

    /// A value of 40 bytes.
    pub fn value(number: u64) -> Vec<u8> {
        let mut random = Random(number);
        (0..5).flat_map(|_| random.draw().to_le_bytes()).collect()
    }

    /// A user key and a number, newest first.
    type Place = (Vec<u8>, Reverse<SequenceNumber>);

    /// Every version, and the range deletes.
    #[derive(Debug, Clone, Default)]
    pub struct Model {
        entries: BTreeMap<Place, (Kind, Vec<u8>)>,
        ranges: Vec<(Vec<u8>, Vec<u8>, SequenceNumber)>,
    }

    /// A user key, a sequence number, a kind, a value.
    pub type Version = (Vec<u8>, SequenceNumber, Kind, Vec<u8>);

    /// Entries and range deletes, as a flush hands them out.
    pub type Collected = (Vec<Version>, Vec<(Vec<u8>, Vec<u8>, SequenceNumber)>);

    /// What a flush of all versions hands out: entries in order, and for each key the newest range delete over it.
    #[derive(Debug, PartialEq, Eq)]
    pub struct Flushed {
        entries: Vec<Version>,
        covers: Vec<SequenceNumber>,
    }

    impl Flushed {
        /// Of what was handed out.
        pub fn new((entries, ranges): Collected) -> Self {
            let covers = entries.iter().map(|(user_key, ..)| cover(&ranges, user_key)).collect();
            Flushed { entries, covers }
        }
    }

    fn cover(ranges: &[(Vec<u8>, Vec<u8>, SequenceNumber)], user_key: &[u8]) -> SequenceNumber {
        let over = ranges.iter().filter(|(start, end, _)| &start[..] <= user_key && user_key < &end[..]);
        over.map(|(.., sequence)| *sequence).max().unwrap_or(0)
    }

    impl Model {
        /// Adds a version.
        pub fn insert(&mut self, user_key: Vec<u8>, sequence: SequenceNumber, kind: Kind, value: Vec<u8>) {
            self.entries.insert((user_key, Reverse(sequence)), (kind, value));
        }

        /// Adds a range delete.
        pub fn delete_range(&mut self, start: Vec<u8>, end: Vec<u8>, sequence: SequenceNumber) {
            self.ranges.push((start, end, sequence));
        }

        /// Point entries.
        #[must_use]
        pub fn points(&self) -> usize {
            self.entries.len()
        }

        /// Key and number of one of them, in order.
        #[must_use]
        pub fn nth(&self, at: u64) -> (Vec<u8>, SequenceNumber) {
            let at = usize::try_from(at).unwrap_or(0);
            let nth = self.entries.keys().nth(at);
            nth.map(|(user_key, sequence)| (user_key.clone(), sequence.0)).unwrap_or_default()
        }

        /// Whether there is a version of a key.
        #[must_use]
        pub fn has(&self, user_key: &[u8]) -> bool {
            self.entries
                .range((user_key.to_vec(), Reverse(SequenceNumber::MAX))..)
                .next()
                .is_some_and(|((of, _), _)| of == user_key)
        }

        /// The newest range delete over a key, or 0.
        #[must_use]
        pub fn cover(&self, user_key: &[u8]) -> SequenceNumber {
            cover(&self.ranges, user_key)
        }

        /// The value that a read at this number gives.
        pub fn visible(&self, user_key: &[u8], snapshot: SequenceNumber) -> Option<&[u8]> {
            let newest = self.entries.range((user_key.to_vec(), Reverse(snapshot))..).next();
            let ((_, Reverse(sequence)), (kind, value)) = newest.filter(|((of, _), _)| of == user_key)?;
            let is_over = |(start, end, at): &&(Vec<u8>, Vec<u8>, SequenceNumber)| {
                *at <= snapshot && &start[..] <= user_key && user_key < &end[..]
            };
            let cover = self.ranges.iter().filter(is_over).map(|(.., at)| *at).max().unwrap_or(0);
            (*kind == Kind::PUT && cover < *sequence).then_some(value)
        }

        /// Every key once, in order.
        pub fn user_keys(&self) -> impl Iterator<Item = &[u8]> {
            let mut last: Option<&[u8]> = None;
            self.entries.keys().filter_map(move |(user_key, _)| {
                let is_new = last != Some(user_key);
                last = Some(user_key);
                is_new.then_some(&user_key[..])
            })
        }

        /// Up to `count` visible entries from `start` on.
        pub fn from(&self, start: &[u8], count: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
            let shown = self.user_keys().filter(|user_key| *user_key >= start).filter_map(|user_key| {
                self.visible(user_key, SequenceNumber::MAX).map(|value| (user_key.to_vec(), value.to_vec()))
            });
            shown.take(count).collect()
        }

        /// All of them, as a table has them in order.
        #[must_use]
        pub fn versions(&self) -> Vec<Version> {
            let of = |((user_key, sequence), (kind, value)): (&Place, &(Kind, Vec<u8>))| {
                (user_key.clone(), sequence.0, *kind, value.clone())
            };
            self.entries.iter().map(of).collect()
        }

        /// What a flush of all versions hands out.
        #[must_use]
        pub fn flushed(&self) -> Flushed {
            Flushed::new((self.versions(), self.ranges.clone()))
        }

        /// A sum over all of it, to tell a wrong table from a damaged model.
        pub fn sum(&self) -> u64 {
            let mut hasher = DefaultHasher::new();
            self.entries.hash(&mut hasher);
            self.ranges.hash(&mut hasher);
            hasher.finish()
        }
    }
}
