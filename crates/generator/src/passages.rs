//! Passages that a model reads one by one, each together with the input.

use std::{path::Path, sync::Arc};

use candle_core::Tensor;
use sporran_checkpoint::Tokenizer;
use sporran_transformers::{
    Checkpoint, DeviceName, GenerationOptions, Hypothesis, Precision, Seq2Seq, encode_separately,
    length_batches,
};

use crate::{Error, Generation, Prompt, PromptOptions, Request, Result};

/// A model, and the prompt that joins the input with one passage.
pub(crate) struct PassageReader {
    pub(crate) model: Arc<dyn Seq2Seq>,
    pub(crate) generation: GenerationOptions,
    tokenizer: Tokenizer,
    prompt: Prompt,
    batch_tokens: usize,
}

/// Requests that are worked on together: which they are, and for each the token rows of its passages.
pub(crate) struct Portion {
    pub(crate) requests: Vec<usize>,
    pub(crate) rows: Vec<Vec<Vec<u32>>>,
}

impl PassageReader {
    /// Whether tokens are drawn at random, by the options or the model's folder's.
    pub(crate) fn samples(&self) -> bool {
        self.generation.or(self.model.generation_defaults()).do_sample == Some(true)
    }

    pub(crate) fn load(
        folder: &Path,
        (device, precision): (DeviceName, Precision),
        prompt: &PromptOptions,
        generation: &GenerationOptions,
        batch_tokens: usize,
    ) -> Result<Self> {
        let checkpoint = Checkpoint::open(folder)?;
        let model = checkpoint.seq2seq(device, precision)?;
        Self::new(model.into(), checkpoint.tokenizer()?, prompt, generation, batch_tokens)
    }

    pub(crate) fn new(
        model: Arc<dyn Seq2Seq>,
        tokenizer: Tokenizer,
        prompt: &PromptOptions,
        generation: &GenerationOptions,
        batch_tokens: usize,
    ) -> Result<Self> {
        if batch_tokens == 0 {
            let (option, expected) = ("batch-tokens", "at least 1");
            return Err(Error::Option { option, expected, found: "0".into() });
        }
        let prompt = Prompt::new(prompt.clone())?;
        Ok(Self { model, tokenizer, prompt, generation: generation.clone(), batch_tokens })
    }

    /// How many passages of a request are read at most.
    pub(crate) fn passages(&self) -> usize {
        self.prompt.options().passages
    }

    /// The input with each of the passages, or alone where there are none.
    pub(crate) fn texts(&self, request: &Request<'_>) -> Result<Vec<String>> {
        let count = request.passages.len().min(self.passages());
        let alone = [&request.passages[..0]];
        let each: Vec<_> = request.passages[..count].chunks(1).collect();
        let passages = if each.is_empty() { &alone[..] } else { &each[..] };
        let text = |(rank, passages)| {
            self.prompt.text_from(rank, &Request { query: request.query, passages }, &self.tokenizer)
        };
        (1..).zip(passages.iter().copied()).map(text).collect()
    }

    /// The rows of each request: the input with each of its passages.
    pub(crate) fn rows(&self, requests: &[Request<'_>]) -> Result<Vec<Vec<Vec<u32>>>> {
        let most = self.model.max_input_length().unwrap_or(usize::MAX).min(self.prompt.options().max_tokens);
        let row = |text: &String| Ok(self.tokenizer.encode(text, Some(most))?);
        requests.iter().map(|request| self.texts(request)?.iter().map(row).collect()).collect()
    }

    /// The number of tokens of each request: those of its rows.
    pub(crate) fn prompt_tokens(&self, requests: &[Request<'_>]) -> Result<Vec<usize>> {
        let tokens = |rows: &Vec<Vec<u32>>| rows.iter().map(Vec::len).sum();
        Ok(self.rows(requests)?.iter().map(tokens).collect())
    }

    /// Requests with these rows in portions of at most `batch-tokens` tokens, or one request, longest first.
    pub(crate) fn portions(&self, mut rows: Vec<Vec<Vec<u32>>>) -> Vec<Portion> {
        let lengths: Vec<usize> = rows.iter().map(|rows| rows.iter().map(Vec::len).sum()).collect();
        let portions = length_batches(&lengths, rows.len().max(1), self.batch_tokens);
        portions
            .into_iter()
            .map(|requests| {
                let rows = requests.iter().map(|at| std::mem::take(&mut rows[*at])).collect();
                Portion { requests, rows }
            })
            .collect()
    }

    /// The encoder's states of every passage of a portion, grouped by request.
    pub(crate) fn states(&self, portion: &Portion) -> Result<Vec<Vec<Tensor>>> {
        let rows: Vec<&Vec<u32>> = portion.rows.iter().flatten().collect();
        let mut states = encode_separately(self.model.as_ref(), &rows, self.batch_tokens)?.into_iter();
        Ok(portion.rows.iter().map(|rows| states.by_ref().take(rows.len()).collect()).collect())
    }

    /// The generation from a request's hypotheses. The evidence is the passages read.
    pub(crate) fn generation(&self, request: &Request<'_>, found: &[Hypothesis]) -> Result<Generation> {
        let texts = found.iter().map(|hypothesis| {
            let text = self.tokenizer.decode(&hypothesis.tokens)?;
            Ok((text.trim().to_owned(), hypothesis.score))
        });
        let mut texts = texts.collect::<Result<Vec<_>>>()?.into_iter();
        let (text, score) = texts.next().unwrap_or_default();
        let evidence = (0..request.passages.len().min(self.passages())).collect();
        let tokens = found.first().map_or(0, |hypothesis| hypothesis.tokens.len());
        Ok(Generation { text, score, alternatives: texts.collect(), evidence, tokens })
    }
}
