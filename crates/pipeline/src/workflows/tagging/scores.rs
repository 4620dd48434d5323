//! Scores of taggers.

use std::{collections::BTreeMap, fmt, path::Path};

use serde::Serialize;
use sporran_extractor::{Annotated, EntityType, tagger::Tagger};
use sporran_kilt::scores::Measure;

use crate::Result;

/// The comparison of predicted typed spans with gold spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Matched {
    /// The number of gold spans.
    pub gold: usize,
    /// The number of predicted spans.
    pub found: usize,
    /// The number of correct predictions.
    pub both: usize,
    /// The share of predictions that are correct.
    pub precision: Measure,
    /// The share of gold spans that are predicted.
    pub recall: Measure,
    /// The harmonic mean of the two.
    pub f1: Measure,
}

impl Matched {
    pub(super) fn add(&mut self, gold: usize, found: usize, both: usize) {
        self.gold += gold;
        self.found += found;
        self.both += both;
        self.precision = Measure::share(self.both, self.found);
        self.recall = Measure::share(self.both, self.gold);
        self.f1 = Measure::share(2 * self.both, self.gold + self.found);
    }
}

/// The recall of names and dates of facts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Recalled {
    /// The number of distinct gold spans.
    pub gold: usize,
    /// The share with the exact span.
    pub exact: Measure,
    /// The share with the exact span and the type of the fact's property.
    pub typed: Measure,
    /// The share that overlaps a prediction.
    pub overlap: Measure,
}

/// The scores of one file.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Tested {
    /// The file.
    pub file: String,
    /// Scores over all types, for completely annotated files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spans: Option<Matched>,
    /// Scores by type.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by_type: BTreeMap<String, Matched>,
    /// Recall, for files with the names of facts only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub facts: Option<Recalled>,
}

impl fmt::Display for Tested {
    /// Each line starts with a line break.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(spans) = &self.spans {
            let [precision, recall, f1] = [spans.precision, spans.recall, spans.f1].map(Measure::percent);
            write!(f, "\n{}: precision {precision:.1}, recall {recall:.1}, F1 {f1:.1}", self.file)?;
        }
        if let Some(facts) = &self.facts {
            let [exact, typed, overlap] = [facts.exact, facts.typed, facts.overlap].map(Measure::percent);
            write!(
                f,
                "\n{}: {} names and dates of facts; recall {exact:.1} by exact span, {typed:.1} with type, {overlap:.1} by overlap",
                self.file, facts.gold
            )?;
        }
        Ok(())
    }
}

/// Scores a tagger on a file in DocRED's layout.
pub(super) fn test_docred(tagger: &Tagger, path: &Path, records: &[Annotated]) -> Result<Tested> {
    let mut spans = Matched::default();
    let mut by_type: BTreeMap<String, Matched> = BTreeMap::new();
    let documents: Vec<_> = records.iter().map(|record| record.document.clone()).collect();
    for (record, tagged) in records.iter().zip(tagger.tag(&documents)?) {
        let is_found = |mention: &(std::ops::Range<usize>, EntityType)| {
            tagged.iter().any(|found| found.tokens == mention.0 && found.kind == mention.1)
        };
        spans.add(
            record.mentions.len(),
            tagged.len(),
            record.mentions.iter().filter(|m| is_found(m)).count(),
        );
        for (_, kind) in &record.mentions {
            by_type.entry(format!("{kind:?}").to_lowercase()).or_default();
        }
        for (name, matched) in &mut by_type {
            let is = |kind: EntityType| format!("{kind:?}").to_lowercase() == *name;
            let gold = record.mentions.iter().filter(|(_, kind)| is(*kind));
            let found = tagged.iter().filter(|found| is(found.kind)).count();
            matched.add(gold.clone().count(), found, gold.filter(|m| is_found(m)).count());
        }
    }
    Ok(Tested { file: name_of(path), spans: Some(spans), by_type, facts: None })
}

/// Scores a tagger on the names and dates of a KnowledgeNet file's facts.
pub(super) fn test_knowledgenet(tagger: &Tagger, path: &Path, records: &[Annotated]) -> Result<Tested> {
    let documents: Vec<_> = records.iter().map(|record| record.document.clone()).collect();
    let (mut gold, mut exact, mut typed, mut overlap) = (0usize, 0usize, 0usize, 0usize);
    for (record, tagged) in records.iter().zip(tagger.tag(&documents)?) {
        for (tokens, kind) in &record.mentions {
            gold += 1;
            let same = tagged.iter().find(|found| found.tokens == *tokens);
            exact += usize::from(same.is_some());
            typed += usize::from(same.is_some_and(|found| found.kind == *kind));
            let meets = tagged.iter().any(|f| f.tokens.start < tokens.end && tokens.start < f.tokens.end);
            overlap += usize::from(meets);
        }
    }
    let share = |count: usize| Measure::share(count, gold);
    let facts = Recalled { gold, exact: share(exact), typed: share(typed), overlap: share(overlap) };
    Ok(Tested { file: name_of(path), spans: None, by_type: BTreeMap::new(), facts: Some(facts) })
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_documents_add_up_to_precision_and_recall() {
        let mut matched = Matched::default();
        matched.add(4, 2, 1);
        matched.add(0, 2, 0);
        // 1 of 4 found, 1 of 4 marked: F1 = 2 / 8
        assert_eq!((matched.precision, matched.recall, matched.f1), (0.25.into(), 0.25.into(), 0.25.into()));
        let mut nothing = Matched::default();
        nothing.add(0, 0, 0);
        assert_eq!((nothing.precision, nothing.f1), Default::default());
    }
}
