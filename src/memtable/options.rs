//! `MemTableOptions`: the options of a table, and their builder.

#![forbid(unsafe_code)]

use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};

use crate::comparator::{BYTEWISE, Comparator, KeyComparator, KeyEquality, KeyOrder};
use crate::error::{Error, Result};
use crate::integrity::hash::{mix, splitmix};
use crate::integrity::options::{ParanoidOptions, ParanoidOptionsBuilder, Repair};
use crate::memtable::arena::layout::{KEY_LEN_MAX, VALUE_LEN_MAX};
use crate::memtable::arena::recycler::ArenaRecycler;
use crate::memtable::extractor::PrefixExtractor;
use crate::memtable::heals::{Healed, Tell};
use crate::memtable::skiplist::list::DuplicatePolicy;
use crate::sync::Counter;

/// The fewest bytes of a filter: a cache line and a line of control words, at any alignment.
pub(crate) const LINES_BYTES_MIN: u64 = 184;

/// Whether a table keeps an ordered directory beside its list: pages that name nodes where searches
/// start. It takes about 13 bytes per entry in a table filled at random, 2 in one filled in order.
/// It only gives hints: no answer depends on it.
///
/// ```
/// use paranoid_memtable::{Directory, MemTable, MemTableOptions};
/// let table = MemTable::new(MemTableOptions::builder().directory(Directory::Off).build()?)?;
/// table.put(1, b"key", b"value")?;
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum Directory {
    /// On if the comparator orders keys by bytes or images, else off (default).
    #[default]
    Auto,
    /// On; `InvalidArgument` with a comparator of another order.
    On,
    /// Off: searches descend along tall towers, one search after the other, and scans of scattered
    /// entries do not read ahead.
    Off,
}

/// The options of a table. [`MemTableOptions::builder`] makes them; they are cheap to clone.
///
/// ```
/// use paranoid_memtable::MemTableOptions;
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let options = MemTableOptions::builder().write_buffer_size(16 << 20).hard_limit(32 << 20).build()?;
/// assert_eq!(options.write_buffer_size(), 16 << 20);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemTableOptions {
    pub(crate) write_buffer_size: u64,
    pub(crate) hard_limit: u64,
    pub(crate) paranoid: ParanoidOptions,
    pub(crate) duplicates: DuplicatePolicy,
    pub(crate) key_len_max: u64,
    pub(crate) value_len_max: u64,
    pub(crate) seed: Option<u64>,
    /// The share of the write buffer that a filter of whole keys takes.
    pub(crate) key_filter_share: Option<f64>,
    /// The bits for a key of a filter of whole keys that grows; 0 for no filter.
    pub(crate) key_filter_bits: Option<u32>,
    /// The extractor of a filter of prefixes, and the share of the write buffer that it takes.
    pub(crate) prefix_filter: Option<(Arc<dyn PrefixExtractor>, f64)>,
    pub(crate) directory: Directory,
    pub(crate) comparator: KeyComparator,
    /// The recycler from which tables take large chunks of memory, and to which they return them.
    pub(crate) recycler: Weak<ArenaRecycler>,
    /// What is told of each healed place.
    pub(crate) tell: Option<Tell>,
}

/// The filter of whole keys of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum KeyFilter {
    Off,
    /// Of a fixed size: a share of the write buffer.
    Share(f64),
    /// Grows, with so many bits for a key.
    Bits(u32),
}

/// The addressing limit: 2^32 units of 8 bytes.
pub(crate) const ADDRESS_LIMIT: u64 = 32 << 30;
/// The smallest table that holds some entries.
const HARD_LIMIT_MIN: u64 = 4 << 10;

impl Default for MemTableOptions {
    fn default() -> Self {
        MemTableOptions {
            write_buffer_size: 64 << 20,
            hard_limit: ADDRESS_LIMIT,
            paranoid: ParanoidOptions::default(),
            duplicates: DuplicatePolicy::Reject,
            key_len_max: KEY_LEN_MAX,
            value_len_max: VALUE_LEN_MAX,
            seed: None,
            key_filter_share: None,
            key_filter_bits: None,
            prefix_filter: None,
            // This crate's own tests also run without a directory.
            directory: if cfg!(towers) {
                Directory::Off
            } else {
                Directory::Auto
            },
            comparator: BYTEWISE.clone(),
            recycler: Weak::new(),
            tell: None,
        }
    }
}

