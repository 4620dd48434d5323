//! The interface between a search and a model: sequences that grow by one token per step.

use sporran_checkpoint::Result;

use crate::{
    cache::Cache,
    seq2seq::{Memory, Seq2Seq},
};

/// Partial sequences, grouped by input, with the model that continues them.
///
/// With `g` sequences for each of `b` inputs, row `i * g + j` is sequence `j` of input `i`. Before the first step
/// there is one row an input.
pub trait Sequences {
    /// The number of inputs that are still followed.
    fn inputs(&self) -> usize;

    /// The prompt of input `input`: the decoder's start token, or a causal model's prompt. Called only before the first
    /// step.
    fn prompt(&self, input: usize) -> &[u32];

    /// The number of positions that the model has for new tokens after the prompt of input `input`. Called only before the
    /// first step.
    fn room(&self, _input: usize) -> usize {
        usize::MAX
    }

    /// The number of scores in a row.
    fn vocab_size(&self) -> usize;

    /// The logits of the token after each prompt, (b, vocabulary), row after row. In a running batch, of each prompt that
    /// joins; the rows of these come after the others.
    ///
    /// # Errors
    /// Errors of the model.
    fn begin(&mut self) -> Result<Vec<f32>>;

    /// Continues every row by one token, and returns the logits of the next token, (rows, vocabulary), row after row.
    ///
    /// # Errors
    /// Errors of the model.
    fn next(&mut self, tokens: &[u32]) -> Result<Vec<f32>>;

    /// Makes row `i` the continuation of the previous row `rows[i]`. Each row stays in its input's group; groups may
    /// grow and shrink, all alike.
    ///
    /// # Errors
    /// Errors of the model.
    fn reorder(&mut self, rows: &[u32]) -> Result<()>;

    /// Keeps the inputs `inputs` only, in that order, and of each the sequences `rows` (indices of all rows before
    /// the call, grouped by the kept inputs).
    ///
    /// # Errors
    /// Errors of the model.
    fn keep(&mut self, inputs: &[u32], rows: &[u32]) -> Result<()>;
}

/// The sequences of an encoder-decoder.
pub(crate) struct Decoder<'a> {
    model: &'a dyn Seq2Seq,
    memory: Memory,
    cache: Cache,
    rows: usize,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(model: &'a dyn Seq2Seq, memory: &Memory) -> Self {
        Self { model, memory: memory.clone(), cache: Cache::new(), rows: memory.size() }
    }

    /// The number of sequences that are followed.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }
}

impl Sequences for Decoder<'_> {
    fn inputs(&self) -> usize {
        self.memory.size()
    }

    fn prompt(&self, _: usize) -> &[u32] {
        std::slice::from_ref(&self.model.special_tokens().decoder_start)
    }

    fn room(&self, _: usize) -> usize {
        // The last token is not read, so the start token takes no room.
        self.model.max_output_length().unwrap_or(usize::MAX)
    }

    fn vocab_size(&self) -> usize {
        self.model.vocab_size()
    }

    fn begin(&mut self) -> Result<Vec<f32>> {
        let start = vec![self.model.special_tokens().decoder_start; self.inputs()];
        self.next(&start)
    }

    fn next(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.model.decode(tokens, tokens.len(), &self.memory, &mut self.cache)
    }

    fn reorder(&mut self, rows: &[u32]) -> Result<()> {
        self.rows = rows.len();
        self.cache.reorder(rows)
    }

    fn keep(&mut self, inputs: &[u32], rows: &[u32]) -> Result<()> {
        self.rows = rows.len();
        self.memory = self.memory.select(inputs)?;
        self.cache.keep(inputs, rows)
    }
}
