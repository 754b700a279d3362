//! Keys in the shapes that engines have, and the order in which they come.
//!
//! ```text
//!   16-random    16 random bytes
//!   16-decimal   0000000000001234
//!   tenant       tenant-0007:user:0000001234
//!   tenants      tenant-0003:user:0000000123             ten, with a tenth of the keys each
//!   uuid7        01a22ee6-b4d2-7bb0-9cdb-ae13fc514880    a number in each millisecond
//!   time         2026-12-01T00:00:12.200Z/sensor-0745    20 of 1 000 sensors, five times a second
//!   objects      media-archive.eu-west-1/originals/2026/w48/u7/04f04a12fdf1b7b3
//!   paths        /usr/local/share/project-0000-63cbe1/module-0003-63033b/source-0001-63cbe1/
//!                file-14-bb0cf61.tar.gz
//! ```
//! All keys of a shape have one length and are in the order of their numbers. Tables are filled
//! with even numbers. The absent key beside each of them is the odd number after it.

/// Splitmix64.
#[inline]
#[must_use]
pub fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The numbers `0..entries`, shuffled by a seed.
#[must_use]
pub fn shuffled(entries: u64, seed: u64) -> Vec<u64> {
    let mut all: Vec<u64> = (0..entries).collect();
    for at in (1..all.len()).rev() {
        let other = mix(seed ^ at as u64) % (at as u64 + 1);
        all.swap(at, usize::try_from(other).unwrap_or(at));
    }
    all
}

/// Whether the keys of a read are present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The key of an entry.
    Hit,
    /// The key beside it, which is in no table.
    Miss,
}

impl Presence {
    /// The number of an entry's key, or of the absent key beside it.
    #[must_use]
    pub fn number(self, entry: u64) -> u64 {
        2 * entry + u64::from(self == Presence::Miss)
    }
}

/// Keys of one length, back to back.
#[derive(Debug, Default, Clone)]
pub struct Keys {
    /// All keys.
    pub bytes: Vec<u8>,
    /// Bytes of a key.
    pub len: usize,
}

impl Keys {
    /// The keys, one by one.
    #[inline]
    pub fn iter(&self) -> std::slice::ChunksExact<'_, u8> {
        self.bytes.chunks_exact(self.len)
    }

    /// The number of keys.
    #[must_use]
    pub fn count(&self) -> usize {
        self.bytes.len() / self.len
    }

    /// Number of keys for each of `operations`, which get all keys in equal shares.
    ///
    /// # Panics
    /// If the keys cannot be shared equally.
    #[must_use]
    pub fn share(&self, operations: usize) -> usize {
        let share = self.count() / operations.max(1);
        assert_eq!(
            share * operations,
            self.count(),
            "a share for each operation"
        );
        share
    }
}

/// A form of keys that engines have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// 16 random bytes.
    Random,
    /// Decimal numbers of 16 digits.
    Decimals,
    /// Users of one tenant.
    Tenant,
    /// Users of ten tenants.
    Tenants,
    /// UUIDs of version 7 (RFC 9562) as text.
    Uuid7,
    /// Times (RFC 3339), and the sensor that measured.
    Time,
    /// Objects of a store, below one prefix of 46 bytes.
    Objects,
    /// Paths of files: four levels, each of which many keys share.
    Paths,
}

/// What all keys of [`Shape::Objects`] begin with.
const PREFIX: &str = "media-archive.eu-west-1/originals/2026/w48/u7/";

/// The number of tenants of [`Shape::Tenants`].
const TENANTS: u64 = 10;

/// The first time of [`Shape::Uuid7`], 2026-12-01, in milliseconds since 1970.
const MIDNIGHT: u64 = 1_796_083_200_000;

impl Shape {
    /// All shapes, in the order of the rows.
    pub const ALL: [Shape; 8] = [
        Shape::Random,
        Shape::Decimals,
        Shape::Tenant,
        Shape::Tenants,
        Shape::Uuid7,
        Shape::Time,
        Shape::Objects,
        Shape::Paths,
    ];

