//! A plot of one size: how many times as fast this crate is as each rival, one line per kind of work, on a
//! logarithmic scale.

use std::fmt::Write;

use measure::record::Section;

use crate::record::PAIRS;

const LINE: f64 = 22.0;
const LEFT: f64 = 330.0;
const WIDTH: f64 = 560.0;
const COLOURS: [&str; 6] = ["#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e", "#7f7f7f"];
/// The scale, in powers of two.
const LOW: f64 = -4.0;
const HIGH: f64 = 8.0;

fn x(ratio: f64) -> f64 {
    LEFT + (ratio.log2().clamp(LOW, HIGH) - LOW) / (HIGH - LOW) * WIDTH
}

/// The plot as SVG, ours at protection 8.
pub fn bars(candidates: &[String], section: &Section) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = render(&mut text, candidates, section);
    text
}

fn render(text: &mut String, candidates: &[String], section: &Section) -> std::fmt::Result {
    let height = 90.0 + LINE * section.rows.len() as f64;
    let width = LEFT + WIDTH + 30.0;
    writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">"
    )?;
    writeln!(text, "<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>")?;
    let title = format!(
        "{} entries: times as fast at protection 8 (right of 1: this crate is faster)",
        section.entries
    );
    writeln!(text, "<text x=\"10\" y=\"20\" font-size=\"14\">{title}</text>")?;
    legend(text, candidates)?;
    for power in -4..=8 {
        let at = x(f64::from(power).exp2());
        let colour = if power == 0 { "#000" } else { "#ddd" };
        writeln!(
            text,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"56\" y2=\"{:.1}\" stroke=\"{colour}\"/>",
            height - 24.0
        )?;
        let label = if power < 0 { format!("1/{}", 1 << -power) } else { format!("{}", 1 << power) };
        writeln!(
            text,
            "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            height - 8.0
        )?;
    }
    for (at, row) in section.rows.iter().enumerate() {
        let y = 70.0 + LINE * at as f64;
        writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 12.0,
            y + 4.0,
            row.name
        )?;
        for ((_, rivals), colour) in PAIRS.iter().zip(COLOURS) {
            let Some([low, median, high]) = section.speed(candidates, &row.name, rivals[1], "ours-8") else {
                continue;
            };
            let (low, middle, high) = (x(low), x(median), x(high));
            writeln!(
                text,
                "<line x1=\"{low:.1}\" x2=\"{high:.1}\" y1=\"{y}\" y2=\"{y}\" stroke=\"{colour}\"/>"
            )?;
            writeln!(text, "<circle cx=\"{middle:.1}\" cy=\"{y}\" r=\"4\" fill=\"{colour}\"/>")?;
        }
    }
    writeln!(text, "</svg>")
}

fn legend(text: &mut String, candidates: &[String]) -> std::fmt::Result {
    let mut at = 10.0;
    for ((name, rivals), colour) in PAIRS.iter().zip(COLOURS) {
        if candidates.iter().any(|candidate| candidate == rivals[1]) {
            writeln!(text, "<circle cx=\"{at}\" cy=\"40\" r=\"4\" fill=\"{colour}\"/>")?;
            writeln!(text, "<text x=\"{}\" y=\"44\">{name}</text>", at + 8.0)?;
            at += 30.0 + 7.0 * name.len() as f64;
        }
    }
    Ok(())
}