impl MemTableOptions {
    /// A builder with the defaults: a write buffer of 64 MiB, a hard limit of 32 GiB (the
    /// addressing limit), 8 protection bytes, duplicates rejected.
    ///
    /// ```
    /// use paranoid_memtable::MemTableOptions;
    /// let options = MemTableOptions::builder().build()?;
    /// assert_eq!(options.write_buffer_size(), 64 << 20);
    /// assert_eq!(options.paranoid().protection_bytes(), 8);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn builder() -> MemTableOptionsBuilder {
        MemTableOptionsBuilder {
            options: MemTableOptions::default(),
            whole_paranoid: None,
            single_paranoid: None,
        }
    }

    /// The size of the write buffer, a soft limit, in bytes.
    #[must_use]
    pub fn write_buffer_size(&self) -> u64 {
        self.write_buffer_size
    }

    /// The integrity options.
    #[must_use]
    pub fn paranoid(&self) -> &ParanoidOptions {
        &self.paranoid
    }

    /// These options with a recycler, from which tables take memory and to which they return it. A
    /// recycler has memory only for tables of its own write buffer size.
    #[must_use]
    pub fn with_recycler(mut self, recycler: &Arc<ArenaRecycler>) -> Self {
        self.recycler = Arc::downgrade(recycler);
        self
    }

    /// These options with a function that is told of each healed place, in the middle of an
    /// operation, perhaps under a lock: it must not use a table.
    #[doc(hidden)]
    #[must_use]
    pub fn with_tell(mut self, tell: Arc<dyn Fn(&Healed) + Send + Sync>) -> Self {
        self.tell = Some(tell);
        self
    }

    /// Whether the options have a recycler. A set refuses such options, because it has its own
    /// recycler.
    #[doc(hidden)]
    #[must_use]
    pub fn has_recycler(&self) -> bool {
        self.recycler.strong_count() > 0
    }

    /// Whether a table keeps a directory.
    pub(crate) fn keeps_directory(&self) -> bool {
        match self.directory {
            Directory::Auto => self.comparator.key_order() != KeyOrder::Custom,
            wanted => wanted == Directory::On,
        }
    }

    /// Refuses options that the comparator does not support, and a comparator that contradicts
    /// itself.
    fn check_comparator(&self) -> Result<()> {
        let (order, equality) = (
            self.comparator.key_order(),
            self.comparator.get().equality(),
        );
        let has_filter = self.key_filter() != KeyFilter::Off || self.prefix_filter.is_some();
        let refused = if order == KeyOrder::Bytes && equality == KeyEquality::Custom {
            "a comparator in the order of bytes calls keys equal only if their bytes are"
        } else if order == KeyOrder::Custom && self.directory == Directory::On {
            "a directory needs an order of bytes or images"
        } else if has_filter && equality == KeyEquality::Custom {
            "filters need a comparator whose equality is equality of bytes"
        } else {
            return Ok(());
        };
        Err(Error::InvalidArgument(refused.into()))
    }

    /// The filter of whole keys.
    pub(crate) fn key_filter(&self) -> KeyFilter {
        match (self.key_filter_share, self.key_filter_bits) {
            (Some(share), _) => KeyFilter::Share(share),
            (None, None | Some(0)) => KeyFilter::Off,
            (None, Some(bits)) => KeyFilter::Bits(bits),
        }
    }

    /// The bytes of a share of the write buffer.
    pub(crate) fn bytes_of_share(&self, share: f64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a share of at most the address limit"
        )]
        let bytes = (self.write_buffer_size as f64 * share) as u64;
        bytes
    }

    /// The seed of a new table: the option, or a number that no other table has.
    pub(crate) fn draw_seed(&self) -> u64 {
        /// The number of tables that this process has made.
        static TABLES: Counter = Counter::new();
        self.seed
            .unwrap_or_else(|| mix(splitmix(TABLES.next()), process_seed()))
    }
}

/// A number that differs from process to process. It comes from the standard library's randomly
/// keyed hasher.
fn process_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    static SEED: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *SEED.get_or_init(|| RandomState::new().hash_one(0x7061_7261_6e6f_6964u64))
}

