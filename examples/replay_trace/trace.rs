//! A block-I/O trace: one request per line, columns found by the header's names.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::failure::Failure;

/// Longest line that is read, in bytes.
const LINE_MAX: u64 = 4096;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Read,
    Write,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) op: Op,
    /// Bytes to read or write.
    pub(crate) size: u32,
    /// The block number.
    pub(crate) lbn: u64,
}

/// A whole trace.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) requests: Vec<Request>,
    /// Requests that are neither reads nor writes.
    pub(crate) skipped: u64,
}

/// The positions of the columns.
#[derive(Debug)]
struct Columns {
    op: usize,
    size: usize,
    lbn: usize,
}

/// One step of splitmix64: spreads block numbers over parts and values, and makes the sample's
/// numbers.
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Trace {
    /// A made-up trace, the same in every run. As in traces of virtual machines' disks, 59 % of the
    /// requests are writes of up to 64 KiB, and some blocks are hot: two requests of five go to 256
    /// of 65 536 blocks.
    pub(crate) fn sample() -> Trace {
        const REQUESTS: u64 = 20_000;
        let request = |number: u64| {
            let [op, size, heat, low, high, ..] = mix(number).to_le_bytes();
            Request {
                op: if op < 151 { Op::Write } else { Op::Read },
                size: 512 * (u32::from(size / 2) + 1),
                lbn: if heat < 102 {
                    low.into()
                } else {
                    u16::from_le_bytes([low, high]).into()
                },
            }
        };
        Trace {
            requests: (0..REQUESTS).map(request).collect(),
            skipped: 0,
        }
    }

    /// Reads a trace from a file, which may be packed by gzip.
    pub(crate) fn open(path: &Path) -> Result<Trace, Failure> {
        let name = path.display();
        let cannot = |error: io::Error| Failure::Cannot(format!("{name}: {error}"));
        let file = File::open(path).map_err(cannot)?;
        if file.metadata().map_err(cannot)?.is_dir() {
            return Err(Failure::Cannot(format!(
                "{name} is a directory, not a trace"
            )));
        }
        let trace = Trace::read(unpacked(file).map_err(cannot)?);
        trace.map_err(|text| Failure::Cannot(format!("{name}{text}")))
    }

    /// Reads a trace. Error texts continue a sentence that begins with the file's name.
    fn read(mut text: impl BufRead) -> Result<Trace, String> {
        let mut trace = Trace::default();
        let mut columns: Option<Columns> = None;
        let mut raw = Vec::new();
        for number in 1u64.. {
            let at = |what: String| format!(":{number}: {what}");
            raw.clear();
            let len = (&mut text).take(LINE_MAX).read_until(b'\n', &mut raw);
            if len.map_err(|error| at(error.to_string()))? == 0 {
                break;
            }
            if raw.len() as u64 == LINE_MAX && !raw.ends_with(b"\n") {
                return Err(at(format!(
                    "longer than {LINE_MAX} bytes: this is no trace"
                )));
            }
            let line = std::str::from_utf8(&raw)
                .map_err(|_| at("not text".into()))?
                .trim_end();
            let line = if number == 1 {
                line.trim_start_matches('\u{feff}')
            } else {
                line
            };
            match &columns {
                None => columns = Some(Columns::of(line).map_err(at)?),
                Some(_) if line.is_empty() => {}
                Some(columns) => match columns.request(line).map_err(at)? {
                    Some(request) => trace.requests.push(request),
                    None => trace.skipped += 1,
                },
            }
        }
        if trace.requests.is_empty() {
            let skipped = match trace.skipped {
                0 => String::new(),
                lines => format!(
                    ": all {lines} lines are skipped, their op is no read or write in hexadecimal digits"
                ),
            };
            return Err(format!(": holds no requests{skipped}"));
        }
        Ok(trace)
    }
}

/// The text of a file, unpacked if it is a gzip file.
fn unpacked(mut file: File) -> io::Result<Box<dyn BufRead>> {
    let mut front = Vec::new();
    (&mut file).take(2).read_to_end(&mut front)?;
    let packed = front == [0x1f, 0x8b];
    let whole = BufReader::new(Cursor::new(front).chain(file));
    Ok(if packed {
        Box::new(BufReader::new(MultiGzDecoder::new(whole)))
    } else {
        Box::new(whole)
    })
}

