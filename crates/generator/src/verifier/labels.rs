//! The interface of models that label pairs, and the meaning of their labels.

use sporran_kilt::Passage;
use sporran_transformers::{PairClassifier, Text};

use super::{Label, Unit, unit::titled};
use crate::{Error, Result};

/// A claim with the evidence for one prediction.
#[derive(Clone, Debug)]
pub struct Reading<'a> {
    /// The claim.
    pub claim: &'a str,
    /// The evidence, in the retriever's order.
    pub pieces: Vec<Piece<'a>>,
}

/// A piece of evidence that is read.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The passage that it belongs to.
    pub passage: &'a Passage,
    /// The piece.
    pub unit: &'a Unit,
    /// The probability that it is evidence.
    pub relevance: f32,
}

impl Reading<'_> {
    /// The evidence as one text; with `titles` each piece begins with its page's title.
    #[must_use]
    pub fn text(&self, titles: bool) -> String {
        let text =
            |piece: &Piece<'_>| titled(if titles { &piece.passage.title } else { "" }, &piece.unit.text);
        self.pieces.iter().map(text).collect::<Vec<_>>().join(" ")
    }
}

/// Labels a claim given its evidence.
pub trait Labeller: Send + Sync {
    /// The names of the labels.
    fn labels(&self) -> &[String];

    /// The logits of each pair of claim and evidence, in the labels' order. Models that read claims alone read an empty
    /// evidence as none.
    ///
    /// # Errors
    /// Where the tokenizer or the model fails.
    fn logits(&self, pairs: &[(&str, &str)]) -> Result<Vec<Vec<f32>>>;

    /// Whether the model can read a claim without evidence.
    fn reads_claims(&self) -> bool {
        false
    }

    /// The logits of each claim with all of its pieces, in the labels' order. Most models read the pieces as one text; with
    /// `titles` each piece follows its page's title.
    ///
    /// # Errors
    /// Where the tokenizer or the model fails.
    fn read(&self, readings: &[Reading<'_>], titles: bool) -> Result<Vec<Vec<f32>>> {
        let texts: Vec<String> = readings.iter().map(|reading| reading.text(titles)).collect();
        let pairs: Vec<(&str, &str)> =
            readings.iter().zip(&texts).map(|(reading, text)| (reading.claim, text.as_str())).collect();
        self.logits(&pairs)
    }
}

impl Labeller for PairClassifier {
    fn labels(&self) -> &[String] {
        Self::labels(self)
    }

    fn logits(&self, pairs: &[(&str, &str)]) -> Result<Vec<Vec<f32>>> {
        Ok(self.text_logits(&texts(pairs))?)
    }

    fn reads_claims(&self) -> bool {
        true
    }
}

/// The inputs of an encoder: pairs of claim and evidence, or claims alone where the evidence is empty.
pub(super) fn texts<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<Text<'a>> {
    let text = |&(claim, evidence): &(&'a str, &'a str)| {
        if evidence.is_empty() { Text::One(claim) } else { Text::Pair(claim, evidence) }
    };
    pairs.iter().map(text).collect()
}

/// Logits to probabilities.
pub(super) fn softmax(row: &mut [f32]) {
    let greatest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    row.iter_mut().for_each(|value| *value = (*value - greatest).exp());
    let sum: f32 = row.iter().sum();
    row.iter_mut().for_each(|value| *value /= sum);
}

/// The index of each of the three labels of fact checking in a model's labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelOrder([usize; 3]);

impl LabelOrder {
    /// Finds the labels by their names: FEVER's or those of natural language inference. Labels without a name are in
    /// FEVER's order.
    ///
    /// # Errors
    /// [`Error::Option`] for other labels.
    pub fn of(names: &[String]) -> Result<Self> {
        let meaning = |name: &String| match name.to_lowercase().replace(['_', '-'], " ").as_str() {
            "supports" | "supported" | "entailment" | "label 0" => Some(Label::Supports),
            "refutes" | "refuted" | "contradiction" | "label 1" => Some(Label::Refutes),
            "not enough info" | "nei" | "neutral" | "label 2" => Some(Label::NotEnoughInfo),
            _ => None,
        };
        let places = [Label::Supports, Label::Refutes, Label::NotEnoughInfo]
            .map(|label| names.iter().position(|name| meaning(name) == Some(label)));
        match places {
            [Some(supports), Some(refutes), Some(neither)] if names.len() == 3 => {
                Ok(Self([supports, refutes, neither]))
            }
            _ => Err(Error::Option {
                option: "model",
                expected: "a classifier with the labels SUPPORTS, REFUTES and NOT ENOUGH INFO",
                found: names.join(", "),
            }),
        }
    }

    /// The probabilities of supports, refutes and not enough info.
    #[must_use]
    pub fn sorted(&self, row: &[f32]) -> [f32; 3] {
        self.0.map(|at| row[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_without_evidence_is_a_single_text() {
        let found = texts(&[("a claim", "evidence"), ("alone", "")]);
        assert_eq!(found, [Text::Pair("a claim", "evidence"), Text::One("alone")]);
    }

    #[test]
    fn labels_are_found_by_their_names() {
        let of =
            |names: [&str; 3]| LabelOrder::of(&names.map(str::to_owned)).unwrap().sorted(&[0.1, 0.2, 0.7]);
        assert_eq!(of(["LABEL_0", "LABEL_1", "LABEL_2"]), [0.1, 0.2, 0.7]);
        assert_eq!(of(["CONTRADICTION", "NEUTRAL", "ENTAILMENT"]), [0.7, 0.1, 0.2]);
        assert_eq!(of(["NOT_ENOUGH_INFO", "SUPPORTS", "REFUTES"]), [0.2, 0.7, 0.1]);
    }
}