/// A builder of [`MemTableOptions`].
///
/// ```
/// use paranoid_memtable::MemTableOptions;
/// let options = MemTableOptions::builder().write_buffer_size(8 << 20).whole_key_filter(0.01).build()?;
/// assert_eq!(options.write_buffer_size(), 8 << 20);
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct MemTableOptionsBuilder {
    options: MemTableOptions,
    /// The integrity options that [`paranoid`](Self::paranoid) set.
    whole_paranoid: Option<ParanoidOptions>,
    /// The integrity options that their own setters set.
    single_paranoid: Option<ParanoidOptionsBuilder>,
}

/// The largest share of the write buffer that a filter may take.
const FILTER_SHARE_MAX: f64 = 0.25;

impl MemTableOptionsBuilder {
    /// Sets the comparator (default: [`Bytewise`](crate::Bytewise)). An order that is
    /// [`KeyOrder::Bytes`] costs as much as the default. Any other order costs a virtual call per
    /// comparison.
    ///
    /// ```
    /// use paranoid_memtable::{Comparator, KeyEquality, MemTable, MemTableOptions};
    /// use std::cmp::Ordering;
    /// use std::sync::Arc;
    /// #[derive(Debug)]
    /// struct Descending;
    /// impl Comparator for Descending {
    ///     fn name(&self) -> &str {
    ///         "example.Descending"
    ///     }
    ///     fn equality(&self) -> KeyEquality {
    ///         KeyEquality::Bytes
    ///     }
    ///     fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
    ///         right.cmp(left)
    ///     }
    /// }
    /// let options = MemTableOptions::builder().comparator(Arc::new(Descending)).build()?;
    /// let table = MemTable::new(options)?;
    /// assert_eq!(table.comparator().name(), "example.Descending");
    /// table.put(1, b"a", b"")?;
    /// table.put(2, b"b", b"")?;
    /// assert_eq!(table.range(..).next().expect("two entries")?.user_key(), b"b");
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn comparator(mut self, comparator: Arc<dyn Comparator>) -> Self {
        self.options.comparator = comparator.into();
        self
    }

