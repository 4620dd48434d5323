//! A reader that answers questions of relations, or gives no answer.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sporran_generator::{ExtractiveOptions, ReadRow, Reader, ReaderInput, load_reader};
use sporran_kilt::{jsonl, scores::answer::normalise, zsre::SlotQuestion};
use sporran_transformers::{DeviceName, EncoderRow, Precision};

use crate::{Error, Result};

/// The file of the settings in a model's folder.
pub(super) const SLOT_FILLING: &str = "slot-filling.json";

/// The settings of a model, in addition to those of the reader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SlotModel {
    /// The version of the format: 1.
    pub(super) version: u32,
    /// The training and validation relations.
    pub(super) seen: Vec<String>,
    /// The smallest margin of an answer over no answer.
    pub(super) threshold: f32,
    /// The largest number of tokens of relation, question and sentence.
    pub(super) max_tokens: usize,
    /// The largest number of tokens of an answer.
    pub(super) answer_tokens: usize,
}

impl SlotModel {
    /// The current version of the format.
    pub(super) const VERSION: u32 = 1;

    pub(super) fn load(folder: &Path) -> Result<Self> {
        let path = folder.join(SLOT_FILLING);
        let model: Self = jsonl::read_json(&path)?;
        if model.version != Self::VERSION {
            let message = format!("expected {}, found {}", Self::VERSION, model.version);
            return Err(sporran_kilt::Error::record(&path, 1, "version", message).into());
        }
        Ok(model)
    }

    pub(super) fn json(&self) -> Result<Vec<u8>> {
        let failed = |error: serde_json::Error| Error::io(Path::new(SLOT_FILLING), "write")(error.into());
        Ok([serde_json::to_vec_pretty(self).map_err(failed)?, b"\n".to_vec()].concat())
    }
}

/// A possible answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    /// The byte range in the sentence.
    pub(super) start: usize,
    pub(super) end: usize,
    /// The difference between its score and that of no answer.
    pub(super) margin: f32,
}

/// The input row of a question. The relation replaces the passage's title.
pub(super) fn row(input: &ReaderInput, question: &SlotQuestion) -> Result<ReadRow> {
    Ok(input.row(&question.question(), &question.relation, &question.sentence)?)
}

/// The best span of each question's sentence; `None` for a sentence without words.
pub(super) fn candidates(
    reader: &dyn Reader,
    input: &ReaderInput,
    questions: &[&SlotQuestion],
    answer_tokens: usize,
) -> Result<Vec<Option<Candidate>>> {
    let rows: Vec<ReadRow> = questions.iter().map(|question| row(input, question)).collect::<Result<_>>()?;
    let tokens: Vec<EncoderRow> = rows.iter().map(|row| row.row.clone()).collect();
    let scores = reader.scores(&tokens)?;
    let each = rows.iter().zip(&scores);
    let best = each.map(|(row, scores)| {
        let (span, margin) = row.margin(scores, answer_tokens)?;
        Some(Candidate { start: span.start, end: span.end, margin })
    });
    Ok(best.collect())
}

/// Whether an answer has the words of a gold answer. Ignores order, case, articles and punctuation (Levy et al., 2017).
pub(super) fn is_right(question: &SlotQuestion, answer: &str) -> bool {
    let words = |text: &str| {
        let text = normalise(text);
        let mut words: Vec<String> = text.split_whitespace().map(Into::into).collect();
        words.sort_unstable();
        words
    };
    let own = words(answer);
    question.answers.iter().any(|gold| words(gold) == own)
}

/// A reader and its settings from a folder.
pub(super) struct SlotReader {
    pub(super) reader: Box<dyn Reader>,
    pub(super) input: ReaderInput,
    pub(super) model: SlotModel,
}

impl SlotReader {
    pub(super) fn load(folder: &Path, device: DeviceName, precision: Precision) -> Result<Self> {
        let model = SlotModel::load(folder)?;
        let options = ExtractiveOptions {
            model: folder.into(),
            precision,
            device,
            passages: 1,
            max_tokens: model.max_tokens,
            answer_tokens: model.answer_tokens,
            batch_tokens: 4096,
        };
        let (reader, input) = load_reader(&options)?;
        Ok(Self { reader, input, model })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_words_of_a_gold_one_in_any_order() {
        let question = SlotQuestion {
            relation: "author".into(),
            template: "Who wrote XXX?".into(),
            entity: "Emma".into(),
            sentence: "Emma is by Austen, Jane.".into(),
            answers: vec!["Jane Austen".into(), "the Lady".into()],
        };
        assert!(is_right(&question, "Austen, Jane"));
        assert!(is_right(&question, "lady"));
        assert!(!is_right(&question, "Jane") && !is_right(&question, ""));
    }
}