    /// Its name in rows and on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Shape::Random => "16-random",
            Shape::Decimals => "16-decimal",
            Shape::Tenant => "tenant",
            Shape::Tenants => "tenants",
            Shape::Uuid7 => "uuid7",
            Shape::Time => "time",
            Shape::Objects => "objects",
            Shape::Paths => "paths",
        }
    }

    /// Bytes of a key.
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Shape::Random | Shape::Decimals => 16,
            Shape::Tenant | Shape::Tenants => 27,
            Shape::Uuid7 | Shape::Time => 36,
            Shape::Objects => PREFIX.len() + 16,
            Shape::Paths => 97,
        }
    }
}

/// Makes the keys of one shape for tables of one size.
#[derive(Debug, Clone, Copy)]
pub struct Generator {
    shape: Shape,
    /// All numbers are below this one.
    numbers: u64,
}

impl Generator {
    /// Most entries of a table: more would need longer paths.
    pub const ENTRIES_MAX: u64 = 2_000_000;

    /// The keys of tables with this many entries, and those beside them.
    ///
    /// # Panics
    /// If there are no entries, or more than [`Generator::ENTRIES_MAX`].
    #[must_use]
    pub fn new(shape: Shape, entries: u64) -> Generator {
        assert!(
            (1..=Generator::ENTRIES_MAX).contains(&entries),
            "{}: 1 to {} entries",
            shape.name(),
            Generator::ENTRIES_MAX
        );
        Generator {
            shape,
            numbers: 2 * entries,
        }
    }

    /// Makes the keys of these entries, or those beside them.
    #[must_use]
    pub fn keys(self, entries: &[u64], presence: Presence) -> Keys {
        let len = self.shape.key_len();
        let mut bytes = Vec::with_capacity(entries.len() * len);
        for entry in entries {
            self.push(&mut bytes, presence.number(*entry));
        }
        Keys { bytes, len }
    }

    /// Appends the key of a number.
    ///
    /// # Panics
    /// If a table of this size has no such number.
    pub fn push(self, keys: &mut Vec<u8>, number: u64) {
        assert!(number < self.numbers, "{number} is not below its limit");
        let key = match self.shape {
            Shape::Random => [self.scattered(number), mix(!number)]
                .map(u64::to_be_bytes)
                .concat(),
            Shape::Decimals => format!("{number:016}").into_bytes(),
            Shape::Tenant => user(7, number).into_bytes(),
            Shape::Tenants => {
                let share = self.numbers.div_ceil(TENANTS);
                user(number / share, number % share).into_bytes()
            }
            Shape::Uuid7 => uuid7(number).into_bytes(),
            Shape::Time => reading(number).into_bytes(),
            Shape::Objects => format!("{PREFIX}{:016x}", self.scattered(number)).into_bytes(),
            Shape::Paths => path(number).into_bytes(),
        };
        assert_eq!(key.len(), self.shape.key_len(), "{}", self.shape.name());
        keys.extend(key);
    }

    /// A random word that ascends with the number: each number has a part of all words.
    fn scattered(self, number: u64) -> u64 {
        let part = u64::MAX / self.numbers;
        number * part + mix(number) % part
    }
}

fn user(tenant: u64, number: u64) -> String {
    format!("tenant-{tenant:04}:user:{number:010}")
}

/// 48 bits of time, the version, 12 random bits, the variant, 62 random bits.
fn uuid7(number: u64) -> String {
    let (time, low, high) = (MIDNIGHT + number, mix(number), mix(!number));
    format!(
        "{:08x}-{:04x}-7{:03x}-{:04x}-{:012x}",
        time >> 16,
        time & 0xffff,
        low >> 52,
        0x8000 | low & 0x3fff,
        high >> 16
    )
}

