//! Summaries of mappings, as `sporran convert map --json` prints them (Petroni et al. 2021, figure 5).

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{Error, Result, formats::elements, mapping::MapSummary};

/// A summary with its file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileSummary {
    /// The file.
    pub file: PathBuf,
    /// The counts of the mapping.
    #[serde(flatten)]
    pub summary: MapSummary,
}

/// The summaries of mappings, one for each dataset and split.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MappingStatistics {
    /// The summaries in the order of the call.
    pub mappings: Vec<FileSummary>,
    /// The mean of the discarded shares; none if no mapping has one.
    pub mean_discarded: Option<f64>,
}

/// Reads the summaries of files.
///
/// # Errors
/// Those of the readers; [`Error::Record`] for a line that is no summary; [`Error::Empty`] for a file without one.
pub fn of_mappings(paths: &[impl AsRef<Path>]) -> Result<MappingStatistics> {
    let mut mappings = Vec::new();
    for path in paths.iter().map(AsRef::as_ref) {
        let before = mappings.len();
        for summary in elements::open(path)?.records::<MapSummary>() {
            let (_, summary) = summary?;
            mappings.push(FileSummary { file: path.to_owned(), summary });
        }
        if mappings.len() == before {
            return Err(Error::Empty { path: path.to_owned(), what: "summary" });
        }
    }
    let shares: Vec<f64> = mappings.iter().filter_map(|it| it.summary.discarded).collect();
    let mean_discarded = (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64);
    Ok(MappingStatistics { mappings, mean_discarded })
}

impl fmt::Display for MappingStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for FileSummary { file, summary } in &self.mappings {
            writeln!(f, "{}:\n{summary}", file.display())?;
        }
        match self.mean_discarded {
            Some(share) => writeln!(f, "{:.2}% discarded on average", 100.0 * share),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{jsonl, mapping::BleuHistogram};

    #[test]
    fn the_mean_is_that_of_the_discarded_shares() {
        let folder = tempfile::tempdir().unwrap();
        let summary = |discarded| MapSummary {
            read: 4,
            histogram: BleuHistogram([1, 0, 0, 0, 0, 0, 0, 0, 0, 3]),
            mean_bleu: Some(0.75),
            discarded,
            ..MapSummary::default()
        };
        let paths: Vec<PathBuf> = [Some(0.25), None, Some(0.5)]
            .into_iter()
            .enumerate()
            .map(|(number, share)| {
                let path = folder.path().join(format!("s{number}.json"));
                jsonl::write(&path, &serde_json::to_vec(&summary(share)).unwrap()).unwrap();
                path
            })
            .collect();
        let found = of_mappings(&paths).unwrap();
        assert_eq!(found.mean_discarded, Some(0.375));
        assert_eq!(found.mappings[2].summary, summary(Some(0.5)));
        let text = found.to_string();
        assert!(text.contains("by tenths 1 0 0 0 0 0 0 0 0 3\n25.00% of the records"), "{text}");
        assert!(text.ends_with("\n37.50% discarded on average\n"), "{text}");
        assert_eq!(of_mappings(&paths[1..2]).unwrap().mean_discarded, None);
    }

    #[test]
    fn a_file_without_a_summary_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.json");
        for (text, expected) in
            [("{\"read\":1}", "s.json:1: missing field `written`"), ("", "expected at least one summary")]
        {
            jsonl::write(&path, text.as_bytes()).unwrap();
            let message = of_mappings(&[&path]).unwrap_err().to_string();
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
    }
}
