//! Statistics of KILT's task files (Petroni et al. 2021, table 6 and figures 2 and 5).

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::{
    Dataset, Error, Id, Result, Split, counted, jsonl,
    mapping::{BleuHistogram, LEAST_BLEU},
};

/// The part of a record that is counted.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "id")]
    _id: Id,
    #[serde(default)]
    output: Option<Vec<Output>>,
}

#[derive(Deserialize)]
struct Output {
    #[serde(default)]
    answer: Option<String>,
    #[serde(default)]
    provenance: Option<Vec<Item>>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    wikipedia_id: Option<Id>,
    #[serde(default)]
    bleu_score: Option<f64>,
}

/// Averages over records, as in table 6 of Petroni et al. (2021).
///
/// A provenance set is an output with at least one span. Records without a set do not count in `apn` and `app`;
/// records without an answer do not count in `aan`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Averages {
    /// Records.
    pub records: u64,
    /// Records with a provenance set.
    pub with_provenance: u64,
    /// Records with an answer.
    pub with_answers: u64,
    /// Average provenance size: spans in a provenance set. None without a set.
    pub aps: Option<f64>,
    /// Average provenance number: provenance sets of a record. None without a set.
    pub apn: Option<f64>,
    /// Average provenance pages: distinct pages in all sets of a record. None without a set.
    pub app: Option<f64>,
    /// Records whose every set has several pages, as a share of the records with a set (section 4). None without a set.
    pub several_pages: Option<f64>,
    /// Average answers number: distinct answers of a record, trimmed and not empty. None without an answer.
    pub aan: Option<f64>,
    /// The BLEU of the spans. None if no span has one.
    pub bleu: Option<Bleu>,
}

/// The BLEU of spans against a dataset's own evidence, as in figure 5.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bleu {
    /// Spans with a BLEU, by tenths.
    pub histogram: BleuHistogram,
    /// The mean BLEU of these spans.
    pub mean: f64,
    /// Provenance sets that have a span below 0.5, as a share of all sets with a BLEU.
    pub sets_below: f64,
    /// Records of which every set has a span below 0.5, as a share of all records with a BLEU. In `dev` and `test`,
    /// KILT discards these records.
    pub discarded: f64,
}

/// The sums that averages are computed from.
#[derive(Clone, Debug, Default)]
struct Sums {
    records: u64,
    with_provenance: u64,
    with_answers: u64,
    spans: u64,
    sets: u64,
    pages: u64,
    several_pages: u64,
    answers: u64,
    bleu: f64,
    histogram: BleuHistogram,
    scored_sets: u64,
    sets_below: u64,
    scored_records: u64,
    discarded: u64,
}

/// `sum / count`; none without a count.
fn share(sum: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}

impl Sums {
    /// Adds a record, and its pages to `pages`.
    fn add(&mut self, outputs: &[Output], pages: &mut FxHashSet<String>) {
        self.records += 1;
        let answers: FxHashSet<&str> =
            outputs.iter().filter_map(|it| it.answer.as_deref()).map(str::trim).collect();
        let answers = answers.iter().filter(|answer| !answer.is_empty()).count() as u64;
        self.answers += answers;
        self.with_answers += u64::from(answers > 0);
        let sets = || outputs.iter().filter_map(|it| it.provenance.as_deref()).filter(|set| !set.is_empty());
        let count = sets().count() as u64;
        self.sets += count;
        self.with_provenance += u64::from(count > 0);
        self.spans += sets().map(|set| set.len() as u64).sum::<u64>();
        let ids: FxHashSet<&Id> = sets().flatten().filter_map(|item| item.wikipedia_id.as_ref()).collect();
        self.pages += ids.len() as u64;
        let pages_of = |set: &[Item]| {
            set.iter().filter_map(|item| item.wikipedia_id.as_ref()).collect::<FxHashSet<&Id>>().len()
        };
        self.several_pages += u64::from(count > 0 && sets().all(|set| pages_of(set) > 1));
        for id in ids {
            let text = id.text();
            if !pages.contains(&*text) {
                pages.insert(text.into_owned());
            }
        }
        let (mut scored, mut below) = (0u64, 0u64);
        for set in sets() {
            let mut scores = set.iter().filter_map(|item| item.bleu_score).peekable();
            scored += u64::from(scores.peek().is_some());
            let mut is_below = false;
            for score in scores {
                self.bleu += score;
                self.histogram.add(score);
                is_below |= score < LEAST_BLEU;
            }
            below += u64::from(is_below);
        }
        self.scored_sets += scored;
        self.sets_below += below;
        self.scored_records += u64::from(scored > 0);
        self.discarded += u64::from(scored > 0 && below == count);
    }

