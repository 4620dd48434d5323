//! Tables of single datasets: tables 7 to 17 of the KILT paper (Petroni et al., appendix).

use serde::Serialize;
use sporran_kilt::{Dataset, Metric, Split};

use super::{System, published_appendix, tables};

/// A dataset's table: R-precision, recall at 5, the scores of the answers, and their KILT forms.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DatasetTable {
    /// The number of the table in the paper.
    pub table: usize,
    /// The dataset.
    pub dataset: Dataset,
    /// The split; `None` for a file that has another name than KILT's.
    pub split: Option<Split>,
    /// The names of the scores.
    pub columns: Vec<String>,
    /// The runs, then the published rows of the same split.
    pub rows: Vec<DatasetRow>,
}

/// A row of a dataset's table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DatasetRow {
    /// The name of the system.
    pub system: String,
    /// Whether the row is the paper's.
    pub is_published: bool,
    /// The scores from 0 to 1, in the order of the columns; `None` without gold, and for answers of a retrieval.
    pub scores: Vec<Option<f64>>,
}

/// The scores of the answers in a dataset's table.
pub(super) fn metrics(dataset: Dataset) -> &'static [Metric] {
    match dataset {
        Dataset::Fever | Dataset::AidaYago2 | Dataset::Wned | Dataset::Cweb => &[Metric::Accuracy],
        Dataset::Trex | Dataset::StructuredZeroshot => &[Metric::Accuracy, Metric::F1],
        Dataset::Nq | Dataset::HotpotQa | Dataset::TriviaQa => &[Metric::ExactMatch, Metric::F1],
        Dataset::Eli5 | Dataset::Wow => &[Metric::RougeL, Metric::F1],
    }
}

fn columns(dataset: Dataset) -> Vec<String> {
    let keys = metrics(dataset).iter().map(|metric| metric.key());
    let kilt = keys.clone().map(|key| format!("KILT-{key}"));
    ["Rprec", "recall@5"].into_iter().chain(keys).map(str::to_owned).chain(kilt).collect()
}

/// The name of a dataset in the paper.
fn title(dataset: Dataset) -> &'static str {
    match dataset {
        Dataset::Fever => "FEVER",
        Dataset::AidaYago2 => "AIDA CoNLL-YAGO",
        Dataset::Wned => "WNED-WIKI",
        Dataset::Cweb => "WNED-CWEB",
        Dataset::Trex => "T-REx",
        Dataset::StructuredZeroshot => "Zero Shot RE",
        Dataset::Nq => "Natural Questions",
        Dataset::HotpotQa => "HotpotQA",
        Dataset::TriviaQa => "TriviaQA",
        Dataset::Eli5 => "ELI5",
        Dataset::Wow => "Wizard of Wikipedia",
    }
}

fn split_name(split: Split) -> &'static str {
    match split {
        Split::Train => "train",
        Split::Dev => "dev",
        Split::Test => "test",
    }
}

/// The tables of the datasets for which a run has scores, in the order of the paper.
pub(super) fn dataset_tables(systems: &[System]) -> Vec<DatasetTable> {
    let mut tables = Vec::new();
    for (place, dataset) in Dataset::ALL.into_iter().enumerate() {
        for split in [Some(Split::Train), Some(Split::Dev), Some(Split::Test), None] {
            let columns = columns(dataset);
            let own = systems.iter().filter_map(|system| {
                let is_same = |task: &&super::Task| task.dataset == Some(dataset) && task.split == split;
                let task = system.tasks.iter().filter(is_same).find(|task| !task.scores.is_empty())?;
                let scores = columns.iter().map(|name| task.scores.get(name).copied()).collect();
                Some(DatasetRow { system: system.name.clone(), is_published: false, scores })
            });
            let mut rows: Vec<DatasetRow> = own.collect();
            if rows.is_empty() {
                continue;
            }
            let published = published_appendix::rows(dataset).iter().filter(|row| Some(row.0) == split);
            rows.extend(published.map(|(_, system, scores)| DatasetRow {
                system: (*system).to_owned(),
                is_published: true,
                scores: scores.iter().map(|score| Some(score / 100.0)).collect(),
            }));
            tables.push(DatasetTable { table: 7 + place, dataset, split, columns, rows });
        }
    }
    tables
}

impl DatasetTable {
    /// Such as `Table 13 dev`.
    pub(super) fn label(&self) -> String {
        let split = self.split.map_or_else(String::new, |split| format!(" {}", split_name(split)));
        format!("Table {}{split}", self.table)
    }

    pub(super) fn grid(&self) -> tables::Grid {
        let split = self.split.map_or_else(String::new, |split| format!(", {}", split_name(split)));
        let head = [&"system".to_owned()].into_iter().chain(&self.columns).cloned().collect();
        let row = |row: &DatasetRow| tables::Row {
            name: row.system.clone(),
            is_published: row.is_published,
            cells: row.scores.iter().map(|score| tables::hundredths(*score)).collect(),
        };
        tables::Grid {
            title: format!("Table {}: {}{split}", self.table, title(self.dataset)),
            head,
            rows: self.rows.iter().map(row).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tables::tests::comparison;

    #[test]
    fn a_table_has_the_runs_and_the_published_rows_of_its_split() {
        let mut systems = comparison().systems;
        let tables = dataset_tables(&systems);
        assert_eq!(tables.len(), 1);
        let table = &tables[0];
        assert_eq!((table.table, table.dataset, table.split), (13, Dataset::Nq, Some(Split::Dev)));
        assert_eq!(table.columns, ["Rprec", "recall@5", "em", "f1", "KILT-em", "KILT-f1"]);
        let names: Vec<&str> = table.rows.iter().map(|row| row.system.as_str()).collect();
        assert_eq!(names, ["a_b", "c<d", "BART", "T5", "BART + DPR", "BERT + DPR", "RAG"]);
        let own = [Some(0.5), Some(0.75), Some(0.5), Some(0.625), Some(0.25), None];
        assert_eq!((table.rows[1].is_published, table.rows[1].scores.as_slice()), (false, &own[..]));
        let grid = table.grid();
        assert_eq!(grid.title, "Table 13: Natural Questions, dev");
        assert_eq!(grid.rows[1].cells, ["50.00", "75.00", "50.00", "62.50", "25.00", "-"]);
        assert_eq!(grid.rows[6].cells, ["60.31", "65.47", "48.78", "56.10", "36.31", "40.64"]);

        // A part of the data has no published rows; a file without gold has no table.
        systems[1].tasks[0].split = None;
        let tables = dataset_tables(&systems);
        assert_eq!(tables.iter().map(DatasetTable::label).collect::<Vec<_>>(), ["Table 13 dev", "Table 13"]);
        assert_eq!((tables[0].rows.len(), tables[1].rows.len()), (6, 1));
        systems.iter_mut().for_each(|system| system.tasks[0].scores.clear());
        assert!(dataset_tables(&systems).is_empty());
    }

    #[test]
    fn tables_have_the_columns_of_the_paper() {
        let of = |dataset| columns(dataset).join(" ");
        assert_eq!(of(Dataset::Fever), "Rprec recall@5 accuracy KILT-accuracy");
        assert_eq!(of(Dataset::Trex), "Rprec recall@5 accuracy f1 KILT-accuracy KILT-f1");
        assert_eq!(of(Dataset::Wow), "Rprec recall@5 rougel f1 KILT-rougel KILT-f1");
    }
}