impl Columns {
    fn of(header: &str) -> Result<Columns, String> {
        let place = |name: &str| {
            header
                .split(',')
                .position(|column| column.trim() == name)
                .ok_or_else(|| format!("the header names no column `{name}`"))
        };
        Ok(Columns {
            op: place("op")?,
            size: place("size")?,
            lbn: place("lbn")?,
        })
    }

    /// The request of a line; `None` if it neither reads nor writes.
    fn request(&self, line: &str) -> Result<Option<Request>, String> {
        let field = |name: &str, at: usize| {
            line.split(',')
                .nth(at)
                .map(str::trim)
                .ok_or_else(|| format!("there is no column `{name}`"))
        };
        let op = field("op", self.op)?;
        let code = u8::from_str_radix(op, 16)
            .map_err(|_| format!("op `{op}` is not a hexadecimal byte"))?;
        let size = field("size", self.size)?;
        let size = size
            .parse::<u32>()
            .map_err(|_| format!("size `{size}` is not a number of bytes below 4 GiB"))?;
        let lbn = field("lbn", self.lbn)?;
        let lbn = lbn
            .parse::<u64>()
            .map_err(|_| format!("lbn `{lbn}` is not a block number below 2^64"))?;
        let op = match code {
            0x08 | 0x28 | 0x88 | 0xa8 => Op::Read,
            0x0a | 0x2a | 0x8a | 0xaa => Op::Write,
            _ => return Ok(None),
        };
        Ok(Some(Request { op, size, lbn }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Trace::read(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn the_sample_is_like_a_real_trace() {
        let requests = Trace::sample().requests;
        let writes = || requests.iter().filter(|request| request.op == Op::Write);
        let share = writes().count() * 100 / requests.len();
        let blocks: std::collections::HashSet<u64> = writes().map(|write| write.lbn).collect();
        assert!(
            (58..=60).contains(&share) && blocks.len() * 3 < writes().count() * 2,
            "{share} {}",
            blocks.len()
        );
        assert!(
            requests
                .iter()
                .all(|request| request.size.is_multiple_of(512))
        );
        let sizes = requests.iter().map(|request| request.size);
        assert_eq!(
            (sizes.clone().min(), sizes.max()),
            (Some(512), Some(65_536))
        );
    }

    #[test]
    fn columns_are_found_by_name() {
        let trace = Trace::read(
            "lbn, op,size\n7,2a,512\n18446744073709551615,28,0\n\n3,35,1\r\n".as_bytes(),
        );
        let trace = trace.unwrap();
        let write = Request {
            op: Op::Write,
            size: 512,
            lbn: 7,
        };
        let read = Request {
            op: Op::Read,
            size: 0,
            lbn: u64::MAX,
        };
        assert_eq!(trace.requests, [write, read]);
        assert_eq!(trace.skipped, 1);
    }

    #[test]
    fn a_byte_order_mark_is_no_column_and_skipped_lines_are_counted() {
        let trace = Trace::read("\u{feff}op,size,lbn\n2a,512,7\n".as_bytes()).unwrap();
        assert_eq!(
            trace.requests,
            [Request {
                op: Op::Write,
                size: 512,
                lbn: 7
            }]
        );
        // Opcodes as decimal numbers. 42 is a write; the same digits in hexadecimal are another
        // opcode.
        let text = error("op,size,lbn\n42,512,7\n40,512,7\n");
        assert!(text.contains("all 2 lines are skipped"), "{text}");
    }

    #[test]
    fn malformed_lines_are_named() {
        const HEAD: &str = "version,time,op,size,lbn\n1,1,2a,512,1\n";
        assert!(error("").contains("no requests"));
        assert!(error("time,op,size\n").contains(":1: the header names no column `lbn`"));
        assert!(error(&format!("{HEAD}1,1,2a,512\n")).contains(":3: there is no column `lbn`"));
        assert!(error(&format!("{HEAD}1,1,xx,512,1\n")).contains(":3: op `xx`"));
        assert!(error(&format!("{HEAD}1,1,2a,-1,1\n")).contains(":3: size `-1`"));
        assert!(error(&format!("{HEAD}1,1,2a,1,18446744073709551616\n")).contains(":3: lbn"));
        assert!(error(&format!("{HEAD}{}\n", "1".repeat(5000))).contains(":3: longer than"));
        assert!(
            Trace::read(b"op,size,lbn\n\xff\n".as_slice())
                .unwrap_err()
                .contains(":2: not text")
        );
    }
}
