//! The embeddings of a packed body: the sum of a token's tables, normalised and dropped.

use rayon::prelude::*;
use sporran_checkpoint::{Error, Result};
use sporran_kernels::{Dropout, Isa};
use sporran_transformers::{BertConfig, BertFamily, EncoderRow};

use super::{
    PORTION, Seeds,
    layer::Norm,
    weights::{Finder, Weight},
    workspace::Workspace,
};
use crate::gradients::Gradients;

/// The rows of the tables that make up a token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    word: u32,
    position: u32,
    kind: u32,
}

/// The tables and the normalisation.
#[derive(Debug)]
pub(super) struct Embeddings {
    words: Weight,
    positions: Weight,
    types: Option<Weight>,
    norm: Norm,
    dropout: f64,
    config: BertConfig,
}

impl Embeddings {
    pub(super) fn new(config: &BertConfig, finder: &mut Finder) -> Result<Self> {
        let mut table = |name: &str| finder.weight(&format!("embeddings.{name}.weight"));
        Ok(Self {
            words: table("word_embeddings")?,
            positions: table("position_embeddings")?,
            types: match config.family {
                BertFamily::DistilBert => None,
                _ => Some(table("token_type_embeddings")?),
            },
            norm: Norm::new("embeddings.LayerNorm", config.layer_norm_eps, finder)?,
            dropout: config.hidden_dropout_prob,
            config: config.clone(),
        })
    }

    /// Which rows each token is made of.
    fn tokens(&self, rows: &[&EncoderRow]) -> Result<Vec<Token>> {
        let (pad, shifted) = (self.config.pad_token_id, self.config.first_position() != 0);
        let mut tokens = Vec::with_capacity(rows.iter().map(|row| row.ids.len()).sum());
        for row in rows {
            let mut seen = 0;
            for (at, &word) in row.ids.iter().enumerate() {
                // RoBERTa counts the tokens that are not padding, from after the padding token's id.
                seen += u32::from(word != pad);
                let position = match (shifted, word == pad) {
                    (false, _) => at as u32,
                    (true, true) => pad,
                    (true, false) => pad + seen,
                };
                let kind = if self.config.takes_types() { row.types.get(at).copied() } else { None };
                tokens.push(Token { word, position, kind: kind.unwrap_or(0) });
            }
        }
        let below = |what: &str, bound: usize, found: Option<u32>| match found {
            Some(id) => {
                Err(Error::Batch { expected: format!("{what} below {bound}"), found: id.to_string() })
            }
            None => Ok(()),
        };
        let (words, kinds) = (self.config.vocab_size, self.config.type_vocab_size);
        below("token ids", words, tokens.iter().map(|token| token.word).find(|id| *id as usize >= words))?;
        if self.types.is_some() {
            let surplus = tokens.iter().map(|token| token.kind).find(|kind| *kind as usize >= kinds);
            below("token types", kinds, surplus)?;
        }
        Ok(tokens)
    }

    pub(super) fn forward(
        &self,
        rows: &[&EncoderRow],
        seeds: Seeds,
        workspace: &mut Workspace,
    ) -> Result<()> {
        let width = self.config.hidden_size;
        workspace.rows = self.tokens(rows)?;
        let Workspace { rows: tokens, states, embedded, .. } = workspace;
        let (words, positions) = (self.words.read()?, self.positions.read()?);
        let types = self.types.as_ref().map(Weight::read).transpose()?;
        let values = embedded.values.fit(tokens.len() * width);
        let work = values.par_chunks_mut(PORTION * width).zip(tokens.par_chunks(PORTION));
        work.for_each(|(values, tokens)| {
            for (out, token) in values.chunks_exact_mut(width).zip(tokens) {
                out.copy_from_slice(&words[token.word as usize * width..][..width]);
                let mut add = |table: &[f32], row: u32| {
                    let row = &table[row as usize * width..][..width];
                    out.iter_mut().zip(row).for_each(|(value, other)| *value += other);
                };
                add(&positions, token.position);
                if let Some(types) = &types {
                    add(types, token.kind);
                }
            }
        });
        let states = states.fit(tokens.len() * width);
        self.norm.forward(None, Dropout::new(0.0, 0), tokens.len(), states, false, embedded)?;
        self.drop(seeds, states);
        Ok(())
    }

    /// Dropout comes after the normalisation here.
    fn drop(&self, seeds: Seeds, states: &mut [f32]) {
        let (isa, size) = (Isa::detected(), PORTION * self.config.hidden_size);
        let dropout = seeds.dropout(self.dropout, 0);
        states
            .par_chunks_mut(size)
            .enumerate()
            .for_each(|(at, states)| dropout.apply(isa, at * size, states));
    }

    /// Recomputes the output of `forward` into the first narrow buffer.
    pub(super) fn states_again(&self, seeds: Seeds, workspace: &mut Workspace) -> Result<()> {
        let Workspace { tokens, embedded, narrow: [below, _], .. } = workspace;
        let below = below.fit(*tokens * self.config.hidden_size);
        self.norm.again(*tokens, embedded, below)?;
        self.drop(seeds, below);
        Ok(())
    }

    pub(super) fn backward(
        &self,
        seeds: Seeds,
        workspace: &mut Workspace,
        gradients: &mut Gradients,
    ) -> Result<()> {
        let width = self.config.hidden_size;
        let Workspace { rows: tokens, states, embedded, narrow: [_, other], partial, .. } = workspace;
        let gradient = states.fit(tokens.len() * width);
        self.drop(seeds, gradient);
        let other = other.fit(tokens.len() * width);
        let none = Dropout::new(0.0, 0);
        self.norm.backward(None, none, embedded, tokens.len(), gradient, other, partial, gradients)?;
        let mut scatter = |table: &Weight, row: fn(&Token) -> u32| {
            let table = &mut gradients[table.place];
            for (values, token) in gradient.chunks_exact(width).zip(tokens.iter()) {
                let sum = &mut table[row(token) as usize * width..][..width];
                sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            }
        };
        scatter(&self.words, |token| token.word);
        scatter(&self.positions, |token| token.position);
        if let Some(types) = &self.types {
            scatter(types, |token| token.kind);
        }
        Ok(())
    }
}