    fn merge(&mut self, other: &Self) {
        self.records += other.records;
        self.with_provenance += other.with_provenance;
        self.with_answers += other.with_answers;
        self.spans += other.spans;
        self.sets += other.sets;
        self.pages += other.pages;
        self.several_pages += other.several_pages;
        self.answers += other.answers;
        self.bleu += other.bleu;
        self.histogram.merge(&other.histogram);
        self.scored_sets += other.scored_sets;
        self.sets_below += other.sets_below;
        self.scored_records += other.scored_records;
        self.discarded += other.discarded;
    }

    fn averages(&self) -> Averages {
        let scored = self.histogram.total();
        let bleu = (scored > 0).then(|| Bleu {
            histogram: self.histogram,
            mean: self.bleu / scored as f64,
            sets_below: self.sets_below as f64 / self.scored_sets as f64,
            discarded: self.discarded as f64 / self.scored_records as f64,
        });
        Averages {
            records: self.records,
            with_provenance: self.with_provenance,
            with_answers: self.with_answers,
            aps: share(self.spans, self.sets),
            apn: share(self.sets, self.with_provenance),
            app: share(self.pages, self.with_provenance),
            several_pages: share(self.several_pages, self.with_provenance),
            aan: share(self.answers, self.with_answers),
            bleu,
        }
    }
}

/// The statistics of one file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileStatistics {
    /// The file.
    pub file: PathBuf,
    /// The dataset by the file's name; the name itself for other names.
    pub dataset: String,
    /// The split by the file's name.
    pub split: Option<Split>,
    /// Its averages.
    #[serde(flatten)]
    pub averages: Averages,
}

/// The statistics of a dataset: a row of table 6.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DatasetStatistics {
    /// The dataset.
    pub dataset: String,
    /// Records of its training files; none without such a file.
    pub train: Option<u64>,
    /// Records of its development files; none without such a file.
    pub dev: Option<u64>,
    /// Records of its test files; none without such a file.
    pub test: Option<u64>,
    /// Averages over all its files.
    #[serde(flatten)]
    pub averages: Averages,
}

/// The sizes of all datasets: the last row of table 6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Total {
    /// Records of all training files.
    pub train: u64,
    /// Records of all development files.
    pub dev: u64,
    /// Records of all test files.
    pub test: u64,
    /// Records of all files.
    pub records: u64,
}

/// Pages with knowledge, as in figure 2.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageStatistics {
    /// Distinct pages in the provenance of all files.
    pub pages: u64,
    /// Item i is the number of pages that have knowledge for exactly i + 1 datasets.
    pub by_datasets: Vec<u64>,
}

/// The statistics of task files.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RecordStatistics {
    /// Each file, in the order of the call.
    pub files: Vec<FileStatistics>,
    /// Each dataset, in the order of the paper's tables; other names follow.
    pub datasets: Vec<DatasetStatistics>,
    /// The sizes of all datasets.
    pub total: Total,
    /// The pages of all datasets.
    pub pages: PageStatistics,
}

