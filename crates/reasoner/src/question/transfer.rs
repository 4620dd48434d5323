//! TransferNet (Shi et al., EMNLP 2021): entity weights move over the relations of a sparse knowledge base.
//!
//! The topic entity has the first weight, or an attention over the document's names gives the first weights. At each step an
//! attention over words of document and question scores every relation in both directions, and entity weights move along all
//! triples at once. [`Edges`] says how, and [`Reading`] how a step reads the text. An attention over the steps selects after
//! which of them the answers are read.

use candle_core::Tensor;
use candle_nn::{
    VarBuilder,
    ops::{sigmoid, softmax},
};

use super::{
    embed::{HeadOutput, unseen},
    encoding::EncodedQuestion,
    layers::{Dense, Tokens, products, scaled_products, weighted},
    options::{Edges, Reading, Topic},
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

    /// The weights (inputs, entities) after a step over relations with scores (inputs, directed relations), and the weights of
    /// the relations.
    fn step(&self, weights: &Tensor, scores: &Tensor, edges: Edges) -> Result<(Tensor, Tensor)> {
        let relations = match edges {
            Edges::Attention | Edges::Share => softmax(scores, 1)?,
            Edges::Sum => sigmoid(scores)?,
        };
        let moved = weights.index_select(&self.from, 1)?;
        let along = relations.index_select(&self.relation, 1)?;
        let none = Tensor::zeros((weights.dim(0)?, self.entities), weights.dtype(), weights.device())?;
        let moved = match edges {
            Edges::Share => (moved * along)?.broadcast_mul(&self.share)?,
            Edges::Sum => (moved * along)?,
            Edges::Attention => {
                // The softmax over an entity's edges is that over all relations, divided by its sum over these edges.
                let whole = none.index_add(&self.from, &along, 1)?.index_select(&self.from, 1)?;
                (moved * (along / (whole + 1e-30)?)?)?
            }
        };
        let after = none.index_add(&self.to, &moved, 1)?;
        let after = match edges {
            Edges::Attention | Edges::Share => after,
            // The quotient is 1 where the sum is larger; the divisor has no gradient.
            Edges::Sum => after.broadcast_div(&after.clamp(1f32, f32::INFINITY)?.detach())?,
        };
        Ok((after, relations))
    }
}

/// The prefix of the names of the pooler's variables, which start with those of the encoder's own pooler.
pub(super) const POOLER: &str = "question.pooler.";

/// The form of a head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// The size of the hidden states.
    pub(super) width: usize,
    pub(super) topic: Topic,
    pub(super) edges: Edges,
    pub(super) reading: Reading,
    /// The standard deviation of the encoder's initial weights.
    pub(super) spread: f64,
}

/// The head.
#[derive(Debug)]
pub(super) struct TransferHead {
    edges: Edges,
    reading: Reading,
    /// The attention over names: their layer and the query's; not with [`Topic::Given`].
    names: Option<[Dense; 2]>,
    /// The layer of the query; only with [`Reading::Original`] and [`Topic::Given`].
    pooler: Option<Dense>,
    words: Vec<Dense>,
    /// A layer for each step, or one for all of them.
    relations: Vec<Dense>,
    hops: Dense,
    sparse: Sparse,
}

impl TransferHead {
    /// A head with `steps` steps over `relations` relations.
    pub(super) fn new(
        Shape { width, topic, edges, reading, spread }: Shape,
        relations: usize,
        steps: usize,
        sparse: Sparse,
        vb: &VarBuilder,
    ) -> Result<Self> {
        let dense = match reading {
            Reading::Original => Dense::uniform,
            Reading::Separate => Dense::new,
        };
        let each = |name: &str, output: usize| -> Result<Vec<Dense>> {
            (0..steps).map(|step| dense(width, output, &vb.pp(format!("{name}.{step}")))).collect()
        };
        let names = match topic {
            Topic::Given | Topic::Text => None,
            Topic::Names => {
                Some([Dense::new(width, width, &vb.pp("named"))?, Dense::new(width, width, &vb.pp("asked"))?])
            }
        };
        let pooler = match (reading, &names) {
            (Reading::Original, None) => Some(Dense::normal(width, width, spread, &vb.pp("pooler"))?),
            _ => None,
        };
        let relations = match reading {
            Reading::Original => vec![dense(width, 2 * relations, &vb.pp("relations"))?],
            Reading::Separate => each("relations", 2 * relations)?,
        };
        let (words, hops) = (each("words", width)?, dense(width, steps, &vb.pp("hops"))?);
        Ok(Self { edges, reading, names, pooler, words, relations, hops, sparse })
    }

