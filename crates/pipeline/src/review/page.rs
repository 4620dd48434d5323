//! What the page of a report shows of a run besides its table: cost, intervals, examples, config.

use serde::Serialize;

use super::run::{Example, ExampleFilter, FileReport, Overview, Review, Score, Verdict};
use crate::Result;

/// The examples of each verdict of a file.
const SHOWN: usize = 2;
/// The longest input of an example, in characters.
const LONGEST: usize = 600;
/// The size of the plot: the width of the names, that of the scale, and the height of a row.
const NAMES: f64 = 170.0;
const SCALE: f64 = 500.0;
const ROW: f64 = 26.0;
/// The room above the rows, for the labels of the scale.
const HEAD: f64 = 24.0;

/// What the page of a report shows of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    facts: Vec<(&'static str, String)>,
    plot: Option<Plot>,
    groups: Vec<Group>,
    config: Option<String>,
}

/// The scores of the files with their intervals, on one scale from 0 to 100.
#[derive(Debug, Serialize)]
struct Plot {
    width: f64,
    height: f64,
    ticks: Vec<Tick>,
    rows: Vec<Row>,
}

/// A line of the scale.
#[derive(Debug, Serialize)]
struct Tick {
    x: f64,
    top: f64,
    bottom: f64,
    label: u32,
}

/// A file in the plot.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    y: f64,
    points: Vec<Point>,
}

/// A score in the plot.
#[derive(Debug, Serialize)]
struct Point {
    /// The number of the series.
    series: usize,
    x: f64,
    low: f64,
    high: f64,
    y: f64,
    title: String,
}

/// Examples of one file.
#[derive(Debug, Serialize)]
struct Group {
    name: String,
    examples: Vec<Example>,
}

/// The content of a page from a run.
///
/// # Errors
/// Predictions that cannot be read.
pub(crate) fn page(review: &Review) -> Result<Shown> {
    let overview = review.overview();
    let mut groups = Vec::new();
    for file in overview.files.iter().filter(|file| file.scores.is_some()) {
        let mut examples = Vec::new();
        let (right, wrong) = (Some(Verdict::Right), Some(Verdict::Wrong));
        let kinds: &[_] = match file.scores.and_then(|scores| scores.answer) {
            Some(_) => &[(wrong, None), (right, wrong), (right, right)],
            None => &[(None, wrong), (None, right)],
        };
        for &(answer, evidence) in kinds {
            let filter = ExampleFilter {
                file: Some(file.file.clone()),
                answer,
                evidence,
                limit: Some(SHOWN),
                ..ExampleFilter::default()
            };
            examples.extend(review.examples(&filter)?.examples);
        }
        for example in &mut examples {
            shorten(&mut example.input);
            example.provenance.truncate(3);
        }
        groups.push(Group { name: name(file), examples });
    }
    Ok(Shown { facts: facts(&overview), plot: plot(&overview.files), groups, config: overview.config })
}

fn name(file: &FileReport) -> String {
    file.dataset.map_or_else(|| file.file.clone(), str::to_owned)
}

/// Cuts a text to its last characters: the last turn of a dialogue is its end.
fn shorten(text: &mut String) {
    let surplus = text.chars().count().saturating_sub(LONGEST);
    if surplus > 0 {
        let start = text.char_indices().nth(surplus).map_or(text.len(), |(at, _)| at);
        text.replace_range(..start, "… ");
    }
}

fn facts(overview: &Overview) -> Vec<(&'static str, String)> {
    let mut facts = vec![("Program", overview.program.clone())];
    facts.extend(overview.seed.map(|seed| ("Seed", seed.to_string())));
    facts.push(("Records", overview.records.to_string()));
    facts.push(("Time", format!("{:.1} s", overview.seconds)));
    if overview.peak_memory_bytes > 0 {
        facts.push((
            "Peak memory",
            format!("{:.1} MiB", overview.peak_memory_bytes as f64 / f64::from(1 << 20)),
        ));
    }
    facts.push(("Threads", overview.threads.to_string()));
    if overview.tokens > 0 {
        facts.push(("Tokens", overview.tokens.to_string()));
    }
    facts.extend(overview.cost.map(|cost| ("Cost", format!("{cost:.4}"))));
    facts
}

fn plot(files: &[FileReport]) -> Option<Plot> {
    let scored: Vec<_> = files.iter().filter_map(|file| Some((file, file.scores?))).collect();
    let (first, bottom) = (HEAD + ROW / 2.0, HEAD + ROW * scored.len() as f64);
    let at = |share: f64| NAMES + SCALE * share;
    let rows = scored.iter().enumerate().map(|(number, (file, scores))| {
        let y = first + ROW * number as f64;
        let point = |series: usize, what: &str, Score { mean, low, high }: Score| {
            let percent = [mean, low, high].map(|share| format!("{:.1}", 100.0 * share));
            let [mean_text, low_text, high_text] = percent;
            Point {
                series,
                x: at(mean),
                low: at(low),
                high: at(high),
                y: y + if series == 0 { -4.0 } else { 4.0 },
                title: format!("{what}: {mean_text}, 95 % interval {low_text} to {high_text}"),
            }
        };
        let answer = scores.answer.map(|score| point(0, file.metric, score));
        let points = answer.into_iter().chain([point(1, "R-precision", scores.r_precision)]).collect();
        Row { name: name(file), y, points }
    });
    let rows: Vec<Row> = rows.collect();
    let tick = |label: u32| Tick { x: at(f64::from(label) / 100.0), top: HEAD, bottom, label };
    let ticks = [0, 25, 50, 75, 100].map(tick).into();
    (!rows.is_empty()).then_some(Plot { width: NAMES + SCALE + 20.0, height: bottom + 4.0, ticks, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_input_keeps_its_end() {
        let mut text = format!("{}é end", "x".repeat(LONGEST));
        shorten(&mut text);
        assert!(text.starts_with("… x") && text.ends_with("é end"), "{text}");
        assert_eq!(text.chars().count(), LONGEST + 2);
        let mut short = "é".to_owned();
        shorten(&mut short);
        assert_eq!(short, "é");
    }

    #[test]
    fn a_run_without_scores_has_no_plot_and_no_examples() {
        let shown = page(&Review::default()).unwrap();
        assert!(shown.plot.is_none() && shown.groups.is_empty() && shown.config.is_none());
    }
}
