//! An encoder of texts as vectors.

use std::path::Path;

use sporran_transformers::{EncoderRow, Text, TextEncoder, TextEncoderOptions, Truncation};

use crate::{
    Failure, Result, ServedModels,
    work::{Setting, Worker, size},
};

/// An encoder with its thread.
pub(crate) struct Embedder {
    name: String,
    encoder: TextEncoder,
    worker: Worker<Embed, Embedded>,
}

/// What is wanted of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Its vector.
    Vector,
    /// The hidden states of its tokens.
    States,
}

/// A text.
struct Embed {
    text: String,
    /// The text before it; the folder's default without one.
    prompt: Option<String>,
    wanted: Wanted,
}

/// The vectors of a text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Embedded {
    /// A vector, or those of the tokens, one after the other.
    pub(crate) values: Vec<f32>,
    /// The number of tokens that the model read.
    pub(crate) tokens: usize,
    /// The number of tokens before a cut.
    pub(crate) whole: usize,
}

impl Embedder {
    /// Loads an encoder, and starts its thread.
    ///
    /// # Errors
    /// Errors of the folder, and a system without threads.
    pub(crate) fn open(folder: &Path, options: &ServedModels, setting: &Setting) -> Result<Self> {
        let found = TextEncoder::load(&TextEncoderOptions {
            truncation: Truncation::AroundMention,
            precision: options.precision,
            device: options.device,
            ..TextEncoderOptions::new(folder.to_owned())
        })?;
        let encoder = found.ok_or_else(|| sporran_retriever::Error::Pooling { folder: folder.to_owned() })?;
        let own = encoder.clone();
        let worker =
            setting.worker("embed", move |items: &[Embed]| embed(&own, items).map_err(Failure::internal))?;
        Ok(Self { name: super::name(folder), encoder, worker })
    }

    /// The name: that of the folder.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The model.
    pub(crate) fn encoder(&self) -> &TextEncoder {
        &self.encoder
    }

    /// The text of the folder's prompt of a name.
    ///
    /// # Errors
    /// A name that the folder does not have.
    pub(crate) fn prompt(&self, name: &str) -> Result<String, Failure> {
        let settings = self.encoder.settings();
        let settings = settings.ok_or_else(|| Failure::invalid("prompt_name", "the model has no prompts"))?;
        let found = settings.named_prompt(name).map(str::to_owned);
        found.map_err(|error| Failure::invalid("prompt_name", error.to_string()))
    }

    /// The vectors of texts, in their order. `prompt`: the text before each, in place of the folder's default.
    ///
    /// # Errors
    /// A full queue, and errors of the model.
    pub(crate) async fn embed(
        &self,
        texts: Vec<String>,
        prompt: Option<&str>,
        wanted: Wanted,
    ) -> Result<Vec<Embedded>, Failure> {
        let item = |text: String| {
            let tokens = size(&text);
            (Embed { text, prompt: prompt.map(str::to_owned), wanted }, tokens)
        };
        self.worker.all(texts.into_iter().map(item).collect()).await
    }
}

/// The vectors of items. Those with the same prompt are encoded together.
fn embed(encoder: &TextEncoder, items: &[Embed]) -> Result<Vec<Embedded>, sporran_checkpoint::Error> {
    let mut found: Vec<Option<Embedded>> = items.iter().map(|_| None).collect();
    let mut left: Vec<usize> = (0..items.len()).collect();
    while let Some(&first) = left.first() {
        let (prompt, wanted) = (&items[first].prompt, items[first].wanted);
        let (places, others): (Vec<usize>, Vec<usize>) =
            left.into_iter().partition(|&at| items[at].prompt == *prompt && items[at].wanted == wanted);
        left = others;
        let own = match prompt {
            Some(prompt) => encoder.with_prompt(prompt)?,
            None => encoder.clone(),
        };
        let default = || encoder.settings().map_or("", |settings| settings.default_prompt());
        let before = prompt.as_deref().unwrap_or_else(default);
        let texts: Vec<Text<'_>> = places.iter().map(|&at| Text::One(&items[at].text)).collect();
        let rows = own.rows(&texts)?;
        let tokens: Vec<usize> = rows.iter().map(|row| row.ids.len()).collect();
        let values: Vec<Vec<f32>> = match wanted {
            Wanted::Vector => own.encode_rows(rows)?.chunks_exact(own.width()).map(<[f32]>::to_vec).collect(),
            Wanted::States => own.states(&rows as &[EncoderRow])?,
        };
        for ((&at, values), tokens) in places.iter().zip(values).zip(tokens) {
            let whole = match tokens < own.max_tokens() {
                true => tokens,
                false => {
                    let text = format!("{before}{}", items[at].text);
                    tokens.max(own.tokenizer().encode(&text, None)?.len())
                }
            };
            found[at] = Some(Embedded { values, tokens, whole });
        }
    }
    Ok(found.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prompt_counts_among_the_tokens_of_a_text_that_is_cut() {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/encoders/sentence");
        let encoder = TextEncoder::load(&TextEncoderOptions::new(folder)).unwrap().unwrap();
        // Together with its special tokens the text fits exactly.
        let fitting = (1..).find(|count| {
            encoder.tokenizer().encode(&"song ".repeat(count + 1), None).unwrap().len() > encoder.max_tokens()
        });
        let text = "song ".repeat(fitting.unwrap());
        let item = |prompt: Option<&str>| Embed {
            text: text.clone(),
            prompt: prompt.map(str::to_owned),
            wanted: Wanted::Vector,
        };
        let found = embed(&encoder, &[item(Some("")), item(Some("song song "))]).unwrap();
        let most = encoder.max_tokens();
        assert_eq!((found[0].tokens, found[0].whole), (most, most));
        assert_eq!((found[1].tokens, found[1].whole), (most, most + 2));
    }
}
