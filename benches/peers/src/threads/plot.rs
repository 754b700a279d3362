//! The picture of a record of threads: operations a second against the number of threads. Both
//! scales are logarithmic, so that twice the speed with twice the threads has the same slope
//! everywhere.

use std::fmt::Write;

use super::page::{Lane, Point, Record};
use crate::record::STYLE;

const LEFT: f64 = 70.0;
const TOP: f64 = 44.0;
const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 320.0;
const LEGEND: f64 = 270.0;

/// The curves: row, candidate, well-known name, colour (as in the README's picture), and dashes of
/// the line. The lines of stores are dashed.
const CURVES: [[&str; 5]; 8] = [
    ["put at random", "ours", "this crate's table", "#d62728", ""],
    ["put at random", "artmap", "artmap", "#009e73", ""],
    ["put at random", "masstree", "masstree", "#785ef0", ""],
    [
        "put at random",
        "crossbeam-skiplist",
        "crossbeam-skiplist",
        "#0072b2",
        "",
    ],
    [
        "put at random",
        "rocksdb-8",
        "RocksDB's memtable",
        "#e69f00",
        "",
    ],
    [
        "set, put, no journal",
        "ours",
        "this crate's set, no journal",
        "#d62728",
        "6 4",
    ],
    [
        "set, put, no journal",
        "rocksdb-write",
        "RocksDB, no log",
        "#e69f00",
        "6 4",
    ],
    [
        "set, put, Buffered, on a file",
        "ours",
        "this crate's set, Buffered",
        "#d62728",
        "2 3",
    ],
];

/// The picture. `None`: the record has fewer than two numbers of threads.
pub fn svg(record: &Record) -> Option<String> {
    let curves: Vec<([&str; 5], &Lane)> = CURVES
        .into_iter()
        .filter_map(|curve| Some((curve, record.lane(curve[0], curve[1])?)))
        .collect();
    let mut text = String::new();
    let is_drawn = record.threads.len() > 1 && !curves.is_empty();
    // Writing to a string cannot fail.
    is_drawn.then(|| draw(&mut text, &record.threads, &curves).ok())?;
    Some(text)
}

/// The scales of rates and of numbers of threads.
struct Scale {
    /// The lowest and the highest rate, in powers of two of a million a second.
    low: f64,
    high: f64,
    /// The greatest number of threads.
    last: f64,
}

impl Scale {
    fn of(threads: &[usize], curves: &[([&str; 5], &Lane)]) -> Scale {
        let rates = || {
            let points = curves.iter().flat_map(|(_, lane)| &lane.points);
            points.map(|point| point.rate() / 1e6)
        };
        let low = rates().fold(f64::MAX, f64::min).log2().floor();
        Scale {
            low,
            high: rates().fold(0.0, f64::max).log2().ceil().max(low + 1.0),
            last: threads.iter().max().map_or(2.0, |threads| *threads as f64),
        }
    }

    fn x(&self, threads: usize) -> f64 {
        LEFT + 16.0 + (threads as f64).log2() / self.last.log2() * (WIDTH - 32.0)
    }

    fn y(&self, rate: f64) -> f64 {
        TOP + HEIGHT - (rate.log2() - self.low) / (self.high - self.low) * HEIGHT
    }

    fn draw(&self, text: &mut String, threads: &[usize]) -> std::fmt::Result {
        for power in self.low as i32..=self.high as i32 {
            let (rate, right) = (f64::from(power).exp2(), LEFT + WIDTH);
            let at = self.y(rate);
            let line = format!("x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"");
            writeln!(text, "<line class=\"grid\" {line}/>")?;
            let label = if power < 0 {
                format!("1/{}", 1 << -power)
            } else {
                rate.to_string()
            };
            let place = format!("x=\"{}\" y=\"{:.1}\"", LEFT - 8.0, at + 5.0);
            writeln!(text, "<text {place} text-anchor=\"end\">{label}</text>")?;
        }
        for threads in threads {
            let place = format!(
                "x=\"{:.1}\" y=\"{}\"",
                self.x(*threads),
                TOP + HEIGHT + 20.0
            );
            writeln!(
                text,
                "<text {place} text-anchor=\"middle\">{threads}</text>"
            )?;
        }
        let place = format!("x=\"{}\" y=\"{}\"", LEFT + WIDTH / 2.0, TOP + HEIGHT + 42.0);
        writeln!(text, "<text {place} text-anchor=\"middle\">threads</text>")
    }
}

fn draw(text: &mut String, threads: &[usize], curves: &[([&str; 5], &Lane)]) -> std::fmt::Result {
    let scale = Scale::of(threads, curves);
    let (width, height) = (LEFT + WIDTH + LEGEND, TOP + HEIGHT + 52.0);
    let space = "xmlns=\"http://www.w3.org/2000/svg\"";
    writeln!(
        text,
        "<svg {space} viewBox=\"0 0 {width} {height}\" role=\"img\""
    )?;
    writeln!(
        text,
        " font-family=\"system-ui,sans-serif\" font-size=\"14\">"
    )?;
    let title = "Puts at random, million a second, by the number of threads";
    writeln!(text, "<title>{title}</title>\n<style>{STYLE}</style>")?;
    let page = format!("width=\"{width}\" height=\"{height}\" rx=\"6\"");
    writeln!(text, "<rect class=\"page\" {page}/>")?;
    writeln!(text, "<text x=\"16\" y=\"26\">{title}</text>")?;
    scale.draw(text, threads)?;
    for (nth, (names, lane)) in curves.iter().enumerate() {
        draw_curve(text, &scale, *names, lane)?;
        let (left, down) = (LEFT + WIDTH + 16.0, TOP + 10.0 + 24.0 * nth as f64);
        writeln!(text, "<path d=\"M{left},{down}h28\" {}/>", line(*names))?;
        let (left, base) = (left + 36.0, down + 5.0);
        writeln!(text, "<text x=\"{left}\" y=\"{base}\">{}</text>", names[2])?;
    }
    writeln!(text, "</svg>")
}

/// The look of a curve's line.
fn line([_, _, _, colour, dashes]: [&str; 5]) -> String {
    let stroke = format!("stroke=\"{colour}\" stroke-width=\"2\"");
    match dashes {
        "" => format!("fill=\"none\" {stroke}"),
        dashes => format!("fill=\"none\" {stroke} stroke-dasharray=\"{dashes}\""),
    }
}

fn draw_curve(text: &mut String, scale: &Scale, names: [&str; 5], lane: &Lane) -> std::fmt::Result {
    let place = |point: &Point| (scale.x(point.threads), scale.y(point.rate() / 1e6));
    let path: Vec<String> = lane
        .points
        .iter()
        .map(place)
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    writeln!(
        text,
        "<polyline points=\"{}\" {}/>",
        path.join(" "),
        line(names)
    )?;
    let [_, _, name, colour, _] = names;
    for point in &lane.points {
        let ((x, y), rate) = (place(point), point.rate() / 1e6);
        let (threads, circle) = (
            point.threads,
            format!("cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\""),
        );
        writeln!(text, "<circle {circle} fill=\"{colour}\">")?;
        writeln!(
            text,
            "<title>{name}, threads {threads}: {rate:.3} million a second</title></circle>"
        )?;
    }
    Ok(())
}
