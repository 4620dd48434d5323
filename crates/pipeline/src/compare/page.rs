//! A comparison as a page: its tables, and the coordinates of its plots.

use serde::Serialize;

use super::{Comparison, Table, tables::Grid};
use crate::html;

/// The number of colours in the pages' style.
const COLOURS: usize = 8;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 40.0;
const BOTTOM: f64 = 40.0;

/// The content of the page.
#[derive(Serialize)]
struct Content<'a> {
    note: &'a str,
    grids: Vec<Grid>,
    plots: Vec<Plot>,
    systems: Vec<Key<'a>>,
}

/// A system in the legend.
#[derive(Serialize)]
struct Key<'a> {
    name: &'a str,
    series: usize,
}

/// A plot. Coordinates are in the units of its view box.
#[derive(Serialize)]
struct Plot {
    title: &'static str,
    width: String,
    height: String,
    grid_lines: Vec<GridLine>,
    bars: Vec<Bar>,
    points: Vec<Point>,
    curves: Vec<Curve>,
    labels: Vec<Label>,
}

#[derive(Serialize)]
struct GridLine {
    x1: String,
    x2: String,
    y: String,
}

#[derive(Serialize)]
struct Bar {
    series: usize,
    x: String,
    y: String,
    width: String,
    height: String,
    title: String,
}

#[derive(Serialize)]
struct Point {
    series: usize,
    x: String,
    y: String,
    title: String,
}

#[derive(Serialize)]
struct Curve {
    series: usize,
    points: String,
    title: String,
}

#[derive(PartialEq, Serialize)]
struct Label {
    x: String,
    y: String,
    anchor: &'static str,
    text: String,
}

impl Label {
    fn centred(x: f64, y: f64, text: String) -> Self {
        Self { x: coordinate(x), y: coordinate(y), anchor: "middle", text }
    }

    /// A label of the horizontal axis.
    fn below(x: f64, text: String) -> Self {
        Self::centred(x, HEIGHT - BOTTOM + 18.0, text)
    }
}

impl Plot {
    /// An empty plot with lines at every 20 percent.
    fn new(title: &'static str) -> Self {
        let scores = || (0..=5).map(|step| f64::from(step) / 5.0);
        let grid_lines = scores().map(|score| GridLine {
            x1: LEFT.to_string(),
            x2: WIDTH.to_string(),
            y: coordinate(y(score)),
        });
        let labels = scores().map(|score| Label {
            x: coordinate(LEFT - 6.0),
            y: coordinate(y(score) + 4.0),
            anchor: "end",
            text: format!("{:.0}", 100.0 * score),
        });
        Self {
            title,
            width: WIDTH.to_string(),
            height: HEIGHT.to_string(),
            grid_lines: grid_lines.collect(),
            bars: Vec::new(),
            points: Vec::new(),
            curves: Vec::new(),
            labels: labels.collect(),
        }
    }

    fn scores_by_dataset(comparison: &Comparison) -> Option<Self> {
        let table = table_of(comparison);
        let columns = comparison.columns();
        let group = (WIDTH - LEFT) / columns.len().max(1) as f64;
        let width = group * 0.8 / comparison.systems.len().max(1) as f64;
        let mut plot = Self::new("Scores by dataset");
        for (place, (name, _)) in columns.iter().enumerate() {
            let start = LEFT + group * place as f64 + group * 0.1;
            for (index, system) in comparison.systems.iter().enumerate() {
                let Some(score) = system.score(table, name) else { continue };
                let top = y(score.mean);
                plot.bars.push(Bar {
                    series: series(index),
                    x: coordinate(start + width * index as f64),
                    y: coordinate(top),
                    width: coordinate(width * 0.92),
                    height: coordinate(y(0.0) - top),
                    title: format!("{}, {name}: {:.1}", system.name, 100.0 * score.mean),
                });
            }
            plot.labels.push(Label::below(start + group * 0.4, name.clone()));
        }
        (!plot.bars.is_empty()).then_some(plot)
    }

