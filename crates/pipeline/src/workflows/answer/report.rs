//! The scores of a run: `report.json`, a table for the terminal, and a self-contained HTML page.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use serde::{Deserialize, Serialize};
use sporran_kilt::{
    Dataset, Metric,
    scores::{Measure, depth::Depth},
};
use sporran_retriever::IndexRecall;

use crate::{html, review::Shown};

/// The scores of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The name of the run.
    pub name: String,
    /// The reports of the task files, in order.
    pub tasks: Vec<TaskReport>,
    /// Means over the scored task files; `None` if there are none.
    pub mean: Option<Mean>,
    /// The recall of approximate indexes, relative to exact search.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<IndexRecall>,
}

/// The scores of one task file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskReport {
    /// The name of the task file and of its predictions.
    pub file: String,
    /// The dataset, by the file name.
    pub dataset: Option<Dataset>,
    /// The number of records.
    pub records: usize,
    /// The dataset's headline score.
    pub metric: Metric,
    /// The scores; `None` without gold answers.
    pub scores: Option<Scores>,
    /// Recall over pages at the depths of `[evaluation]`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub recall: BTreeMap<usize, f64>,
    /// The measures of `[evaluation]` for queries with judgements.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub measures: BTreeMap<String, f64>,
    /// The number of pages in the predictions, compared with the depths of recall; `None` without gold answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<Depth>,
}

/// Scores, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// The headline score of the answers; `None` for retrieval only.
    pub answer: Option<f64>,
    /// The headline score of records with R-precision 1; `None` for retrieval only.
    pub kilt: Option<f64>,
    /// R-precision over pages.
    #[serde(rename = "Rprec")]
    pub r_precision: f64,
    /// Recall at 5 over pages.
    #[serde(rename = "recall@5")]
    pub recall_at_5: f64,
}

/// Means over task files.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// The number of task files.
    pub tasks: usize,
    /// The mean scores.
    pub scores: Scores,
}

impl Report {
    /// Makes a report and computes the means.
    pub(crate) fn new(name: &str, tasks: Vec<TaskReport>, indexes: Vec<IndexRecall>) -> Self {
        let scored: Vec<Scores> = tasks.iter().filter_map(|task| task.scores).collect();
        let count = scored.len() as f64;
        let mean = (!scored.is_empty()).then(|| {
            let over = |score: fn(&Scores) -> f64| scored.iter().map(score).sum::<f64>() / count;
            let over_some = |score: fn(&Scores) -> Option<f64>| {
                scored.iter().map(score).sum::<Option<f64>>().map(|sum| sum / count)
            };
            let scores = Scores {
                answer: over_some(|scores| scores.answer),
                kilt: over_some(|scores| scores.kilt),
                r_precision: over(|scores| scores.r_precision),
                recall_at_5: over(|scores| scores.recall_at_5),
            };
            Mean { tasks: scored.len(), scores }
        });
        Self { name: name.to_owned(), tasks, mean, indexes }
    }

    /// The depths of recall other than 5.
    fn depths(&self) -> BTreeSet<usize> {
        self.tasks.iter().flat_map(|task| task.recall.keys().copied()).filter(|&depth| depth != 5).collect()
    }

    /// The names of the measures of judged queries.
    fn measures(&self) -> BTreeSet<&str> {
        self.tasks.iter().flat_map(|task| task.measures.keys().map(String::as_str)).collect()
    }

    /// The names of the columns.
    fn head(&self) -> Vec<String> {
        let deeper = self.depths().into_iter().map(|depth| format!("recall@{depth}"));
        let measures = self.measures().into_iter().map(str::to_owned);
        HEAD.map(str::to_owned).into_iter().chain(deeper).chain(measures).collect()
    }

