//! Training and validation examples of an encoder over marked mentions.

use sporran_checkpoint::Tokenizer;
use sporran_training::{PairExample, PairTarget};

use super::{MarkedOptions, mark};
use crate::{Result, relations::Annotated};

/// The sentences of each document as examples. Mentions beyond the input length have no pairs.
///
/// # Errors
/// Errors of the tokenizer; a missing marker.
pub fn pair_examples<'a>(
    documents: impl IntoIterator<Item = &'a Annotated>,
    tokenizer: &Tokenizer,
    options: &MarkedOptions,
) -> Result<Vec<Vec<PairExample>>> {
    let markers = options.markers.markers(tokenizer)?;
    let of = |annotated: &Annotated| -> Result<Vec<PairExample>> {
        let sentences = annotated.candidates.iter().zip(&annotated.targets);
        sentences
            .map(|(candidates, targets)| {
                let input = (&annotated.document, &*annotated.mentions, candidates);
                let marked = mark(tokenizer, &markers, input, options.max_tokens)?;
                let read = |at: usize| {
                    let pair = &candidates.pairs[at];
                    (pair.first.max(pair.second) as usize) < marked.marks.len()
                };
                let mut numbers = vec![None; candidates.pairs.len()];
                let mut pairs = Vec::with_capacity(candidates.pairs.len());
                for at in (0..candidates.pairs.len()).filter(|&at| read(at)) {
                    numbers[at] = Some(pairs.len());
                    pairs.push(candidates.pairs[at].clone());
                }
                let targets = targets
                    .iter()
                    .filter_map(|target| Some(PairTarget { pair: numbers[target.pair]?, ..*target }))
                    .collect();
                Ok(PairExample { row: marked.row, marks: marked.marks, pairs, targets })
            })
            .collect()
    };
    documents.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sporran_transformers::PairHeadConfig;

    use super::*;
    use crate::relations::{
        FEATURES, Marking, Properties, Thresholds,
        examples::tests::{joined, source},
        marking::tests::tokenizer,
    };

    #[test]
    fn examples_have_the_pairs_that_are_read() {
        let found = joined(&source(json!([]))).unwrap();
        let options = |max_tokens| MarkedOptions {
            version: MarkedOptions::VERSION,
            head: PairHeadConfig { width: 2, inner: 2, features: FEATURES, labels: 2, dropout: 0.0 },
            markers: Marking::default(),
            max_tokens,
            properties: Properties::default(),
            thresholds: Thresholds::even(2, 0.5),
        };
        let of = |max_tokens| {
            let examples =
                pair_examples(std::slice::from_ref(&found), &tokenizer(), &options(max_tokens)).unwrap();
            let example = &examples[0][1];
            (example.marks.len(), example.pairs.len(), example.targets.len())
        };
        assert_eq!(of(99), (3, 4, 4));
        // `< In [ 1999 ] [ he >`: Rome is truncated, and with it three of four pairs.
        assert_eq!(of(8), (2, 1, 1));
    }
}
