//! A verifier that decides which passages support a sentence.

use std::path::PathBuf;

use sporran_generator::{LabelOrder, Labeller, Verifier, VerifierOptions, titled};
use sporran_kilt::Passage;
use sporran_transformers::{DeviceName, Precision};

use crate::Result;

/// A classifier of a claim and its evidence with the labels of fact checking.
pub(super) struct Judge {
    model: Box<dyn Labeller>,
    order: LabelOrder,
}

impl Judge {
    /// Loads the model of a folder.
    ///
    /// # Errors
    /// Errors of the folder, and labels that are not those of fact checking.
    pub(super) fn open(model: PathBuf, precision: Precision, device: DeviceName) -> Result<Self> {
        let options = VerifierOptions { precision, device, ..VerifierOptions::new(model) };
        Self::over(Verifier::labeller(&options.model, &options)?)
    }

    fn over(model: Box<dyn Labeller>) -> Result<Self> {
        let order = LabelOrder::of(model.labels())?;
        Ok(Self { model, order })
    }

    /// The indices of the passages for which `SUPPORTS` is the most probable label of a sentence.
    pub(super) fn supporters(&self, sentence: &str, passages: &[&Passage]) -> Result<Vec<usize>> {
        let texts: Vec<String> =
            passages.iter().map(|passage| titled(&passage.title, &passage.text)).collect();
        let pairs: Vec<(&str, &str)> = texts.iter().map(|text| (sentence, text.as_str())).collect();
        let rows = self.model.logits(&pairs)?;
        let is_support = |row: &[f32]| {
            let [supports, refutes, neither] = self.order.sorted(row);
            supports > refutes && supports > neither
        };
        Ok((0..rows.len()).filter(|&at| is_support(&rows[at])).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Supports what the evidence contains, refutes what it denies, and knows nothing else.
    struct ByWords(Vec<String>);

    impl Labeller for ByWords {
        fn labels(&self) -> &[String] {
            &self.0
        }

        fn logits(&self, pairs: &[(&str, &str)]) -> sporran_generator::Result<Vec<Vec<f32>>> {
            let label = |(claim, text): &(&str, &str)| match (text.contains(claim), text.contains("not")) {
                (true, _) => vec![0.0, 2.0, 1.0],
                (_, true) => vec![3.0, 0.0, 1.0],
                _ => vec![0.0, 0.5, 0.6],
            };
            Ok(pairs.iter().map(label).collect())
        }
    }

    #[test]
    fn the_most_probable_label_decides() {
        let labels = ["contradiction", "entailment", "neutral"].map(str::to_owned).to_vec();
        let judge = Judge::over(Box::new(ByWords(labels))).unwrap();
        let passages = ["tea is not cold", "tea is hot", "milk is white"].map(Passage::of_text);
        let passages: Vec<&Passage> = passages.iter().collect();
        assert_eq!(judge.supporters("tea is hot", &passages).unwrap(), [1]);
        let two = ByWords(vec!["no".into(), "yes".into()]);
        let error = Judge::over(Box::new(two)).err().unwrap();
        assert!(error.is_input() && error.to_string().contains("NOT ENOUGH INFO"), "{error}");
    }
}