    /// The rows of the table: file, records, metric, and the scores in percent.
    fn rows(&self) -> Vec<Vec<String>> {
        let depths = self.depths();
        let measures = self.measures();
        let row = |name: &str, records: usize, metric: &str, scores: Option<Scores>, deeper: Vec<Measure>| {
            let of = |score: fn(Scores) -> Option<f64>| {
                scores.and_then(score).map_or_else(Measure::default, Measure::from)
            };
            let figures = [
                of(|scores| scores.answer),
                of(|scores| scores.kilt),
                of(|scores| Some(scores.r_precision)),
                of(|scores| Some(scores.recall_at_5)),
            ];
            let figures = figures.into_iter().chain(deeper).map(|figure| format!("{:.1}", figure.percent()));
            [name.to_owned(), records.to_string(), metric.to_owned()].into_iter().chain(figures).collect()
        };
        let at = |task: &TaskReport, depth: &usize| task.recall.get(depth).copied();
        let mut rows: Vec<_> = self
            .tasks
            .iter()
            .map(|task| {
                let name =
                    task.dataset.map_or_else(|| task.file.clone(), |dataset| dataset.stem().to_owned());
                let deeper = depths.iter().map(|depth| Measure::mean(at(task, depth)));
                let measured = measures.iter().map(|&name| Measure::mean(task.measures.get(name).copied()));
                let deeper = deeper.chain(measured).collect();
                row(&name, task.records, task.metric.key(), task.scores, deeper)
            })
            .collect();
        if let Some(mean) = self.mean {
            let records =
                self.tasks.iter().filter(|task| task.scores.is_some()).map(|task| task.records).sum();
            let over = |depth| Measure::mean(self.tasks.iter().filter_map(|task| at(task, depth)));
            let measured = measures.iter().map(|&name| {
                Measure::mean(self.tasks.iter().filter_map(|task| task.measures.get(name).copied()))
            });
            let deeper = depths.iter().map(over).chain(measured).collect();
            rows.push(row(&format!("mean of {}", mean.tasks), records, "", Some(mean.scores), deeper));
        }
        rows
    }

    /// Notes about recall at depths beyond the predictions.
    fn notes(&self) -> Vec<String> {
        let of = |task: &TaskReport| {
            // Not for predictions without evidence.
            let depth = task.depth.as_ref().filter(|depth| depth.max > 0)?;
            Some(format!("note: {}: {}", task.file, depth.note("pages")?))
        };
        self.tasks.iter().filter_map(of).collect()
    }

    /// The table for a terminal, scores in percent.
    pub fn table(&self) -> String {
        let mut rows = self.rows();
        rows.insert(0, self.head());
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
        let mut table = String::new();
        for (number, row) in rows.iter().enumerate() {
            for (column, cell) in row.iter().enumerate() {
                // Names and metrics are aligned left, numbers right. Writing to a string cannot fail.
                let _ = match column {
                    0 | 2 => write!(table, "{cell:<0$}  ", widths[column]),
                    _ => write!(table, "{cell:>0$}  ", widths[column]),
                };
            }
            table.truncate(table.trim_end().len());
            table.push('\n');
            if number == 0 || (number + 2 == rows.len() && self.mean.is_some()) {
                let _ =
                    writeln!(table, "{}", "-".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1)));
            }
        }
        for note in self.notes() {
            let _ = writeln!(table, "{note}");
        }
        for index in &self.indexes {
            let _ = writeln!(table, "{index}");
        }
        table
    }

    /// An HTML page with the table and a bar for each answer score, and what it shows of the run besides.
    pub(crate) fn html(&self, run: Shown) -> String {
        let row = |(cells, task): (Vec<String>, Option<&TaskReport>)| {
            let scores = task.map_or(self.mean.map(|mean| mean.scores), |task| task.scores);
            let share = scores.map_or(0.0, |scores| scores.answer.unwrap_or(scores.r_precision) * 100.0);
            PageRow { cells, share: format!("{share:.1}"), is_mean: task.is_none() }
        };
        let tasks = self.tasks.iter().map(Some).chain([None]);
        let indexes = self.indexes.iter().map(ToString::to_string);
        let content = PageContent {
            head: self.head(),
            rows: self.rows().into_iter().zip(tasks).map(row).collect(),
            notes: self.notes().into_iter().chain(indexes).collect(),
            run,
        };
        html::page(&self.name, html::REPORT, &content)
    }
}

/// The content of a report's page.
#[derive(Serialize)]
struct PageContent {
    head: Vec<String>,
    rows: Vec<PageRow>,
    notes: Vec<String>,
    run: Shown,
}