    /// Applies the head to the hidden states (tokens, d) of inputs.
    pub(super) fn forward(&self, states: &Tensor, inputs: &[&EncodedQuestion]) -> Result<HeadOutput> {
        let (words, query, start, bridges) = match &self.names {
            Some(layers) => {
                let words = Tokens::new(inputs, states, |input| input.question.clone().collect())?;
                let query = words.mean(states)?;
                let (start, bridges) = self.named(layers, states, inputs, &query)?;
                (words, query, start, bridges)
            }
            None => {
                // Document and question are the query: the first token's state, and attention over all tokens.
                let words = Tokens::new(inputs, states, |input| (0..input.row.ids.len()).collect())?;
                let first = Tokens::new(inputs, states, |_| vec![0])?.mean(states)?;
                let query = match &self.pooler {
                    Some(pooler) => pooler.forward(&first)?.tanh()?,
                    None => first,
                };
                (words, query, self.topics(states, inputs)?, unseen(inputs, states)?)
            }
        };
        let mut weights = start;
        let hops = softmax(&self.hops.forward(&query)?, 1)?;
        let tokens = words.states(states)?;
        let mut steps = Vec::with_capacity(self.words.len());
        let mut sum: Option<Tensor> = None;
        for (step, (word, relation)) in self.words.iter().zip(self.relations.iter().cycle()).enumerate() {
            let asked = word.forward(&query)?;
            let logits = match self.reading {
                Reading::Original => products(&tokens, &asked.tanh()?)?,
                Reading::Separate => scaled_products(&tokens, &asked)?,
            };
            let scores = relation.forward(&weighted(&tokens, &words.shares(&logits)?)?)?;
            let (after, relations) = self.sparse.step(&weights, &scores, self.edges)?;
            weights = after;
            let counted = weights.broadcast_mul(&hops.narrow(1, step, 1)?)?;
            sum = Some(match sum {
                Some(sum) => (sum + counted)?,
                None => counted,
            });
            steps.push(relations);
        }
        let likely = match sum {
            Some(sum) if self.edges == Edges::Sum => sum,
            Some(sum) => {
                let whole = (sum.sum_keepdim(1)? + 1e-9)?;
                sum.broadcast_div(&whole)?
            }
            None => weights,
        };
        Ok(HeadOutput { likely, logits: None, bridges, steps })
    }

    /// The first weights (inputs, entities): 1 for the given topic entity.
    fn topics(&self, states: &Tensor, inputs: &[&EncodedQuestion]) -> Result<Tensor> {
        let entities = self.sparse.entities;
        let mut start = vec![0f32; inputs.len() * entities];
        for (row, input) in inputs.iter().enumerate() {
            if let Some(topic) = input.topic {
                start[row * entities + topic as usize] = 1.0;
            }
        }
        Ok(Tensor::from_vec(start, (inputs.len(), entities), states.device())?)
    }

