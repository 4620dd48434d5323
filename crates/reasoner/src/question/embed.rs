//! EmbedKGQA (Saxena et al., ACL 2020): a question becomes a relation vector, and every entity is scored.
//!
//! KoRC's documents hide the question's entity. So its vector is computed from the text: a projection of the
//! question's hidden states, plus an attention over the vectors of the entities that the document names.
//! ComplEx scores its product with the question's vector against every entity.

use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};

use super::{
    encoding::EncodedQuestion,
    layers::{Dense, Tokens, products, weighted},
};
use crate::Result;

/// The output of a head for a batch.
pub(super) struct HeadOutput {
    /// The probability of each entity as an answer, (inputs, entities); rows sum to at most 1.
    pub(super) likely: Tensor,
    /// The attention weight of each name in the document, (inputs, most).
    pub(super) bridges: Tensor,
    /// The weight of each relation at each step, (inputs, directed relations); empty in EmbedKGQA.
    pub(super) steps: Vec<Tensor>,
}

/// The head.
#[derive(Debug)]
pub(super) struct EmbedHead {
    head: Dense,
    relation: Dense,
    named: Dense,
    query: Dense,
    kind: Dense,
    /// (entities, 2k): real parts, then imaginary ones.
    entities: Tensor,
}

impl EmbedHead {
    /// A head for hidden states of `width` and vectors of `rank` complex numbers. `vectors` are the fixed
    /// entity vectors; without them, they are trained variables.
    pub(super) fn new(
        width: usize,
        entities: usize,
        rank: usize,
        vectors: Option<Tensor>,
        vb: &VarBuilder,
    ) -> Result<Self> {
        let entities = match vectors {
            Some(vectors) => vectors,
            None => {
                vb.get_with_hints((entities, 2 * rank), "entities", Init::Randn { mean: 0.0, stdev: 0.1 })?
            }
        };
        Ok(Self {
            head: Dense::new(width, 2 * rank, &vb.pp("head"))?,
            relation: Dense::new(width, 2 * rank, &vb.pp("relation"))?,
            named: Dense::new(width, width, &vb.pp("named"))?,
            query: Dense::new(width, width, &vb.pp("asked"))?,
            kind: Dense::new(width, 2 * rank, &vb.pp("kind"))?,
            entities,
        })
    }

    /// The entities' vectors, (entities, 2k).
    pub(super) fn entities(&self) -> &Tensor {
        &self.entities
    }

    /// Applies the head to the hidden states (tokens, d) of inputs.
    pub(super) fn forward(&self, states: &Tensor, inputs: &[&EncodedQuestion]) -> Result<HeadOutput> {
        let words = Tokens::new(inputs, states, |input| input.question.clone().collect())?;
        let names = Tokens::new(inputs, states, |input| input.named.iter().map(|name| name.0).collect())?;
        let query = words.mean(states)?;
        let (size, most) = (inputs.len(), names.most());
        let mut ids = vec![0u32; size * most];
        for (row, input) in inputs.iter().enumerate() {
            for (at, (_, name)) in input.named.iter().enumerate() {
                ids[row * most + at] = name.entity;
            }
        }
        let rank = self.entities.dim(1)? / 2;
        let vectors = self.entities.index_select(&Tensor::new(ids, states.device())?, 0)?.reshape((
            size,
            most,
            2 * rank,
        ))?;
        let context = names.states(states)?;
        let width = context.dim(2)?;
        let context =
            self.named.forward(&context.reshape((size * most, width))?)?.reshape((size, most, width))?;
        let logits = (products(&context, &self.query.forward(&query)?)?
            + products(&vectors, &self.kind.forward(&query)?)?)?;
        let bridges = names.shares(&logits)?;
        let head = (self.head.forward(&query)? + weighted(&vectors, &bridges)?)?;
        let relation = self.relation.forward(&query)?;
        let half = |vectors: &Tensor, at: usize| vectors.narrow(1, at * rank, rank);
        let (hr, hi) = (half(&head, 0)?, half(&head, 1)?);
        let (rr, ri) = (half(&relation, 0)?, half(&relation, 1)?);
        let real = ((&hr * &rr)? - (&hi * &ri)?)?;
        let imaginary = ((&hr * &ri)? + (&hi * &rr)?)?;
        let product = Tensor::cat(&[&real, &imaginary], 1)?;
        let likely = candle_nn::ops::softmax(&product.matmul(&self.entities.t()?)?, 1)?;
        Ok(HeadOutput { likely, bridges, steps: Vec::new() })
    }
}