#[derive(Serialize)]
struct PageRow {
    cells: Vec<String>,
    /// The length of the bar in percent.
    share: String,
    is_mean: bool,
}

const HEAD: [&str; 7] = ["dataset", "records", "metric", "answer", "KILT", "Rprec", "recall@5"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::{Review, page};

    /// The rest of the page, of a run without predictions.
    fn bare() -> Shown {
        page(&Review::default()).unwrap()
    }

    #[test]
    fn the_mean_is_over_scored_files_and_shown_last() {
        let scores =
            |answer| Scores { answer: Some(answer), kilt: Some(0.0), r_precision: 0.5, recall_at_5: 1.0 };
        let task = |dataset: Dataset, scores| TaskReport {
            file: dataset.file_name(sporran_kilt::Split::Dev),
            dataset: Some(dataset),
            records: 10,
            metric: dataset.metric(),
            scores,
            recall: BTreeMap::new(),
            measures: BTreeMap::new(),
            depth: None,
        };
        let tasks = vec![
            task(Dataset::Nq, Some(scores(0.25))),
            task(Dataset::Wow, Some(scores(0.75))),
            task(Dataset::Trex, None),
        ];
        let index = IndexRecall {
            index: "indexes/dense-1".into(),
            recall: 0.987,
            k: 10,
            queries: 500,
            repaired: 3,
            lost: 0,
        };
        let report = Report::new("a<b", tasks, vec![index]);
        assert_eq!(report.mean.unwrap().scores.answer, Some(0.5));
        let table = report.table();
        let line =
            "indexes/dense-1: finds 98.70 % of the 10 nearest (of 500 vectors); 3 vectors repaired, 0 lost";
        assert!(table.ends_with(&format!("{line}\n")));
        // The template escapes slashes as well.
        assert!(report.html(bare()).contains(&line.replace('/', "&#x2f;")));
        let last = table.lines().nth_back(1).unwrap();
        assert_eq!(
            last.split_whitespace().collect::<Vec<_>>(),
            ["mean", "of", "2", "20", "50.0", "0.0", "50.0", "100.0"]
        );
        assert!(report.html(bare()).contains("<h1>a&lt;b</h1>"));
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    }

    #[test]
    fn deeper_recall_has_columns_and_depths_beyond_the_predictions_are_noted() {
        let task = |dataset: Dataset, recall: &[(usize, f64)], max, beyond: &[usize]| TaskReport {
            file: dataset.file_name(sporran_kilt::Split::Dev),
            dataset: Some(dataset),
            records: 4,
            metric: dataset.metric(),
            scores: Some(Scores { answer: None, kilt: None, r_precision: 0.5, recall_at_5: 0.5 }),
            recall: recall.iter().copied().collect(),
            measures: BTreeMap::new(),
            depth: Some(Depth { min: 0, max, beyond: beyond.into() }),
        };
        let tasks = vec![
            task(Dataset::Nq, &[(5, 0.5), (100, 0.75)], 20, &[100]),
            task(Dataset::Wow, &[(100, 0.25)], 100, &[]),
            task(Dataset::Trex, &[], 0, &[5]),
        ];
        let report = Report::new("deep", tasks, Vec::new());
        let table = report.table();
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0][5..], ["Rprec", "recall@5", "recall@100"]);
        assert_eq!(lines[2], ["nq", "4", "em", "-", "-", "50.0", "50.0", "75.0"]);
        assert_eq!(lines[4].last(), Some(&"-"));
        assert_eq!(lines[6][3..], ["12", "-", "-", "50.0", "50.0", "50.0"]);
        let note = "note: nq-dev-kilt.jsonl: predictions hold 20 pages at most; recall@100 looks beyond them";
        assert_eq!(table.lines().filter(|line| line.starts_with("note")).collect::<Vec<_>>(), [note]);
        assert!(
            report.html(bare()).contains("<th scope=col>recall@100</th>")
                && report.html(bare()).contains(note)
        );
        let json = serde_json::to_string(&report).unwrap();
        assert!(
            json.contains(r#""recall":{"5":0.5,"100":0.75},"depth":{"min":0,"max":20,"beyond":[100]}"#),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    }
}