    /// The first weights (inputs, entities) by an attention over the names in the document, and these (inputs, most).
    fn named(
        &self,
        [named, asked]: &[Dense; 2],
        states: &Tensor,
        inputs: &[&EncodedQuestion],
        query: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        let names = Tokens::new(inputs, states, |input| input.named.iter().map(|name| name.0).collect())?;
        let (size, most) = (inputs.len(), names.most());
        let context = names.states(states)?;
        let width = context.dim(2)?;
        let context = named.forward(&context.reshape((size * most, width))?)?.reshape((size, most, width))?;
        let bridges = names.shares(&scaled_products(&context, &asked.forward(query)?)?)?;
        let entities = self.sparse.entities;
        let mut places = vec![0u32; size * most];
        for (row, input) in inputs.iter().enumerate() {
            for (at, (_, name)) in input.named.iter().enumerate() {
                places[row * most + at] = row as u32 * entities as u32 + name.entity;
            }
        }
        let places = Tensor::new(places, states.device())?;
        let none = Tensor::zeros(size * entities, bridges.dtype(), states.device())?;
        let start = none.index_add(&places, &bridges.flatten_all()?, 0)?.reshape((size, entities))?;
        Ok((start, bridges))
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
        let scores = scores(&[[0.6, 0.0, 0.4, 0.0], [0.0, 1.0, 0.0, 0.0]]);
        let (after, relations) = sparse.step(&weights, &scores, Edges::Share).unwrap();
        assert_near(&relations, &[&[0.6, 0.0, 0.4, 0.0], &[0.0, 1.0, 0.0, 0.0]]);
        assert_near(&after, &[&[0.0, 0.3, 0.3, 0.4, 0.0], &[1.0, 0.0, 0.0, 0.0, 0.0]]);
    }

    /// Scores whose softmax are these weights, which sum to 1.
    fn scores<const N: usize, const M: usize>(weights: &[[f32; M]; N]) -> Tensor {
        let logs: Vec<f32> = weights.iter().flatten().map(|weight| (weight + 1e-20f32).ln()).collect();
        Tensor::from_vec(logs, (N, M), &Device::Cpu).unwrap()
    }

    fn assert_near(found: &Tensor, expected: &[&[f32]]) {
        let found: Vec<Vec<f32>> = found.to_vec2().unwrap();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().flatten().zip(expected.iter().flat_map(|row| row.iter())) {
            assert!((found - expected).abs() < 1e-5, "{found} {expected}");
        }
    }

    /// Node 0 leads to 1 and 2 by relation 0, and to 3 by relation 1; 1 and 2 lead to 4 by relation 1.
    fn two_steps(edges: Edges, first: [f32; 4], second: [f32; 4]) -> [Tensor; 2] {
        let graph = Graph::new([(0, 0, 1), (0, 0, 2), (0, 1, 3), (1, 1, 4), (2, 1, 4)]);
        let sparse = Sparse::new(&graph, 5, &Device::Cpu).unwrap();
        let start = Tensor::new(&[[1f32, 0.0, 0.0, 0.0, 0.0]], &Device::Cpu).unwrap();
        let scores = |of: [f32; 4]| Tensor::new(&[of], &Device::Cpu).unwrap();
        let one = sparse.step(&start, &scores(first), edges).unwrap().0;
        let two = sparse.step(&one, &scores(second), edges).unwrap().0;
        [one, two]
    }

