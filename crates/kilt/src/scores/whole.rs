//! Answers and evidence of a prediction file in one pass: [`kilt::evaluate`] and [`retrieval::evaluate`] with
//! one reading of each file.

use std::path::Path;

use super::{
    aligned::{self, Aligned, Columns, Fault, Scoring},
    answer::Answers,
    kilt::{self, AnswerScoring},
    line::Line,
    provenance::Evidence,
    retrieval::{self, EvidenceScoring, GoldEvidence},
};
use crate::Result;

/// The result of [`evaluate`].
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The result of [`kilt::evaluate`].
    pub answers: kilt::Evaluation,
    /// The result of [`retrieval::evaluate`].
    pub evidence: retrieval::Evaluation,
}

/// Scores answers and evidence.
///
/// # Errors
/// Those of [`kilt::evaluate`] and of [`retrieval::evaluate`].
pub fn evaluate(
    gold: impl AsRef<Path>,
    guess: impl AsRef<Path>,
    options: &retrieval::Options,
) -> Result<Evaluation> {
    let mut columns = Columns::new(true);
    let answers = AnswerScoring::new(&mut columns);
    let evidence = EvidenceScoring::new(options, &mut columns)?;
    let scoring = Both { answers, evidence };
    let Aligned { records, unknown } = aligned::score(gold.as_ref(), guess.as_ref(), &scoring, &columns)?;
    let (names, split) = (scoring.names(), scoring.answers.names().len());
    let answers = records.select(0..split, names[..split].to_vec());
    let evidence = records.select(split..names.len(), names[split..].to_vec());
    Ok(Evaluation {
        answers: kilt::evaluation(&answers, unknown.clone()),
        evidence: scoring.evidence.evaluation(options, &evidence, unknown)?,
    })
}

struct Both {
    answers: AnswerScoring,
    evidence: EvidenceScoring,
}

impl Scoring for Both {
    type Gold = ((Answers, Evidence), GoldEvidence);
    type Buffers = retrieval::Buffers;

    fn names(&self) -> Vec<String> {
        self.answers.names().into_iter().chain(self.evidence.names()).collect()
    }

    fn gold(&self, line: &Line<'_>, buffers: &mut Self::Buffers) -> Result<Self::Gold, Fault> {
        let answers = self.answers.gold(line, &mut buffers.answers)?;
        Ok((answers, self.evidence.gold_evidence(line, &mut buffers.haystack)?))
    }

    fn score(
        &self,
        (answers, evidence): &Self::Gold,
        guess: &Line<'_>,
        buffers: &mut Self::Buffers,
        row: &mut [f64],
    ) -> Result<(), Fault> {
        let (first, second) = row.split_at_mut(kilt::FIGURES);
        self.answers.score(answers, guess, &mut buffers.answers, first)?;
        self.evidence.figures(&answers.0, evidence, guess, &mut buffers.haystack, second)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            kilt::tests::{GOLD, files},
            provenance::RankKeys,
        },
        *,
    };

    #[test]
    fn combined_scores_equal_separate_scores() {
        let guess = r#"{"id": 1, "output": [{"answer": "Ann", "provenance": [{"wikipedia_id": 5}, {"wikipedia_id": 10, "section": "s", "text": "ann of rome"}]}]}
{"id": "b", "output": [{"answer": "x", "provenance": []}]}
{"id": "other", "output": [{"answer": "x", "provenance": []}]}
"#;
        let (_folder, gold, guess) = files(GOLD, guess);
        let options = retrieval::Options {
            ks: vec![5, 1],
            rank_keys: vec!["title,wikipedia_id".parse().unwrap(), RankKeys::page()],
        };
        let both = evaluate(&gold, &guess, &options).unwrap();
        let answers = kilt::evaluate(&gold, &guess).unwrap();
        assert_eq!((both.answers.report, both.answers.records), (answers.report, answers.records));
        assert_eq!(both.answers.depth, answers.depth);
        let evidence = retrieval::evaluate(&gold, &guess, &options).unwrap();
        assert_eq!(both.evidence.reports, evidence.reports);
        assert_eq!(both.evidence.depths, evidence.depths);
        assert_eq!((both.evidence.unknown, both.answers.unknown), (evidence.unknown, answers.unknown));
    }

    #[test]
    fn what_either_refuses_is_refused() {
        let no_answer = r#"{"id": 1, "output": [{"provenance": []}]}"#;
        let no_evidence = r#"{"id": 1, "output": [{"answer": "Ann"}]}"#;
        let cases = [(no_answer, "expected an answer"), (no_evidence, "exactly one output with provenance")];
        for (guess, expected) in cases {
            let (_folder, gold, guess) = files(GOLD, guess);
            let message = evaluate(gold, guess, &retrieval::Options::default()).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
