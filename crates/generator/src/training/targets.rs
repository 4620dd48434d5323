//! The token rows of the outputs that an encoder-decoder learns to write.

use sporran_checkpoint::Tokenizer;
use sporran_transformers::{GenerationOptions, Seq2Seq};

/// Makes targets of texts.
#[derive(Clone, Copy)]
pub(crate) struct Targets<'a> {
    tokenizer: &'a Tokenizer,
    most: usize,
    /// The token that outputs begin with, in place of the one that the tokenizer puts before texts: the code of the output's
    /// language (M2M100, NLLB, mBART-50).
    begin: Option<u32>,
}

impl<'a> Targets<'a> {
    /// Targets of at most `most` tokens. The first is the `forced_bos_token_id` of `options` or of the model's folder, where the
    /// tokenizer puts a token before texts.
    ///
    /// # Errors
    /// An error of the tokenizer.
    pub(crate) fn new(
        tokenizer: &'a Tokenizer,
        most: usize,
        options: &GenerationOptions,
        model: &dyn Seq2Seq,
    ) -> sporran_checkpoint::Result<Self> {
        let forced = options.forced_bos_token_id.or(model.generation_defaults().forced_bos_token_id);
        let around = tokenizer.encode("", None)?;
        let has_begin = around.first().is_some_and(|first| !model.special_tokens().eos.contains(first));
        Ok(Self { tokenizer, most, begin: forced.filter(|_| has_begin) })
    }

    /// The tokens of a target.
    ///
    /// # Errors
    /// An error of the tokenizer.
    pub(crate) fn row(&self, text: &str) -> sporran_checkpoint::Result<Vec<u32>> {
        let mut row = self.tokenizer.encode(text, Some(self.most))?;
        if let (Some(begin), Some(first)) = (self.begin, row.first_mut()) {
            *first = begin;
        }
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sporran_transformers::{Checkpoint, GenerationOptions, Precision};

    use super::Targets;

    #[test]
    fn a_target_begins_with_the_language_of_outputs_where_texts_begin_with_a_code() {
        let rows = |name: &str, forced: Option<u32>| {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data").join(name);
            let checkpoint = Checkpoint::open(&folder).unwrap();
            let (tokenizer, model) =
                (checkpoint.tokenizer().unwrap(), checkpoint.fast(Precision::F32).unwrap());
            let options = GenerationOptions { forced_bos_token_id: forced, ..GenerationOptions::default() };
            let targets = Targets::new(&tokenizer, 8, &options, &model).unwrap();
            (tokenizer.encode("tea", Some(8)).unwrap(), targets.row("tea").unwrap())
        };
        // The code of a language comes first.
        let (plain, target) = rows("m2m100", Some(7));
        assert_eq!((target[0], &target[1..]), (7, &plain[1..]));
        let (plain, target) = rows("m2m100", None);
        assert_eq!(target, plain);
        // It comes last, and T5 has none.
        for name in ["mbart", "t5-relu"] {
            let (plain, target) = rows(name, Some(7));
            assert_eq!(target, plain, "{name}");
        }
    }
}