    #[test]
    fn the_original_reads_with_a_pooler_tangents_one_layer_of_relations_and_plain_products() {
        const WIDTH: usize = 3;
        let graph = Graph::new([(0, 0, 1), (0, 1, 2), (1, 1, 3)]);
        let sparse = Sparse::new(&graph, 4, &Device::Cpu).unwrap();
        let variables = sporran_training::Variables::new(3);
        let shape = Shape {
            width: WIDTH,
            topic: Topic::Given,
            edges: Edges::Sum,
            reading: Reading::Original,
            spread: 0.5,
        };
        let vb = variables.builder(&Device::Cpu).pp("question");
        let head = TransferHead::new(shape, 2, 2, sparse, &vb).unwrap();
        let names: Vec<String> = variables.all().into_iter().map(|(name, _)| name).collect();
        let layers = ["hops", "pooler", "relations", "words.0", "words.1"];
        let expected: Vec<String> = layers
            .iter()
            .flat_map(|layer| ["bias", "weight"].map(|part| format!("question.{layer}.{part}")))
            .collect();
        assert_eq!(names, expected);

        let rows: [[f32; WIDTH]; 4] = [[0.3, -0.8, 0.5], [1.0, 0.2, -0.4], [-0.6, 0.9, 0.1], [0.4, 0.4, 0.7]];
        let row = sporran_transformers::EncoderRow { ids: vec![1; 4], types: vec![0; 4] };
        let input = EncodedQuestion { row, question: 1..2, named: Vec::new(), topic: Some(0) };
        let states = Tensor::new(&rows, &Device::Cpu).unwrap();
        let found = head.forward(&states, &[&input]).unwrap();

        let layer = |name: &str, vector: &[f32]| -> Vec<f32> {
            let part = |part: &str| variables.named(&format!("question.{name}.{part}")).unwrap();
            let (weight, bias) =
                (part("weight").to_vec2::<f32>().unwrap(), part("bias").to_vec1::<f32>().unwrap());
            weight.iter().zip(bias).map(|(row, bias)| dot(row, vector) + bias).collect()
        };
        let tangents = |vector: Vec<f32>| vector.into_iter().map(f32::tanh).collect::<Vec<f32>>();
        let query = tangents(layer("pooler", &rows[0]));
        let hops = shares(&layer("hops", &query));
        let mut weights = [1f32, 0.0, 0.0, 0.0];
        let mut likely = [0f32; 4];
        for (step, hop) in hops.iter().enumerate() {
            let asked = tangents(layer(&format!("words.{step}"), &query));
            let attention = shares(&rows.map(|row| dot(&row, &asked)));
            let mut context = [0f32; WIDTH];
            for (row, share) in rows.iter().zip(attention) {
                context.iter_mut().zip(row).for_each(|(sum, value)| *sum += share * value);
            }
            let relations: Vec<f32> =
                layer("relations", &context).into_iter().map(|score| 1.0 / (1.0 + (-score).exp())).collect();
            let mut after = [0f32; 4];
            for (from, relation, to) in [(0, 0, 1), (0, 1, 2), (1, 1, 3)] {
                after[to] += weights[from] * relations[2 * relation];
                after[from] += weights[to] * relations[2 * relation + 1];
            }
            weights = after.map(|weight| weight.min(1.0));
            likely.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += hop * weight);
        }
        assert_near(&found.likely, &[&likely]);
    }

    fn dot(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    fn shares(logits: &[f32]) -> Vec<f32> {
        let whole: f32 = logits.iter().map(|logit| logit.exp()).sum();
        logits.iter().map(|logit| logit.exp() / whole).collect()
    }

    #[test]
    fn an_entity_attends_to_its_edges_at_each_step() {
        // Scores of ln 2, 0, ln 4, 0 and then 0, ln 3, ln 5, 0. From 0: edges of 2, 2 and 4 of 8.
        let (first, second) = ([2f32.ln(), 0.0, 4f32.ln(), 0.0], [0.0, 3f32.ln(), 5f32.ln(), 0.0]);
        let [one, two] = two_steps(Edges::Attention, first, second);
        assert_near(&one, &[&[0.0, 0.25, 0.25, 0.5, 0.0]]);
        // From 1 and 2: back to 0 by 3 of 8, to 4 by 5 of 8. From 3: its only edge, back to 0.
        assert_near(&two, &[&[0.25 * 0.375 * 2.0 + 0.5, 0.0, 0.0, 0.0, 0.25 * 0.625 * 2.0]]);
    }

    #[test]
    fn sums_of_the_original_are_cut_at_one() {
        // Sigmoids of 3/4, 1/2, 4/5, 1/2 and then 1/2, 1/2, 9/10, 1/2.
        let (first, second) = ([3f32.ln(), 0.0, 4f32.ln(), 0.0], [0.0, 0.0, 9f32.ln(), 0.0]);
        let [one, two] = two_steps(Edges::Sum, first, second);
        assert_near(&one, &[&[0.0, 0.75, 0.75, 0.8, 0.0]]);
        // 0: 0.75 / 2 twice and 0.8 / 2, more than 1. 4: 0.75 * 0.9 twice, more than 1.
        assert_near(&two, &[&[1.0, 0.0, 0.0, 0.0, 1.0]]);
        let [_, two] =
            two_steps(Edges::Sum, first, [0.0, (1f32 / 3.0).ln(), (1f32 / 4.0).ln(), (1f32 / 3.0).ln()]);
        // 0: 0.75 / 4 twice and 0.8 / 4. 4: 0.75 / 5 twice.
        assert_near(&two, &[&[0.575, 0.0, 0.0, 0.0, 0.3]]);
    }
}