    fn score_against_cost(comparison: &Comparison) -> Option<Self> {
        let table = table_of(comparison);
        let points: Vec<(usize, f64, f64)> = comparison
            .systems
            .iter()
            .enumerate()
            .filter_map(|(index, system)| {
                Some((index, 1.0 / system.cost.records_per_second()?, system.mean(table)?))
            })
            .collect();
        let least = points.iter().map(|point| point.1).fold(f64::INFINITY, f64::min).log10().floor();
        let most = points.iter().map(|point| point.1).fold(0.0, f64::max).log10().ceil().max(least + 1.0);
        if points.is_empty() || !least.is_finite() {
            return None;
        }
        let x = |seconds: f64| LEFT + (WIDTH - LEFT - 20.0) * (seconds.log10() - least) / (most - least);
        let mut plot = Self::new("Score against cost");
        let mut power = least;
        while power <= most {
            let seconds = 10f64.powf(power);
            plot.labels.push(Label::below(x(seconds), format!("{seconds} s")));
            power += 1.0;
        }
        for (index, seconds, score) in points {
            let name = &comparison.systems[index].name;
            plot.points.push(Point {
                series: series(index),
                x: coordinate(x(seconds)),
                y: coordinate(y(score)),
                title: format!("{name}: {:.1}, {seconds:.3} s a record", 100.0 * score),
            });
        }
        plot.labels.push(Label::centred((LEFT + WIDTH) / 2.0, HEIGHT - 4.0, "seconds a record".into()));
        Some(plot)
    }

    /// The mean over task files of the recall at each depth that the predictions of all of them reach.
    fn recall_by_depth(comparison: &Comparison) -> Option<Self> {
        let mut plot = Self::new("Recall by depth");
        for (index, system) in comparison.systems.iter().enumerate() {
            let mut sums: Vec<(usize, f64, usize)> = Vec::new();
            for (depth, recall) in system.tasks.iter().flat_map(|task| &task.recall) {
                match sums.iter_mut().find(|sum| sum.0 == *depth) {
                    Some(sum) => (sum.1, sum.2) = (sum.1 + recall, sum.2 + 1),
                    None => sums.push((*depth, *recall, 1)),
                }
            }
            // A mean over fewer files would be no point of the same line.
            let files = sums.iter().map(|sum| sum.2).max().unwrap_or_default();
            sums.retain(|sum| sum.2 == files);
            sums.sort_by_key(|sum| sum.0);
            if sums.is_empty() {
                continue;
            }
            let most = super::DEPTHS.last().copied().unwrap_or(1) as f64;
            let x = |depth: usize| LEFT + (WIDTH - LEFT - 20.0) * depth as f64 / most;
            let points: Vec<String> =
                sums.iter().map(|sum| format!("{:.1},{:.1}", x(sum.0), y(sum.1 / sum.2 as f64))).collect();
            plot.curves.push(Curve {
                series: series(index),
                points: points.join(" "),
                title: system.name.clone(),
            });
            for depth in sums.iter().map(|sum| sum.0) {
                let label = Label::below(x(depth), depth.to_string());
                if !plot.labels.contains(&label) {
                    plot.labels.push(label);
                }
            }
        }
        (!plot.curves.is_empty()).then_some(plot)
    }
}

/// The number of a system's colour.
fn series(index: usize) -> usize {
    index % COLOURS
}

fn coordinate(value: f64) -> String {
    format!("{value:.1}")
}

fn y(score: f64) -> f64 {
    10.0 + (HEIGHT - BOTTOM - 10.0) * (1.0 - score.clamp(0.0, 1.0))
}

/// Answers' scores, or R-precision where no run answers.
fn table_of(comparison: &Comparison) -> Table {
    let answers = comparison.systems.iter().any(|system| system.mean(Table::Downstream).is_some());
    if answers { Table::Downstream } else { Table::Retrieval }
}

/// The page: the tables, and plots in SVG.
pub(super) fn page(comparison: &Comparison, note: &str) -> String {
    let plots = [
        Plot::scores_by_dataset(comparison),
        Plot::score_against_cost(comparison),
        Plot::recall_by_depth(comparison),
    ];
    let systems = comparison.systems.iter().enumerate();
    let content = Content {
        note,
        grids: comparison.grids(),
        plots: plots.into_iter().flatten().collect(),
        systems: systems.map(|(index, system)| Key { name: &system.name, series: series(index) }).collect(),
    };
    html::page("Comparison", html::COMPARISON, &content)
}

/// A page of tables without plots.
pub(super) fn of_tables(grids: Vec<Grid>, note: &str) -> String {
    let content = Content { note, grids, plots: Vec::new(), systems: Vec::new() };
    html::page("Comparison", html::COMPARISON, &content)
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
