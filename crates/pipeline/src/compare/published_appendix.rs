//! The published rows of tables 7 to 17 of the KILT paper (Petroni et al., appendix): all scores of each dataset, on dev
//! and test data.

use sporran_kilt::{
    Dataset, Split,
    Split::{Dev, Test},
};

/// The split, the system, and its scores in percent in the order of the table's columns.
pub(super) type Rows = &'static [(Split, &'static str, &'static [f64])];

/// Table 7.
const FEVER: Rows = &[
    (Test, "BART", &[0.0, 0.0, 78.93, 0.0]),
    (Test, "T5", &[0.0, 0.0, 76.3, 0.0]),
    (Test, "NSMN", &[49.24, 70.16, 66.1, 41.88]),
    (Test, "BART + DPR", &[55.33, 74.29, 86.74, 47.68]),
    (Test, "RAG", &[61.94, 75.55, 86.31, 53.45]),
    (Test, "BERT + DPR", &[72.93, 73.52, 69.68, 58.58]),
    (Dev, "BART", &[0.0, 0.0, 80.67, 0.0]),
    (Dev, "BART + DPR", &[55.46, 73.84, 88.11, 48.25]),
    (Dev, "RAG", &[63.5, 76.1, 87.7, 55.47]),
];

/// Table 8.
const AIDA: Rows = &[
    (Test, "RAG", &[72.62, 72.62, 72.62, 72.62]),
    (Test, "T5", &[74.05, 74.05, 74.05, 74.05]),
    (Test, "BART + DPR", &[75.49, 75.49, 75.49, 75.49]),
    (Test, "BART", &[77.55, 77.55, 77.55, 77.55]),
    (Test, "BLINK", &[81.54, 94.73, 81.54, 81.54]),
    (Dev, "RAG", &[77.4, 77.47, 77.4, 77.4]),
    (Dev, "T5", &[81.84, 81.84, 81.84, 81.84]),
    (Dev, "BART", &[86.62, 86.62, 86.62, 86.62]),
];

/// Table 9.
const WNED: Rows = &[
    (Test, "BART + DPR", &[45.2, 45.2, 45.2, 45.2]),
    (Test, "BART", &[45.91, 45.91, 45.91, 45.91]),
    (Test, "T5", &[47.13, 47.13, 47.13, 47.13]),
    (Test, "RAG", &[48.07, 48.07, 48.07, 48.07]),
    (Test, "BLINK", &[80.24, 91.47, 80.24, 80.24]),
    (Dev, "BART + DPR", &[44.96, 44.96, 44.96, 44.96]),
    (Dev, "T5", &[47.35, 47.35, 47.35, 47.35]),
    (Dev, "BART", &[47.91, 47.91, 47.91, 47.91]),
    (Dev, "RAG", &[49.0, 49.0, 49.0, 49.0]),
];

/// Table 10.
const CWEB: Rows = &[
    (Test, "BART + DPR", &[46.87, 46.87, 46.87, 46.87]),
    (Test, "RAG", &[47.61, 47.61, 47.61, 47.61]),
    (Test, "BART", &[49.16, 49.16, 49.16, 49.16]),
    (Test, "T5", &[49.29, 49.29, 49.29, 49.29]),
    (Test, "BLINK", &[68.77, 81.78, 68.77, 68.77]),
    (Dev, "BART + DPR", &[45.7, 45.7, 45.7, 45.7]),
    (Dev, "T5", &[46.58, 46.58, 46.58, 46.58]),
    (Dev, "RAG", &[46.7, 46.7, 46.7, 46.7]),
    (Dev, "BART", &[48.01, 48.01, 48.01, 48.01]),
];

/// Table 11.
const TREX: Rows = &[
    (Test, "BART", &[0.0, 0.0, 45.06, 49.24, 0.0, 0.0]),
    (Test, "T5", &[0.0, 0.0, 43.56, 50.61, 0.0, 0.0]),
    (Test, "BART + DPR", &[13.26, 17.04, 59.16, 62.76, 11.12, 11.41]),
    (Test, "RAG", &[28.68, 33.04, 59.2, 62.96, 23.12, 23.94]),
    (Dev, "BART", &[0.0, 0.0, 43.84, 48.25, 0.0, 0.0]),
    (Dev, "T5", &[0.0, 0.0, 47.24, 51.73, 0.0, 0.0]),
    (Dev, "BART + DPR", &[13.62, 16.93, 56.7, 60.19, 11.56, 11.87]),
    (Dev, "RAG", &[29.26, 33.69, 61.48, 65.03, 25.4, 26.22]),
];

/// Table 12.
const ZERO_SHOT: Rows = &[
    (Test, "BART", &[0.0, 0.0, 9.14, 12.21, 0.0, 0.0]),
    (Test, "T5", &[0.0, 0.0, 9.02, 13.52, 0.0, 0.0]),
    (Test, "BERT + DPR", &[40.11, 40.11, 6.93, 37.28, 4.47, 27.09]),
    (Test, "BART + DPR", &[28.9, 39.21, 30.43, 34.47, 18.91, 20.32]),
    (Test, "RAG", &[53.73, 59.52, 44.74, 49.95, 36.83, 39.91]),
    (Dev, "BART", &[0.0, 0.0, 3.03, 12.61, 0.0, 0.0]),
    (Dev, "T5", &[0.0, 0.0, 1.58, 10.8, 0.0, 0.0]),
    (Dev, "BART + DPR", &[45.6, 58.49, 34.96, 44.79, 29.08, 32.85]),
    (Dev, "RAG", &[65.36, 73.07, 47.42, 57.98, 42.64, 48.35]),
];

