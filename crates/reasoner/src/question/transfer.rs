//! TransferNet (Shi et al., EMNLP 2021): entity weights move over the relations of a sparse knowledge base.
//!
//! An attention over the document's names gives the first weights. At each step an attention over the
//! question's words weighs every relation in both directions, and entity weights move along all triples at
//! once. An attention over the steps selects after which of them the answers are read. An entity splits its
//! weight among its neighbours by a relation. The paper instead adds weights and cuts them at 1, so that all
//! entities with many paths would have weight 1.

use candle_core::Tensor;
use candle_nn::{VarBuilder, ops::softmax};

use super::{
    embed::HeadOutput,
    encoding::EncodedQuestion,
    layers::{Dense, Tokens, products, weighted},
};
use crate::{Result, rules::Graph};

/// The triples of a knowledge base in both directions, for steps over all of them.
#[derive(Clone, Debug)]
pub(super) struct Sparse {
    from: Tensor,
    relation: Tensor,
    to: Tensor,
    share: Tensor,
    entities: usize,
}

impl Sparse {
    /// The edges of a graph over `entities`. Relation `r` is numbered `2 r` forward and `2 r + 1` backward.
    pub(super) fn new(graph: &Graph, entities: usize, device: &candle_core::Device) -> Result<Self> {
        let (mut from, mut relation, mut to, mut share) = (vec![], vec![], vec![], vec![]);
        for node in 0..graph.nodes() as u32 {
            for edges in graph.edges(node).chunk_by(|a, b| a.step == b.step) {
                for edge in edges {
                    from.push(node);
                    relation.push(2 * edge.step.relation() + u32::from(edge.step.is_backward()));
                    to.push(edge.to);
                    share.push(1.0 / edges.len() as f32);
                }
            }
        }
        let edges = share.len();
        Ok(Self {
            from: Tensor::new(from, device)?,
            relation: Tensor::new(relation, device)?,
            to: Tensor::new(to, device)?,
            share: Tensor::from_vec(share, (1, edges), device)?,
            entities,
        })
    }

    /// The weights (inputs, entities) after a step over relations with weights (inputs, directed
    /// relations).
    fn step(&self, weights: &Tensor, relations: &Tensor) -> Result<Tensor> {
        let moved = weights.index_select(&self.from, 1)?;
        let moved = (moved * relations.index_select(&self.relation, 1)?)?.broadcast_mul(&self.share)?;
        let none = Tensor::zeros((weights.dim(0)?, self.entities), weights.dtype(), weights.device())?;
        Ok(none.index_add(&self.to, &moved, 1)?)
    }
}

/// The head.
#[derive(Debug)]
pub(super) struct TransferHead {
    named: Dense,
    query: Dense,
    words: Vec<Dense>,
    relations: Vec<Dense>,
    hops: Dense,
    sparse: Sparse,
}

impl TransferHead {
    /// A head for hidden states of `width`, with `steps` steps over `relations` relations.
    pub(super) fn new(
        width: usize,
        relations: usize,
        steps: usize,
        sparse: Sparse,
        vb: &VarBuilder,
    ) -> Result<Self> {
        let each = |name: &str, output: usize| -> Result<Vec<Dense>> {
            (0..steps).map(|step| Dense::new(width, output, &vb.pp(format!("{name}.{step}")))).collect()
        };
        Ok(Self {
            named: Dense::new(width, width, &vb.pp("named"))?,
            query: Dense::new(width, width, &vb.pp("asked"))?,
            words: each("words", width)?,
            relations: each("relations", 2 * relations)?,
            hops: Dense::new(width, steps, &vb.pp("hops"))?,
            sparse,
        })
    }

    /// Applies the head to the hidden states (tokens, d) of inputs.
    pub(super) fn forward(&self, states: &Tensor, inputs: &[&EncodedQuestion]) -> Result<HeadOutput> {
        let words = Tokens::new(inputs, states, |input| input.question.clone().collect())?;
        let names = Tokens::new(inputs, states, |input| input.named.iter().map(|name| name.0).collect())?;
        let query = words.mean(states)?;
        let (size, most) = (inputs.len(), names.most());
        let context = names.states(states)?;
        let width = context.dim(2)?;
        let context =
            self.named.forward(&context.reshape((size * most, width))?)?.reshape((size, most, width))?;
        let bridges = names.shares(&products(&context, &self.query.forward(&query)?)?)?;
        let entities = self.sparse.entities;
        let mut places = vec![0u32; size * most];
        for (row, input) in inputs.iter().enumerate() {
            for (at, (_, name)) in input.named.iter().enumerate() {
                places[row * most + at] = row as u32 * entities as u32 + name.entity;
            }
        }
        let places = Tensor::new(places, states.device())?;
        let none = Tensor::zeros(size * entities, bridges.dtype(), states.device())?;
        let mut weights = none.index_add(&places, &bridges.flatten_all()?, 0)?.reshape((size, entities))?;
        let hops = softmax(&self.hops.forward(&query)?, 1)?;
        let tokens = words.states(states)?;
        let mut steps = Vec::with_capacity(self.words.len());
        let mut sum: Option<Tensor> = None;
        for (step, (word, relation)) in self.words.iter().zip(&self.relations).enumerate() {
            let attention = words.shares(&products(&tokens, &word.forward(&query)?)?)?;
            let relations = softmax(&relation.forward(&weighted(&tokens, &attention)?)?, 1)?;
            weights = self.sparse.step(&weights, &relations)?;
            let counted = weights.broadcast_mul(&hops.narrow(1, step, 1)?)?;
            sum = Some(match sum {
                Some(sum) => (sum + counted)?,
                None => counted,
            });
            steps.push(relations);
        }
        let likely = match sum {
            Some(sum) => {
                let whole = (sum.sum_keepdim(1)? + 1e-9)?;
                sum.broadcast_div(&whole)?
            }
            None => weights,
        };
        Ok(HeadOutput { likely, bridges, steps })
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn weights_are_shared_among_neighbours_by_a_relation() {
        // 0 has two neighbours by relation 0 and one by relation 1.
        let graph = Graph::new([(0, 0, 1), (0, 0, 2), (0, 1, 3)]);
        let sparse = Sparse::new(&graph, 5, &Device::Cpu).unwrap();
        let weights =
            Tensor::new(&[[1f32, 0.0, 0.0, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0, 0.0]], &Device::Cpu).unwrap();
        // Relation 0 forward, backward, relation 1 forward, backward.
        let relations = Tensor::new(&[[0.6f32, 0.0, 0.4, 0.0], [0.0, 1.0, 0.0, 0.0]], &Device::Cpu).unwrap();
        let after: Vec<Vec<f32>> = sparse.step(&weights, &relations).unwrap().to_vec2().unwrap();
        assert_eq!(after, [[0.0, 0.3, 0.3, 0.4, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]]);
    }
}
