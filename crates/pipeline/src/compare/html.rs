//! A comparison as an HTML page with tables and SVG plots. It is self-contained and has no script.

use std::fmt::Write;

use super::{Comparison, Table};

const STYLE: &str = "body{font:15px system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem}\
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.3rem .6rem;text-align:right;border-bottom:1px solid #ddd}\
td:first-child,th:first-child{text-align:left}.published{color:#777;font-style:italic}svg{max-width:100%;height:auto}\
svg text{font:12px system-ui,sans-serif;fill:#333}";

/// Colours that are safe for colour blindness (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#b8a800"];

fn colour(at: usize) -> &'static str {
    COLOURS[at % COLOURS.len()]
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The HTML page.
pub(super) fn page(comparison: &Comparison, note: &str) -> String {
    let mut body = String::new();
    for grid in comparison.grids() {
        let head: String = grid.head.iter().map(|name| format!("<th>{}</th>", escaped(name))).collect();
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(body, "<h2>{}</h2>\n<table><tr>{head}</tr>", grid.title);
        for row in &grid.rows {
            let cells: String = row.cells.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
            let (class, what) =
                if row.is_published { (" class=published", " (published)") } else { ("", "") };
            let _ = writeln!(body, "<tr{class}><td>{}{what}</td>{cells}</tr>", escaped(&row.name));
        }
        body.push_str("</table>\n");
    }
    for (title, plot) in [
        ("Scores by dataset", bars(comparison)),
        ("Score against cost", against_cost(comparison)),
        ("Recall by depth", depths(comparison)),
    ] {
        if let Some(plot) = plot {
            let _ = writeln!(body, "<h2>{title}</h2>\n{plot}{}", legend(comparison));
        }
    }
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>Comparison</title><style>{STYLE}</style>\n\
         <h1>Comparison</h1><p>{}</p>\n{body}</html>\n",
        escaped(note)
    )
}

fn legend(comparison: &Comparison) -> String {
    let entries = comparison.systems.iter().enumerate().map(|(at, system)| {
        format!("<span style=\"color:{}\">&#9632;</span> {} ", colour(at), escaped(&system.name))
    });
    format!("<p>{}</p>", entries.collect::<String>())
}

/// The scores of answers, or R-precision for retrieval only.
fn table_of(comparison: &Comparison) -> Table {
    let answers = comparison.systems.iter().any(|system| system.mean(Table::Downstream).is_some());
    if answers { Table::Downstream } else { Table::Retrieval }
}

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 40.0;
const BOTTOM: f64 = 40.0;

fn y(score: f64) -> f64 {
    10.0 + (HEIGHT - BOTTOM - 10.0) * (1.0 - score.clamp(0.0, 1.0))
}

/// A frame with grid lines every 20 percent.
fn frame(inner: &str) -> String {
    let lines: String = (0..=5)
        .map(|step| {
            let score = f64::from(step) / 5.0;
            let at = y(score);
            format!(
                "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#e4e4e4\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{:.0}</text>",
                LEFT - 6.0,
                at + 4.0,
                100.0 * score
            )
        })
        .collect();
    format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">{lines}{inner}</svg>\n")
}

fn bars(comparison: &Comparison) -> Option<String> {
    let table = table_of(comparison);
    let columns = comparison.columns();
    let group = (WIDTH - LEFT) / columns.len().max(1) as f64;
    let bar = group * 0.8 / comparison.systems.len().max(1) as f64;
    let mut inner = String::new();
    for (place, (name, _)) in columns.iter().enumerate() {
        let start = LEFT + group * place as f64 + group * 0.1;
        for (at, system) in comparison.systems.iter().enumerate() {
            let Some(score) = system.score(table, name) else { continue };
            let top = y(score.mean);
            let _ = write!(
                inner,
                "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"><title>{}, {}: {:.1}</title></rect>",
                start + bar * at as f64,
                bar * 0.92,
                y(0.0) - top,
                colour(at),
                escaped(&system.name),
                escaped(name),
                100.0 * score.mean
            );
        }
        let middle = start + group * 0.4;
        let _ = write!(
            inner,
            "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - BOTTOM + 18.0,
            escaped(name)
        );
    }
    inner.contains("<rect").then(|| frame(&inner))
}