/// Table 13.
const NQ: Rows = &[
    (Test, "BART", &[0.0, 0.0, 21.75, 28.69, 0.0, 0.0]),
    (Test, "T5", &[0.0, 0.0, 19.6, 27.73, 0.0, 0.0]),
    (Test, "BART + DPR", &[54.29, 65.52, 41.27, 49.54, 30.06, 34.72]),
    (Test, "BERT + DPR", &[60.66, 46.79, 38.64, 47.09, 31.99, 37.58]),
    (Test, "RAG", &[59.49, 67.06, 44.39, 52.35, 32.69, 37.91]),
    (Dev, "BART", &[0.0, 0.0, 26.15, 32.06, 0.0, 0.0]),
    (Dev, "T5", &[0.0, 0.0, 25.2, 31.88, 0.0, 0.0]),
    (Dev, "BART + DPR", &[54.25, 64.99, 45.05, 52.98, 31.62, 35.84]),
    (Dev, "BERT + DPR", &[60.03, 45.06, 42.58, 50.43, 35.32, 39.84]),
    (Dev, "RAG", &[60.31, 65.47, 48.78, 56.1, 36.31, 40.64]),
];

/// Table 14.
#[expect(clippy::approx_constant, reason = "3.14 is a score")]
const HOTPOTQA: Rows = &[
    (Test, "BART", &[0.0, 0.0, 15.37, 21.97, 0.0, 0.0]),
    (Test, "T5", &[0.0, 0.0, 12.64, 19.57, 0.0, 0.0]),
    (Test, "BERT + DPR", &[25.04, 10.4, 11.29, 17.35, 0.74, 1.26]),
    (Test, "BART + DPR", &[25.04, 10.4, 25.18, 34.07, 1.96, 2.53]),
    (Test, "RAG", &[30.59, 12.59, 26.97, 36.03, 3.21, 4.1]),
    (Dev, "BART", &[0.0, 0.0, 16.86, 23.81, 0.0, 0.0]),
    (Dev, "T5", &[0.0, 0.0, 12.66, 19.74, 0.0, 0.0]),
    (Dev, "BERT + DPR", &[24.62, 10.7, 10.82, 16.96, 0.96, 1.34]),
    (Dev, "BART + DPR", &[24.62, 10.7, 25.75, 35.2, 1.96, 2.46]),
    (Dev, "RAG", &[30.76, 12.29, 27.68, 37.37, 3.14, 3.87]),
];

/// Table 15.
const TRIVIAQA: Rows = &[
    (Test, "BART", &[0.0, 0.0, 32.39, 39.85, 0.0, 0.0]),
    (Test, "T5", &[0.0, 0.0, 18.11, 27.83, 0.0, 0.0]),
    (Test, "BART + DPR", &[44.49, 56.99, 58.55, 67.79, 31.4, 35.34]),
    (Test, "BERT + DPR", &[43.4, 31.45, 70.38, 74.41, 34.48, 36.28]),
    (Test, "RAG", &[48.68, 57.13, 71.27, 75.88, 38.13, 40.15]),
    (Dev, "BART", &[0.0, 0.0, 32.54, 39.58, 0.0, 0.0]),
    (Dev, "T5", &[0.0, 0.0, 25.79, 33.72, 0.0, 0.0]),
    (Dev, "BERT + DPR", &[40.87, 29.96, 70.24, 74.21, 32.9, 34.48]),
    (Dev, "BART + DPR", &[45.36, 56.72, 59.28, 68.31, 32.56, 36.36]),
    (Dev, "RAG", &[49.26, 56.93, 61.73, 67.12, 36.13, 38.71]),
];

/// Table 16.
const ELI5: Rows = &[
    (Test, "T5", &[0.0, 0.0, 19.08, 16.1, 0.0, 0.0]),
    (Test, "BART", &[0.0, 0.0, 20.55, 19.23, 0.0, 0.0]),
    (Test, "RAG", &[11.0, 22.92, 14.05, 14.51, 1.69, 1.79]),
    (Test, "BART + DPR", &[10.67, 26.92, 17.41, 17.88, 1.9, 2.01]),
    (Dev, "T5", &[0.0, 0.0, 21.02, 18.36, 0.0, 0.0]),
    (Dev, "BART", &[0.0, 0.0, 22.69, 22.19, 0.0, 0.0]),
    (Dev, "RAG", &[16.39, 27.27, 16.11, 17.24, 2.65, 2.88]),
    (Dev, "BART + DPR", &[16.32, 21.11, 18.53, 18.75, 2.87, 2.89]),
];