    /// Sets the size of the write buffer in bytes, a soft limit (default 64 MiB). `should_flush`
    /// compares with it, and the first large chunk of the arena has this size.
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, MemTableOptions};
    /// let table = MemTable::new(MemTableOptions::builder().write_buffer_size(1 << 20).build()?)?;
    /// table.put(1, b"key", &vec![0; 2 << 20])?;
    /// assert!(table.should_flush());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn write_buffer_size(mut self, bytes: u64) -> Self {
        self.options.write_buffer_size = bytes;
        self
    }

    /// Sets the hard limit of allocated memory in bytes (default: the addressing limit, 32 GiB). An
    /// insert beyond it returns `MemTableFull` and changes nothing. The limit counts entries,
    /// filters, and, in advance, the memory that the index of range tombstones and the freeze may
    /// need: some 30 KiB for the first tombstone, then up to 1.2 KiB each (less from 16 384 on). It
    /// does not count the table's own struct.
    ///
    /// ```
    /// use paranoid_memtable::{Error, MemTable, MemTableOptions};
    /// let options = MemTableOptions::builder().write_buffer_size(1 << 20).hard_limit(2 << 20).build()?;
    /// let table = MemTable::new(options)?;
    /// assert!(matches!(table.put(1, b"key", &vec![0; 3 << 20]), Err(Error::MemTableFull { .. })));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn hard_limit(mut self, bytes: u64) -> Self {
        self.options.hard_limit = bytes;
        self
    }

    /// Sets all integrity options at once (default: 8 protection bytes, all other checks off). Use
    /// either this setter, or those of single options: [`protection_bytes`](Self::protection_bytes),
    /// [`checksum_on_seek`](Self::checksum_on_seek), [`order_checks`](Self::order_checks) and
    /// [`repair`](Self::repair).
    ///
    /// ```
    /// use paranoid_memtable::{Error, MemTableOptions, ParanoidOptions};
    /// let paranoid = ParanoidOptions::builder().protection_bytes(4).build()?;
    /// let builder = MemTableOptions::builder().paranoid(paranoid);
    /// assert_eq!(builder.clone().build()?.paranoid().protection_bytes(), 4);
    /// let contradiction = builder.protection_bytes(8);
    /// assert!(matches!(contradiction.build(), Err(Error::InvalidArgument(_))));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn paranoid(mut self, paranoid: ParanoidOptions) -> Self {
        self.whole_paranoid = Some(paranoid);
        self
    }

    /// Sets the number of bytes stored of each of an entry's two digests: 0, 1, 2, 4 or 8
    /// (default). [`ParanoidOptionsBuilder::protection_bytes`] says what each number misses.
    ///
    /// ```
    /// use paranoid_memtable::MemTableOptions;
    /// let options = MemTableOptions::builder().protection_bytes(4).build()?;
    /// assert_eq!(options.paranoid().protection_bytes(), 4);
    /// assert!(MemTableOptions::builder().protection_bytes(3).build().is_err());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn protection_bytes(self, bytes: u8) -> Self {
        self.with_paranoid(|paranoid| paranoid.protection_bytes(bytes))
    }

    /// Makes searches verify the key digest of every node that they enter (default off). Needs
    /// protection bytes.
    ///
    /// ```
    /// use paranoid_memtable::{Error, MemTableOptions};
    /// let options = MemTableOptions::builder().checksum_on_seek(true).build()?;
    /// assert!(options.paranoid().checksum_on_seek());
    /// let contradiction = MemTableOptions::builder().protection_bytes(0).checksum_on_seek(true);
    /// assert!(matches!(contradiction.build(), Err(Error::InvalidArgument(_))));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[expect(
        clippy::fn_params_excessive_bools,
        reason = "the setter of a yes/no option"
    )]
    pub fn checksum_on_seek(self, on: bool) -> Self {
        self.with_paranoid(|paranoid| paranoid.checksum_on_seek(on))
    }

    /// Makes searches and steps compare neighbours and report entries that are out of order
    /// (default off). This finds comparators that contradict themselves.
    ///
    /// ```
    /// use paranoid_memtable::MemTableOptions;
    /// assert!(MemTableOptions::builder().order_checks(true).build()?.paranoid().order_checks());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[expect(
        clippy::fn_params_excessive_bools,
        reason = "the setter of a yes/no option"
    )]
    pub fn order_checks(self, on: bool) -> Self {
        self.with_paranoid(|paranoid| paranoid.order_checks(on))
    }

    /// Sets whether the table puts damaged memory right (default: up to 16 places).
    ///
    /// ```
    /// use paranoid_memtable::MemTableOptions;
    /// use paranoid_memtable::integrity::Repair;
    /// let options = MemTableOptions::builder().repair(Repair::On { places_max: 4 }).build()?;
    /// assert_eq!(options.paranoid().repair(), Repair::On { places_max: 4 });
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn repair(self, repair: Repair) -> Self {
        self.with_paranoid(|paranoid| paranoid.repair(repair))
    }

    /// This builder after one setter of the integrity options.
    fn with_paranoid(
        mut self,
        set: impl FnOnce(ParanoidOptionsBuilder) -> ParanoidOptionsBuilder,
    ) -> Self {
        self.single_paranoid = Some(set(self.single_paranoid.take().unwrap_or_default()));
        self
    }

    /// The integrity options, which one of the two ways sets.
    fn built_paranoid(&mut self) -> Result<ParanoidOptions> {
        let whole = self.whole_paranoid.take();
        let Some(single) = self.single_paranoid.take() else {
            return Ok(whole.unwrap_or_default());
        };
        let single = single.build()?;
        if whole.is_some_and(|whole| whole != single) {
            return Err(Error::InvalidArgument(
                "paranoid sets all integrity options, and another setter sets them otherwise"
                    .into(),
            ));
        }
        Ok(single)
    }

    /// Sets what an insert does if the table has an entry with its user key and sequence number
    /// (default `Reject`).
    ///
    /// ```
    /// use paranoid_memtable::{DuplicatePolicy, MemTable, MemTableOptions};
    /// let options = MemTableOptions::builder().duplicates(DuplicatePolicy::Replace).build()?;
    /// let table = MemTable::new(options)?;
    /// table.put(1, b"key", b"first")?;
    /// table.put(1, b"key", b"second")?;
    /// assert_eq!(table.len(), 1);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn duplicates(mut self, policy: DuplicatePolicy) -> Self {
        self.options.duplicates = policy;
        self
    }

    /// Sets the longest key that the table takes, in bytes (default and limit 2^24 - 1).
    ///
    /// ```
    /// use paranoid_memtable::{Error, MemTable, MemTableOptions};
    /// let table = MemTable::new(MemTableOptions::builder().key_len_max(3).build()?)?;
    /// assert!(matches!(table.put(1, b"long", b""), Err(Error::KeyTooLarge { len: 4, max: 3 })));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn key_len_max(mut self, bytes: u64) -> Self {
        self.options.key_len_max = bytes;
        self
    }

    /// Sets the longest value that the table takes, in bytes (default and limit 2^32 - 1).
    ///
    /// ```
    /// use paranoid_memtable::{Error, MemTable, MemTableOptions};
    /// let table = MemTable::new(MemTableOptions::builder().value_len_max(3).build()?)?;
    /// assert!(matches!(table.put(1, b"k", b"long"), Err(Error::ValueTooLarge { len: 4, max: 3 })));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn value_len_max(mut self, bytes: u64) -> Self {
        self.options.value_len_max = bytes;
        self
    }

    /// Adds a filter of whole keys, which takes this share of the write buffer (above 0, up to
    /// 0.25; default: no filter). Most reads of absent keys then touch one cache line and a control
    /// word. With entries of 140 bytes, a share of 0.015 is 17 bits per key, and about 0.5 % of
    /// absent keys pass. Reads look for range tombstones whether or not the key passes.
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, MemTableOptions};
    /// let table = MemTable::new(MemTableOptions::builder().whole_key_filter(0.015).build()?)?;
    /// table.put(1, b"present", b"")?;
    /// assert!(table.get(b"absent", 1)?.found().is_none());
    /// assert!(MemTableOptions::builder().whole_key_filter(0.5).build().is_err());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn whole_key_filter(mut self, share: f64) -> Self {
        self.options.key_filter_share = Some(share);
        self
    }

    /// Adds a filter of whole keys that grows with the table, with about this many bits for each
    /// key (4 to 64, or 0 for no filter; default: no filter). It begins with some 1 KiB at the first
    /// write, and takes eight times as much whenever it is full, so up to `bits` bytes a key right
    /// then. Repeated writes of a key do not fill it. With 10 bits a few of a hundred absent
    /// keys pass. Memory that it takes counts in `used_bytes`; where the hard limit leaves none, it does
    /// not grow, and more keys pass. Together with [`whole_key_filter`](Self::whole_key_filter) it
    /// is `InvalidArgument`.
    ///
    /// ```
    /// use paranoid_memtable::{Lookup, MemTable, MemTableOptions};
    /// let table = MemTable::new(MemTableOptions::builder().whole_key_filter_bits(10).build()?)?;
    /// table.put(1, b"present", b"")?;
    /// assert!(matches!(table.get(b"absent", 1)?, Lookup::NotFound));
    /// let both = MemTableOptions::builder().whole_key_filter_bits(10).whole_key_filter(0.01);
    /// assert!(both.build().is_err());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn whole_key_filter_bits(mut self, bits: u32) -> Self {
        self.options.key_filter_bits = Some(bits);
        self
    }

    /// Adds a filter of key prefixes, which takes this share of the write buffer (above 0, up to
    /// 0.25; default: no filter). Cursors in prefix mode use it. Point reads use it if there is no
    /// filter of whole keys. Keys outside the extractor's domain always pass.
    ///
    /// ```
    /// use paranoid_memtable::MemTableOptions;
    /// use paranoid_memtable::filter::FixedPrefix;
    /// assert!(MemTableOptions::builder().prefix_filter(FixedPrefix::new(8), 0.015).build().is_ok());
    /// assert!(MemTableOptions::builder().prefix_filter(FixedPrefix::new(8), 0.0).build().is_err());
    /// ```
    pub fn prefix_filter(mut self, extractor: impl PrefixExtractor, share: f64) -> Self {
        self.options.prefix_filter = Some((Arc::new(extractor), share));
        self
    }

    /// Sets whether tables keep an ordered directory (default `Auto`). With it, searches in large
    /// tables that were filled at random take a third of the time, and scans of them read ahead in
    /// both directions. With a comparator whose [`KeyOrder`] is `Custom`, `On` is
    /// `InvalidArgument`.
    ///
    /// ```
    /// use paranoid_memtable::{Directory, MemTable, MemTableOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::new(MemTableOptions::builder().directory(Directory::On).build()?)?;
    /// table.put(1, b"key", b"value")?;
    /// assert!(table.get(b"key", 1)?.value().is_some());
    /// # Ok(()) }
    /// ```
    pub fn directory(mut self, directory: Directory) -> Self {
        self.options.directory = directory;
        self
    }

    /// Sets the seed of tower heights and tags (default: a new seed for each table). With a fixed
    /// seed, single-threaded runs produce equal memory.
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, MemTableOptions};
    /// let options = MemTableOptions::builder().seed(42).build()?;
    /// let tables = [MemTable::new(options.clone())?, MemTable::new(options)?];
    /// for table in &tables {
    ///     table.put(1, b"key", b"value")?;
    /// }
    /// assert_eq!(tables[0].used_bytes(), tables[1].used_bytes());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn seed(mut self, seed: u64) -> Self {
        self.options.seed = Some(seed);
        self
    }

    /// Checks and returns the options.
    ///
    /// ```
    /// use paranoid_memtable::{Error, MemTableOptions};
    /// assert!(MemTableOptions::builder().build().is_ok());
    /// let contradiction = MemTableOptions::builder().write_buffer_size(2 << 20).hard_limit(1 << 20);
    /// assert!(matches!(contradiction.build(), Err(Error::InvalidArgument(_))));
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for:
    ///
    /// - sizes out of range (0 is in range for `value_len_max` alone);
    /// - protection bytes other than 0, 1, 2, 4 and 8, and `checksum_on_seek` without any;
    /// - integrity options by `paranoid` and other ones by their own setters;
    /// - a hard limit below the write buffer size;
    /// - filter shares out of range, or of less than 184 bytes;
    /// - bits of a filter out of range, or together with a share;
    /// - [`Directory::On`] with a comparator whose order is `Custom`;
    /// - filters with a comparator whose equality is `Custom`;
    /// - a comparator with the order of bytes whose equality is `Custom`.
    pub fn build(mut self) -> Result<MemTableOptions> {
        let paranoid = self.built_paranoid()?;
        let options = MemTableOptions {
            paranoid,
            ..self.options
        };
        within(
            "write_buffer_size",
            options.write_buffer_size,
            1..=ADDRESS_LIMIT,
        )?;
        within(
            "hard_limit",
            options.hard_limit,
            HARD_LIMIT_MIN.max(options.write_buffer_size)..=ADDRESS_LIMIT,
        )?;
        within("key_len_max", options.key_len_max, 1..=KEY_LEN_MAX)?;
        within("value_len_max", options.value_len_max, 0..=VALUE_LEN_MAX)?;
        let prefix_share = options.prefix_filter.as_ref().map(|(_, share)| *share);
        for share in [options.key_filter_share, prefix_share]
            .into_iter()
            .flatten()
        {
            let bytes = options.bytes_of_share(share);
            if !(share > 0.0 && share <= FILTER_SHARE_MAX && bytes >= LINES_BYTES_MIN) {
                return Err(Error::InvalidArgument(format!(
                    "a filter takes a share above 0 up to {FILTER_SHARE_MAX} and at least {LINES_BYTES_MIN} bytes, not {share} and {bytes}"
                )));
            }
        }
        let bits = options.key_filter_bits.unwrap_or(0);
        if bits > 0 && options.key_filter_share.is_some() {
            return Err(Error::InvalidArgument(
                "a filter of whole keys has a share or a number of bits".into(),
            ));
        }
        if bits > 0 {
            within("whole_key_filter_bits", bits.into(), 4..=64)?;
        }
        options.check_comparator()?;
        Ok(options)
    }
}

/// Refuses a value of an option outside its range.
fn within(name: &str, value: u64, range: RangeInclusive<u64>) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let (min, max) = range.into_inner();
    Err(Error::InvalidArgument(format!(
        "{name} must be {min} to {max}, not {value}"
    )))
}
