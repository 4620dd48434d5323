//! Generated answers, and errors of generators.

use rustc_hash::FxHashSet;
use sporran_kilt::kb::{EntityId, KnowledgeBase};

/// Splits generated texts into answers.
///
/// Answers are separated by commas, as in the KoRC paper. Names of the knowledge base that have commas, such as
/// `Washington, D.C.`, are one answer.
pub(super) struct AnswerSplitter {
    /// The names with commas.
    names: FxHashSet<String>,
    /// The largest number of commas of a name.
    commas: usize,
}

impl AnswerSplitter {
    /// A splitter with the names of a knowledge base.
    pub(super) fn new(kb: &KnowledgeBase) -> Self {
        let names: FxHashSet<String> = (0..kb.entity_count() as u32)
            .flat_map(|entity| kb.labels(EntityId(entity)))
            .map(|name| name.trim())
            .filter(|name| name.contains(','))
            .map(str::to_owned)
            .collect();
        let commas = names.iter().map(|name| name.matches(',').count()).max().unwrap_or_default();
        Self { names, commas }
    }

    /// The distinct answers of a text, in order. Of several names that begin at a place, the longest is the answer.
    pub(super) fn answers(&self, text: &str, max_answers: usize) -> Vec<String> {
        let mut seen = FxHashSet::default();
        let mut found = Vec::new();
        let mut rest = Some(text);
        while let Some(text) = rest.filter(|_| found.len() < max_answers) {
            let ends = text.match_indices(',').map(|(at, _)| at).chain([text.len()]);
            let ends: Vec<usize> = ends.take(self.commas + 1).collect();
            let named = ends.iter().rev().find(|&&end| self.names.contains(text[..end].trim()));
            let end = named.copied().unwrap_or(ends[0]);
            let answer = text[..end].trim();
            if !answer.is_empty() && seen.insert(answer) {
                found.push(answer.to_owned());
            }
            rest = text.get(end + 1..);
        }
        found
    }
}

/// An error of this crate as one of a reasoner.
pub(super) fn outside(error: crate::Error) -> sporran_reasoner::Error {
    sporran_reasoner::Error::Other(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_separated_by_commas() {
        let plain = AnswerSplitter::new(&KnowledgeBase::default());
        assert_eq!(plain.answers(" rock music, jazz,,jazz ,pop", 2), ["rock music", "jazz"]);
        assert_eq!(plain.answers("jazz, pop", usize::MAX), ["jazz", "pop"]);
        assert!(plain.answers(" , ", 3).is_empty() && plain.answers("", 3).is_empty());
        assert_eq!(plain.answers("Washington, D.C.", 9), ["Washington", "D.C."]);
    }

    #[test]
    fn a_name_with_commas_is_one_answer() {
        let mut kb = KnowledgeBase::default();
        for (id, name) in
            [("Q1", "Washington, D.C."), ("Q2", "Washington"), ("Q3", "Paris"), ("Q4", "Paris, Texas, US")]
        {
            let id = kb.add_entity(id).unwrap();
            kb.set_label(id, name);
        }
        let splitter = AnswerSplitter::new(&kb);
        let split = |text: &str| splitter.answers(text, 10);
        assert_eq!(split("Oslo, Washington, D.C., Washington"), ["Oslo", "Washington, D.C.", "Washington"]);
        assert_eq!(split("Paris, Texas, US"), ["Paris, Texas, US"]);
        assert_eq!(split("Paris, Texas, Washington, D.C."), ["Paris", "Texas", "Washington, D.C."]);
        assert_eq!(split("Washington, D.C.,"), ["Washington, D.C."]);
    }

    #[test]
    fn an_error_of_this_crate_passes_through_a_reasoner() {
        let error = crate::Error::from(outside(crate::Error::Config(Vec::new())));
        assert!(matches!(error, crate::Error::Config(_)), "{error}");
    }
}