/// Table 17.
const WOW: Rows = &[
    (Test, "BART", &[0.0, 0.0, 11.84, 12.96, 0.0, 0.0]),
    (Test, "T5", &[0.0, 0.0, 12.58, 13.49, 0.0, 0.0]),
    (Test, "Trans MemNet", &[18.38, 18.38, 9.92, 11.5, 1.83, 2.23]),
    (Test, "BART + DPR", &[25.48, 55.1, 13.56, 15.55, 3.88, 4.52]),
    (Test, "RAG", &[57.78, 74.63, 11.83, 13.22, 8.04, 9.1]),
    (Dev, "BART", &[0.0, 0.0, 12.05, 13.35, 0.0, 0.0]),
    (Dev, "T5", &[0.0, 0.0, 12.8, 13.28, 0.0, 0.0]),
    (Dev, "BART + DPR", &[0.0, 0.0, 13.23, 15.03, 0.0, 0.0]),
    (Dev, "RAG", &[46.73, 66.61, 12.03, 13.42, 7.01, 7.69]),
];
/// The published rows of a dataset's table.
pub(super) fn rows(dataset: Dataset) -> Rows {
    match dataset {
        Dataset::Fever => FEVER,
        Dataset::AidaYago2 => AIDA,
        Dataset::Wned => WNED,
        Dataset::Cweb => CWEB,
        Dataset::Trex => TREX,
        Dataset::StructuredZeroshot => ZERO_SHOT,
        Dataset::Nq => NQ,
        Dataset::HotpotQa => HOTPOTQA,
        Dataset::TriviaQa => TRIVIAQA,
        Dataset::Eli5 => ELI5,
        Dataset::Wow => WOW,
    }
}

#[cfg(test)]
mod tests {
    use sporran_kilt::Metric;

    use super::{
        super::{Table, appendix::metrics, published},
        *,
    };

    #[test]
    fn every_row_has_a_score_for_every_column() {
        for dataset in Dataset::ALL {
            let count = metrics(dataset).len();
            for (_, name, scores) in rows(dataset) {
                assert_eq!(scores.len(), 2 + 2 * count, "{dataset} {name}");
                // A KILT score is at most the score of the answers.
                for at in 0..count {
                    assert!(scores[2 + count + at] <= scores[2 + at], "{dataset} {name}");
                }
            }
            let systems = |split| rows(dataset).iter().filter(move |row| row.0 == split).map(|row| row.1);
            assert!(systems(Test).count() >= 4 && systems(Dev).count() >= 3);
            assert_eq!(systems(Test).collect::<std::collections::BTreeSet<_>>().len(), systems(Test).count());
        }
    }

    #[test]
    fn test_rows_have_the_scores_of_the_headline_tables() {
        let mut compared = 0;
        for dataset in Dataset::ALL {
            let metrics = metrics(dataset);
            let headline = metrics.iter().position(|metric| *metric == dataset.metric()).unwrap();
            for (_, name, scores) in rows(dataset).iter().filter(|row| row.0 == Test) {
                let named = |row: &&published::Row| {
                    row.0.trim_end_matches(" (large)").trim_end_matches(" (base)") == *name
                };
                let of = |table| {
                    published::rows(table).iter().find(named).and_then(|row| published::score(row, dataset))
                };
                assert_eq!(of(Table::Downstream), Some(scores[2 + headline]), "{dataset} {name}");
                // Closed-book systems are not in the table of KILT scores, except for entity linking, where they have pages.
                if let Some(kilt) = of(Table::Kilt) {
                    assert_eq!(kilt, scores[2 + metrics.len() + headline], "{dataset} {name}");
                    compared += 1;
                }
            }
        }
        assert_eq!(compared, 32);
    }

    #[test]
    fn rows_are_those_of_the_paper() {
        let of = |dataset, split, system| {
            rows(dataset).iter().find(|row| row.0 == split && row.1 == system).map(|row| row.2)
        };
        for (dataset, split, system, expected) in [
            (Dataset::Fever, Dev, "RAG", &[63.5, 76.1, 87.7, 55.47][..]),
            (Dataset::AidaYago2, Test, "BLINK", &[81.54, 94.73, 81.54, 81.54]),
            (Dataset::StructuredZeroshot, Test, "BERT + DPR", &[40.11, 40.11, 6.93, 37.28, 4.47, 27.09]),
            (Dataset::Nq, Dev, "BERT + DPR", &[60.03, 45.06, 42.58, 50.43, 35.32, 39.84]),
            (Dataset::TriviaQa, Dev, "BART + DPR", &[45.36, 56.72, 59.28, 68.31, 32.56, 36.36]),
            (Dataset::Eli5, Test, "BART + DPR", &[10.67, 26.92, 17.41, 17.88, 1.9, 2.01]),
            (Dataset::Wow, Test, "Trans MemNet", &[18.38, 18.38, 9.92, 11.5, 1.83, 2.23]),
        ] {
            assert_eq!(of(dataset, split, system), Some(expected), "{dataset} {system}");
        }
        assert_eq!(of(Dataset::AidaYago2, Dev, "BLINK"), None);
        assert_eq!(metrics(Dataset::Wow), [Metric::RougeL, Metric::F1]);
    }
}
