//! Statistics of WOW++'s files (Eric et al., 2021, sections 3.2 and 3.3).

use std::{
    fmt,
    path::{Path, PathBuf},
};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

pub use super::{
    relevance::{GoldCounts, KindCount, RelevanceReport, TopicCount, UtteranceKind, read_kinds},
    votes::{GoldVotes, SampledKappas, Samples, VotesReport},
};
use crate::{
    Error, Result,
    scores::ranking::RELEVANT,
    wowpp::{self, Dialogues},
};

/// The statistics of one file, or of several together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartReport {
    /// The file, such as a split. `None` for all files together.
    pub file: Option<PathBuf>,
    /// The relevant sentences.
    pub relevance: RelevanceReport,
    /// The votes of annotators. `None` if no sentence has `votes`.
    pub votes: Option<VotesReport>,
}

impl PartReport {
    fn of(
        file: Option<&Path>,
        dialogues: &Dialogues,
        kinds: &FxHashMap<String, UtteranceKind>,
    ) -> Result<Self> {
        let named = |error| match (error, file) {
            (Error::Argument(message), Some(file)) => {
                Error::Argument(format!("{}: {message}", file.display()))
            }
            (error, _) => error,
        };
        Ok(Self {
            file: file.map(Path::to_owned),
            relevance: RelevanceReport::of(dialogues, RELEVANT, kinds).map_err(named)?,
            votes: VotesReport::of(dialogues, Samples::default()).map_err(named)?,
        })
    }
}

/// The statistics of each file, and of all files together if there are several.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The parts.
    pub parts: Vec<PartReport>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, PartReport { file, relevance, votes }) in self.parts.iter().enumerate() {
            let blank = if at == 0 { "" } else { "\n\n" };
            let name = file.as_ref().map_or_else(|| "all files".into(), |file| file.display().to_string());
            write!(f, "{blank}{name}\n{relevance}")?;
            match votes {
                Some(votes) => write!(f, "\n{votes}")?,
                None => write!(f, "\nno sentence has `votes`, so kappas are left out")?,
            }
        }
        Ok(())
    }
}

/// Describes files in WOW++'s layout, one for each split. Files whose name ends with `.csv` have the kinds of last utterances, as
/// [`read_kinds`] reads them.
///
/// # Errors
/// Read errors; [`Error::Argument`] for an unknown kind and for votes that cannot be compared, and without a file of dialogues.
pub fn of_files(files: &[PathBuf]) -> Result<Report> {
    let is_table = |path: &&PathBuf| path.extension().is_some_and(|ending| ending == "csv");
    let (tables, files): (Vec<&PathBuf>, Vec<&PathBuf>) = files.iter().partition(is_table);
    let mut kinds = FxHashMap::default();
    for table in &tables {
        kinds.extend(read_kinds(table)?);
    }
    let mut all = Dialogues::default();
    let mut parts = Vec::new();
    for file in &files {
        let dialogues = wowpp::load(file)?;
        parts.push(PartReport::of(Some(file), &dialogues, &kinds)?);
        all.0.extend(dialogues.0);
    }
    if parts.is_empty() {
        return Err(Error::Argument("files: expected one with dialogues, found none".into()));
    }
    let mut unknown: FxHashSet<&str> = kinds.keys().map(String::as_str).collect();
    all.0.iter().for_each(|(id, _)| _ = unknown.remove(id.as_str()));
    if let Some(id) = unknown.into_iter().min() {
        let tables: Vec<String> = tables.iter().map(|table| table.display().to_string()).collect();
        let message =
            format!("{}: field `id`: expected ids of the files' dialogues, found `{id}`", tables.join(", "));
        return Err(Error::Argument(message));
    }
    if parts.len() > 1 {
        parts.push(PartReport::of(None, &all, &kinds)?);
    }
    Ok(Report { parts })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_file_is_a_part_and_all_files_are_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let sentence =
            |confidence: f64| json!({ "label": "T <knowledge_separator> S.", "confidence": confidence });
        let dialogue = |confidences: &[f64]| {
            let sentences: Vec<_> = confidences.iter().map(|confidence| sentence(*confidence)).collect();
            json!({ "turns": [], "topic": "", "annotated_sentences": sentences })
        };
        std::fs::write(path("seen.json"), json!({ "a": dialogue(&[0.9, 0.6]) }).to_string()).unwrap();
        let two = json!({ "b": dialogue(&[0.9, 0.1]), "c": dialogue(&[0.5]) });
        std::fs::write(path("unseen.json"), two.to_string()).unwrap();
        std::fs::write(path("kinds.csv"), "id,kind\na,general\nb,factual\n").unwrap();
        let report = of_files(&[path("seen.json"), path("unseen.json"), path("kinds.csv")]).unwrap();
        let counts: Vec<[usize; 4]> = report
            .parts
            .iter()
            .map(|part| &part.relevance)
            .map(|it| [it.dialogues, it.with_none, it.with_one, it.with_more])
            .collect();
        assert_eq!(counts, [[1, 0, 0, 1], [2, 1, 1, 0], [3, 1, 1, 1]]);
        assert_eq!(report.parts[2].relevance.kinds.as_ref().unwrap().len(), 2);
        let text = report.to_string();
        assert!(
            text.contains("all files\n3 dialogues, 5 sentences") && text.contains("kappas are left out"),
            "{text}"
        );
        assert_eq!(of_files(&[path("seen.json")]).unwrap().parts.len(), 1);
        std::fs::write(path("more.csv"), "id,kind\nzz,general\n").unwrap();
        let message = of_files(&[path("seen.json"), path("more.csv")]).unwrap_err().to_string();
        assert!(
            message.ends_with("more.csv: field `id`: expected ids of the files' dialogues, found `zz`"),
            "{message}"
        );
        assert!(of_files(&[path("kinds.csv")]).unwrap_err().to_string().contains("found none"));
    }

    #[test]
    fn wrong_votes_name_their_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pilot.json");
        let sentence = json!({ "label": "A", "confidence": 0.5, "votes": ["maybe", "no"] });
        let all = json!({ "d": { "turns": [], "topic": "", "annotated_sentences": [sentence] } });
        std::fs::write(&path, all.to_string()).unwrap();
        let message = of_files(&[path]).unwrap_err().to_string();
        assert!(message.contains("pilot.json: dialogue `d`"), "{message}");
    }
}