/// The dataset and the split that a file's name says.
fn named(path: &Path) -> (String, Option<Split>) {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    if let Some((dataset, split)) = Dataset::from_file_name(&name) {
        return (dataset.stem().to_owned(), Some(split));
    }
    let dataset = Dataset::of_file_name(&name).map(|dataset| dataset.stem().to_owned());
    (dataset.unwrap_or_else(|| name.into_owned()), None)
}

/// The place of a dataset in the tables; other names are equal and come last.
fn place(dataset: &str) -> usize {
    let all = Dataset::ALL;
    all.iter().position(|known| known.stem() == dataset).unwrap_or(all.len())
}

/// The sums of a dataset, by split, and its pages.
#[derive(Default)]
struct Gathered {
    sums: Sums,
    sizes: [Option<u64>; 3],
    pages: FxHashSet<String>,
}

/// The statistics of KILT task files. A file is read once, on all threads; the ids of pages stay in memory.
///
/// # Errors
/// Those of the readers; [`Error::Record`] for a BLEU outside 0 to 1; [`Error::Empty`] for a file without records.
pub fn of_records(paths: &[impl AsRef<Path>]) -> Result<RecordStatistics> {
    let mut files = Vec::with_capacity(paths.len());
    let mut gathered: BTreeMap<(usize, String), Gathered> = BTreeMap::new();
    for path in paths.iter().map(AsRef::as_ref) {
        let (dataset, split) = named(path);
        let of_dataset = gathered.entry((place(&dataset), dataset.clone())).or_default();
        let mut sums = Sums::default();
        jsonl::open(path)?.batches::<Line>(|batch| {
            for (number, line) in batch {
                let outputs = line.output.unwrap_or_default();
                check(path, number, &outputs)?;
                sums.add(&outputs, &mut of_dataset.pages);
            }
            Ok(())
        })?;
        if sums.records == 0 {
            return Err(Error::Empty { path: path.to_owned(), what: "record" });
        }
        if let Some(split) = split {
            let size = match split {
                Split::Train => &mut of_dataset.sizes[0],
                Split::Dev => &mut of_dataset.sizes[1],
                Split::Test => &mut of_dataset.sizes[2],
            };
            *size = Some(size.unwrap_or_default() + sums.records);
        }
        of_dataset.sums.merge(&sums);
        files.push(FileStatistics { file: path.to_owned(), dataset, split, averages: sums.averages() });
    }
    let mut datasets = Vec::with_capacity(gathered.len());
    let mut known: FxHashMap<String, usize> = FxHashMap::default();
    for ((_, dataset), Gathered { sums, sizes: [train, dev, test], pages }) in gathered {
        pages.into_iter().for_each(|page| *known.entry(page).or_default() += 1);
        datasets.push(DatasetStatistics { dataset, train, dev, test, averages: sums.averages() });
    }
    let mut pages = PageStatistics { pages: known.len() as u64, by_datasets: vec![0; datasets.len()] };
    known.values().for_each(|&count| pages.by_datasets[count - 1] += 1);
    let sum = |size: fn(&DatasetStatistics) -> Option<u64>| datasets.iter().filter_map(size).sum();
    let total = Total {
        train: sum(|row| row.train),
        dev: sum(|row| row.dev),
        test: sum(|row| row.test),
        records: sum(|row| Some(row.averages.records)),
    };
    Ok(RecordStatistics { files, datasets, total, pages })
}

/// A BLEU is a number from 0 to 1.
fn check(path: &Path, line: u64, outputs: &[Output]) -> Result<()> {
    for (number, output) in outputs.iter().enumerate() {
        for (at, item) in output.provenance.iter().flatten().enumerate() {
            if let Some(score) = item.bleu_score.filter(|score| !(0.0..=1.0).contains(score)) {
                let field = format!("output[{number}].provenance[{at}].bleu_score");
                let message = format!("expected a number from 0 to 1, found {score}");
                return Err(Error::record(path, line, field, message));
            }
        }
    }
    Ok(())
}

