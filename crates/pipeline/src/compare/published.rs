//! The published rows of the headline tables: tables 2, 3 and 4 of the KILT paper (Petroni et al.), on KILT's test data. The row
//! `Multi-task DPR` is in the version of NAACL 2021 only, in which these are tables 3 to 5.

use sporran_kilt::Dataset;

use super::Table;

/// A published system and its scores in percent, in the order of [`Dataset::ALL`]; `None` where the paper has none.
pub(super) type Row = (&'static str, [Option<f64>; 11]);

/// The source of the scores.
pub(super) const SOURCE: &str =
    "Petroni et al., KILT, tables 2 to 5 and 7 to 17; the headline tables are of test data";

/// The scores of some datasets; `None` for the others.
const fn only(scores: &[(usize, f64)]) -> [Option<f64>; 11] {
    let mut row = [None; 11];
    let mut at = 0;
    while at < scores.len() {
        row[scores[at].0] = Some(scores[at].1);
        at += 1;
    }
    row
}

const fn all(scores: [f64; 11]) -> [Option<f64>; 11] {
    let mut row = [None; 11];
    let mut at = 0;
    while at < 11 {
        row[at] = Some(scores[at]);
        at += 1;
    }
    row
}

const DOWNSTREAM: [Row; 8] = [
    ("NSMN", only(&[(0, 66.1)])),
    ("BERT + DPR", only(&[(0, 69.68), (5, 6.93), (6, 38.64), (7, 11.29), (8, 70.38)])),
    ("BLINK", only(&[(1, 81.54), (2, 80.24), (3, 68.77)])),
    ("Trans MemNet", only(&[(10, 11.5)])),
    ("BART (large)", all([78.93, 77.55, 45.91, 49.16, 45.06, 9.14, 21.75, 15.37, 32.39, 20.55, 12.96])),
    ("T5 (base)", all([76.3, 74.05, 47.13, 49.29, 43.56, 9.02, 19.6, 12.64, 18.11, 19.08, 13.49])),
    ("BART + DPR", all([86.74, 75.49, 45.2, 46.87, 59.16, 30.43, 41.27, 25.18, 58.55, 17.41, 15.55])),
    ("RAG", all([86.31, 72.62, 48.07, 47.61, 59.2, 44.74, 44.39, 26.97, 71.27, 14.05, 13.22])),
];

const RETRIEVAL: [Row; 6] = [
    ("DPR + BERT", only(&[(0, 72.93), (5, 40.11), (6, 60.66), (7, 25.04), (8, 43.4)])),
    ("DPR", all([55.33, 1.81, 0.3, 0.51, 13.26, 28.96, 54.29, 25.04, 44.49, 10.67, 25.48])),
    ("Multi-task DPR", all([74.48, 26.48, 4.91, 1.86, 69.46, 80.91, 59.42, 42.92, 61.49, 15.5, 41.07])),
    ("Tf-idf", all([50.85, 3.74, 0.24, 2.09, 44.74, 60.83, 28.12, 34.14, 46.37, 13.67, 49.01])),
    ("RAG", all([61.94, 72.62, 48.07, 47.61, 28.68, 53.73, 59.49, 30.59, 48.68, 11.0, 57.78])),
    ("BLINK + flair", all([63.71, 81.54, 80.24, 68.77, 59.56, 78.78, 24.52, 46.12, 65.58, 9.5, 38.21])),
];

const KILT: [Row; 6] = [
    ("NSMN", only(&[(0, 41.88)])),
    ("BERT + DPR", only(&[(0, 58.58), (5, 4.47), (6, 31.99), (7, 0.74), (8, 34.48)])),
    ("BLINK", only(&[(1, 81.54), (2, 80.24), (3, 68.77)])),
    ("Trans MemNet", only(&[(10, 2.23)])),
    ("BART + DPR", all([47.68, 75.49, 45.2, 46.87, 11.12, 18.91, 30.06, 1.96, 31.4, 1.9, 4.52])),
    ("RAG", all([53.45, 72.62, 48.07, 47.61, 23.12, 36.83, 32.69, 3.21, 38.13, 1.69, 9.1])),
];

/// The published rows of a table.
pub(super) fn rows(table: Table) -> &'static [Row] {
    match table {
        Table::Downstream => &DOWNSTREAM,
        Table::Retrieval => &RETRIEVAL,
        Table::Kilt => &KILT,
    }
}

/// The score of a dataset in a row.
pub(super) fn score(row: &Row, dataset: Dataset) -> Option<f64> {
    let place = Dataset::ALL.iter().position(|known| *known == dataset)?;
    row.1[place]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entity_linking_has_one_score_in_all_tables() {
        // For entity linking the answer is the page, so the three tables of the paper have equal scores.
        for name in ["BLINK", "BART + DPR", "RAG"] {
            let of = |table| {
                rows(table).iter().find(|row| row.0 == name || row.0 == "BLINK + flair" && name == "BLINK")
            };
            for dataset in [Dataset::AidaYago2, Dataset::Wned, Dataset::Cweb] {
                let downstream = of(Table::Downstream).and_then(|row| score(row, dataset));
                assert_eq!(of(Table::Kilt).and_then(|row| score(row, dataset)), downstream, "{name}");
                if name != "BART + DPR" {
                    assert_eq!(
                        of(Table::Retrieval).and_then(|row| score(row, dataset)),
                        downstream,
                        "{name}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_kilt_score_is_at_most_the_answer_score() {
        for row in rows(Table::Kilt) {
            let answers = rows(Table::Downstream).iter().find(|known| known.0 == row.0).unwrap();
            for dataset in Dataset::ALL {
                let (kilt, answer) = (score(row, dataset), score(answers, dataset));
                assert_eq!(kilt.is_some(), answer.is_some());
                assert!(kilt <= answer, "{} {dataset:?}", row.0);
            }
        }
    }
}