fn against_cost(comparison: &Comparison) -> Option<String> {
    let table = table_of(comparison);
    let points: Vec<(usize, f64, f64)> = comparison
        .systems
        .iter()
        .enumerate()
        .filter_map(|(at, system)| Some((at, 1.0 / system.cost.records_per_second()?, system.mean(table)?)))
        .collect();
    let least = points.iter().map(|point| point.1).fold(f64::INFINITY, f64::min).log10().floor();
    let most = points.iter().map(|point| point.1).fold(0.0, f64::max).log10().ceil().max(least + 1.0);
    if points.is_empty() || !least.is_finite() {
        return None;
    }
    let x = |seconds: f64| LEFT + (WIDTH - LEFT - 20.0) * (seconds.log10() - least) / (most - least);
    let mut inner = String::new();
    let mut power = least;
    while power <= most {
        let _ = write!(
            inner,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} s</text>",
            x(10f64.powf(power)),
            HEIGHT - BOTTOM + 18.0,
            10f64.powf(power)
        );
        power += 1.0;
    }
    for (at, seconds, score) in points {
        let name = escaped(&comparison.systems[at].name);
        let _ = write!(
            inner,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"6\" fill=\"{}\"><title>{name}: {:.1}, {seconds:.3} s a record</title></circle>",
            x(seconds),
            y(score),
            colour(at),
            100.0 * score
        );
    }
    let _ = write!(
        inner,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">seconds a record</text>",
        (LEFT + WIDTH) / 2.0,
        HEIGHT - 4.0
    );
    Some(frame(&inner))
}

/// The mean recall over task files, at each depth that all predictions reach.
fn depths(comparison: &Comparison) -> Option<String> {
    let mut inner = String::new();
    for (at, system) in comparison.systems.iter().enumerate() {
        let mut sums: Vec<(usize, f64, usize)> = Vec::new();
        for (depth, recall) in system.tasks.iter().flat_map(|task| &task.recall) {
            match sums.iter_mut().find(|sum| sum.0 == *depth) {
                Some(sum) => (sum.1, sum.2) = (sum.1 + recall, sum.2 + 1),
                None => sums.push((*depth, *recall, 1)),
            }
        }
        // A mean over fewer files is not comparable.
        let files = sums.iter().map(|sum| sum.2).max().unwrap_or_default();
        sums.retain(|sum| sum.2 == files);
        sums.sort_by_key(|sum| sum.0);
        let most = super::DEPTHS.last().copied().unwrap_or(1) as f64;
        let x = |depth: usize| LEFT + (WIDTH - LEFT - 20.0) * depth as f64 / most;
        let points: Vec<String> =
            sums.iter().map(|sum| format!("{:.1},{:.1}", x(sum.0), y(sum.1 / sum.2 as f64))).collect();
        if points.is_empty() {
            continue;
        }
        let _ = write!(
            inner,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"><title>{}</title></polyline>",
            points.join(" "),
            colour(at),
            escaped(&system.name)
        );
        for depth in sums.iter().map(|sum| sum.0) {
            let label = format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{depth}</text>",
                x(depth),
                HEIGHT - BOTTOM + 18.0
            );
            if !inner.contains(&label) {
                inner.push_str(&label);
            }
        }
    }
    (!inner.is_empty()).then(|| frame(&inner))
}

#[cfg(test)]
mod tests {
    use crate::compare::{Form, tables::tests::comparison};

    #[test]
    fn the_page_has_tables_and_plots_and_needs_nothing_else() {
        let page = comparison().write(Form::Html);
        for part in ["<rect", "<circle", "<polyline", "c&lt;d", "class=published", "Recall by depth"] {
            assert!(page.contains(part), "{part}");
        }
        for foreign in ["http", "<script", "src=", "@import"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    }
}