impl fmt::Display for RecordStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.datasets.iter().map(|row| row.dataset.chars().count()).max().unwrap_or(0).max(7);
        writeln!(
            f,
            "{:width$} {:>6} {:>6} {:>6} {:>6} {:>10} {:>10} {:>10} {:>10}",
            "dataset", "APS", "APN", "APP", "AAN", "train", "dev", "test", "all"
        )?;
        let mean = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        let size = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        for row in &self.datasets {
            let it = &row.averages;
            writeln!(
                f,
                "{:width$} {:>6} {:>6} {:>6} {:>6} {:>10} {:>10} {:>10} {:>10}",
                row.dataset,
                mean(it.aps),
                mean(it.apn),
                mean(it.app),
                mean(it.aan),
                size(row.train),
                size(row.dev),
                size(row.test),
                it.records
            )?;
        }
        let Total { train, dev, test, records } = self.total;
        writeln!(
            f,
            "{:width$} {:>6} {:>6} {:>6} {:>6} {train:>10} {dev:>10} {test:>10} {records:>10}",
            "total", "", "", "", ""
        )?;
        writeln!(f, "{} with knowledge", counted(self.pages.pages, "page"))?;
        for (at, count) in self.pages.by_datasets.iter().enumerate() {
            writeln!(f, "  {count} for {}", counted(at as u64 + 1, "dataset"))?;
        }
        for row in &self.datasets {
            let Some(bleu) = &row.averages.bleu else { continue };
            let bins: Vec<String> = bleu.histogram.0.iter().map(u64::to_string).collect();
            writeln!(
                f,
                "{}: mean BLEU {:.3}; spans by tenths {}; {:.2}% of the records only have sets with a span below {LEAST_BLEU}",
                row.dataset,
                bleu.mean,
                bins.join(" "),
                100.0 * bleu.discarded
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(files: &[(&str, &[&str])]) -> Result<RecordStatistics> {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = files
            .iter()
            .map(|(name, lines)| {
                let path = folder.path().join(name);
                jsonl::write(&path, lines.join("\n").as_bytes()).unwrap();
                path
            })
            .collect();
        of_records(&paths)
    }

    const FEVER: [&str; 3] = [
        // Two sets, of one and two spans, on two pages; one answer twice.
        r#"{"id":1,"input":"a","output":[{"answer":"SUPPORTS","provenance":[{"wikipedia_id":"7","bleu_score":1.0}]},{"answer":" SUPPORTS ","provenance":[{"wikipedia_id":7,"bleu_score":0.4},{"wikipedia_id":"8","bleu_score":0.55}]}]}"#,
        // One set, all below.
        r#"{"id":2,"input":"b","output":[{"answer":"REFUTES","provenance":[{"wikipedia_id":"9","bleu_score":0.2}]}]}"#,
        // Two answers without provenance.
        r#"{"id":3,"input":"c","output":[{"answer":"REFUTES"},{"answer":"NO","provenance":[]},{"answer":""}]}"#,
    ];

    #[test]
    fn averages_are_those_of_table_6() {
        let found = described(&[("fever-dev-kilt.jsonl", &FEVER)]).unwrap();
        let row = &found.datasets[0];
        assert_eq!((row.dataset.as_str(), row.train, row.dev, row.test), ("fever", None, Some(3), None));
        let it = &row.averages;
        assert_eq!((it.records, it.with_provenance, it.with_answers), (3, 2, 3));
        // 4 spans in 3 sets; 3 sets and 2 + 1 pages of 2 records; 1 + 1 + 2 answers of 3 records.
        assert_eq!(
            (it.aps, it.apn, it.app, it.aan),
            (Some(4.0 / 3.0), Some(1.5), Some(1.5), Some(4.0 / 3.0))
        );
        let bleu = it.bleu.as_ref().unwrap();
        assert_eq!(bleu.histogram.0, [0, 0, 1, 0, 1, 1, 0, 0, 0, 1]);
        assert!((bleu.mean - 2.15 / 4.0).abs() < 1e-12);
        assert_eq!((bleu.sets_below, bleu.discarded), (2.0 / 3.0, 0.5));
        // The first set of the first record has one page.
        assert_eq!(it.several_pages, Some(0.0));
        assert_eq!(found.files[0].averages, *it);
        let both = r#"{"id":1,"output":[{"provenance":[{"wikipedia_id":1},{"wikipedia_id":2},{"wikipedia_id":"1"}]}]}"#;
        let found = described(&[("hotpotqa-dev-kilt.jsonl", &[both, FEVER[1]])]).unwrap();
        assert_eq!(found.datasets[0].averages.several_pages, Some(0.5));
    }

    #[test]
    fn sizes_are_those_of_the_splits_and_averages_those_of_all_files() {
        let found = described(&[
            ("wow-test_without_answers-kilt.jsonl", &[r#"{"id":1,"input":"a"}"#, r#"{"id":2,"input":"b"}"#]),
            ("fever-train-kilt.jsonl", &FEVER),
            ("fever-dev-kilt.jsonl", &FEVER[1..2]),
            ("own.jsonl", &[r#"{"id":1,"output":[{"answer":"x"}]}"#]),
        ])
        .unwrap();
        let rows: Vec<_> =
            found.datasets.iter().map(|it| (it.dataset.as_str(), it.train, it.dev, it.test)).collect();
        assert_eq!(
            rows,
            [
                ("fever", Some(3), Some(1), None),
                ("wow", None, None, Some(2)),
                ("own.jsonl", None, None, None)
            ]
        );
        assert_eq!(
            (found.datasets[0].averages.records, found.datasets[0].averages.apn),
            (4, Some(4.0 / 3.0))
        );
        let wow = &found.datasets[1].averages;
        assert_eq!((wow.aps, wow.apn, wow.app, wow.aan, &wow.bleu), (None, None, None, None, &None));
        assert_eq!(found.files.len(), 4);
        assert_eq!(found.total, Total { train: 3, dev: 1, test: 2, records: 7 });
        let text = found.to_string();
        assert!(
            text.contains("\nwow            -      -      -      -          -          -          2"),
            "{text}"
        );
    }

    #[test]
    fn pages_are_counted_by_the_datasets_that_need_them() {
        let line = |pages: &[&str]| {
            let items: Vec<String> =
                pages.iter().map(|page| format!(r#"{{"wikipedia_id":"{page}"}}"#)).collect();
            format!(r#"{{"id":1,"output":[{{"provenance":[{}]}}]}}"#, items.join(","))
        };
        let [nq, other, wow] = [line(&["1", "2", "2"]), line(&["2"]), line(&["2", "3", "1 "])];
        let found = described(&[
            ("nq-train-kilt.jsonl", &[&nq]),
            ("nq-dev-kilt.jsonl", &[&other]),
            ("wow-dev-kilt.jsonl", &[&wow]),
            ("eli5-dev-kilt.jsonl", &[&other]),
        ])
        .unwrap();
        // Page 3 in one dataset, page 1 in two, page 2 in three.
        assert_eq!(found.pages, PageStatistics { pages: 3, by_datasets: vec![1, 1, 1] });
    }

    #[test]
    fn wrong_lines_and_empty_files_are_named() {
        let bleu = r#"{"id":1,"output":[{"answer":"x"},{"provenance":[{"bleu_score":1.5}]}]}"#;
        for (line, expected) in [
            (
                bleu,
                "a.jsonl:1: field `output[1].provenance[0].bleu_score`: expected a number from 0 to 1, found 1.5",
            ),
            (r#"{"id":1,"output":[{"answer":7}]}"#, "a.jsonl:1: field `output[0].answer`: "),
            (r#"{"output":[]}"#, "a.jsonl:1: missing field `id`"),
            ("", "expected at least one record"),
        ] {
            let message = described(&[("a.jsonl", &[line])]).unwrap_err().to_string();
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
    }
}