/// 20 numbers have the same time. Each of them is for one of 50 sensors.
fn reading(number: u64) -> String {
    let sensor = number % 20 * 50 + mix(number) % 50;
    let fifths = number / 20;
    let (second, tenth) = (fifths / 5, fifths % 5 * 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("2026-12-01T{hour:02}:{minute:02}:{second:02}.{tenth}00Z/sensor-{sensor:04}")
}

/// 20 files in a source, 20 sources in a module, 50 modules in a project.
fn path(number: u64) -> String {
    let (project, module, source) = (number / 20_000, number / 400 % 50, number / 20 % 20);
    format!(
        "/usr/local/share/{}/{}/{}/file-{:02}-{:07x}.tar.gz",
        named("project", project),
        named("module", module + 50 * project),
        named("source", source),
        number % 20,
        mix(number) >> 36
    )
}

/// A directory with this number: its kind, the number, and letters that follow from both.
fn named(kind: &str, number: u64) -> String {
    let letters = mix(number ^ kind.len() as u64) >> 40;
    format!("{kind}-{number:04}-{letters:06x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRIES: u64 = 32_000;

    fn every(shape: Shape, entries: u64) -> Keys {
        let (generator, mut bytes) = (Generator::new(shape, entries), Vec::new());
        for number in 0..2 * entries {
            generator.push(&mut bytes, number);
        }
        let len = shape.key_len();
        Keys { bytes, len }
    }

    fn shared(a: &[u8], b: &[u8]) -> usize {
        a.iter().zip(b).take_while(|(a, b)| a == b).count()
    }

    /// The key of number 1234 in a table of 32 000 entries, and the bytes that all keys share.
    #[test]
    fn each_shape_has_its_form_and_its_shared_bytes() {
        let path = "/usr/local/share/project-0000-63cbe1/module-0003-63033b/source-0001-63cbe1/\
                    file-14-bb0cf61.tar.gz";
        let random = "04f04a12fdf1b7b3ae13fc51488009da";
        let cases = [
            (random, 0),
            ("0000000000001234", 11),
            ("tenant-0007:user:0000001234", 22),
            ("tenant-0000:user:0000001234", 10),
            ("01a22ee6-b4d2-7bb0-9cdb-ae13fc514880", 7),
            ("2026-12-01T00:00:12.200Z/sensor-0745", 14),
            (
                "media-archive.eu-west-1/originals/2026/w48/u7/04f04a12fdf1b7b3",
                46,
            ),
            (path, 28),
        ];
        for (shape, (text, all_share)) in Shape::ALL.into_iter().zip(cases) {
            let keys = every(shape, ENTRIES);
            let key = keys.iter().nth(1234).expect("a key");
            if shape == Shape::Random {
                let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(hex, text);
            } else {
                assert_eq!(key, text.as_bytes());
            }
            let first = keys.iter().next().expect("a key");
            let least = keys.iter().map(|key| shared(first, key)).min();
            assert_eq!(least, Some(all_share), "{}", shape.name());
        }
    }

    /// So are the absent keys: each is after the present one, and before the next.
    #[test]
    fn keys_are_different_and_in_the_order_of_their_numbers() {
        for shape in Shape::ALL {
            for entries in [1, 7, 1_003, ENTRIES] {
                let keys = every(shape, entries);
                assert_eq!(keys.count() as u64, 2 * entries);
                assert!(
                    keys.iter().is_sorted_by(|a, b| a < b),
                    "{}, {entries} entries",
                    shape.name()
                );
            }
        }
    }

    #[test]
    fn the_largest_table_has_keys_of_the_same_length() {
        for shape in Shape::ALL {
            let generator = Generator::new(shape, Generator::ENTRIES_MAX);
            let last = Generator::ENTRIES_MAX - 1;
            assert_eq!(generator.keys(&[0, last], Presence::Miss).count(), 2);
        }
    }

    #[test]
    fn ten_tenants_have_equal_shares() {
        let keys = every(Shape::Tenants, ENTRIES);
        for tenant in 0..TENANTS {
            let name = format!("tenant-{tenant:04}:user:");
            let of_tenant = keys.iter().filter(|key| key.starts_with(name.as_bytes()));
            assert_eq!(of_tenant.count() as u64, 2 * ENTRIES / TENANTS);
        }
    }

    #[test]
    fn random_keys_use_all_first_bytes() {
        let mut counts = [0u64; 256];
        for key in every(Shape::Random, ENTRIES).iter() {
            counts[usize::from(key[0])] += 1;
        }
        let share = 2 * ENTRIES / 256;
        let near = share - 1..=share + 1;
        assert!(counts.iter().all(|count| near.contains(count)));
    }

    #[test]
    fn a_shuffle_has_all_numbers_and_follows_from_its_seed() {
        let shuffle = shuffled(1_000, 4);
        let mut sorted = shuffle.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1_000).collect::<Vec<u64>>());
        assert_ne!(shuffle, sorted);
        assert_eq!(shuffle, shuffled(1_000, 4));
        assert_ne!(shuffle, shuffled(1_000, 5));
    }
}
