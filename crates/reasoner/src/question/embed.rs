//! EmbedKGQA (Saxena et al., ACL 2020): a question becomes a relation vector, and every entity is scored.
//!
//! ComplEx scores the product of the topic entity's vector and the question's relation vector against every entity. KoRC's
//! documents hide the name of the topic entity. Its vector is that of the given entity, or is computed from the text: a
//! projection of the hidden states, perhaps with an attention over the vectors of the entities that the document names.

use candle_core::{Device, Tensor};
use candle_nn::Init;
use sporran_training::Variables;

use super::{
    encoding::EncodedQuestion,
    layers::{Dense, Tokens, scaled_products, weighted},
    normalisation::ComplexNorm,
    options::Topic,
};
use crate::Result;

/// The output of a head for a batch.
pub(super) struct HeadOutput {
    /// The probability of each entity as an answer, (inputs, entities). Rows sum to at most 1, but not those of
    /// [`Edges::Sum`](super::Edges::Sum).
    pub(super) likely: Tensor,
    /// EmbedKGQA's logits of that probability.
    pub(super) logits: Option<Tensor>,
    /// The attention weight of each name in the document, (inputs, most).
    pub(super) bridges: Tensor,
    /// The weight of each relation at each step, (inputs, directed relations); empty in EmbedKGQA.
    pub(super) steps: Vec<Tensor>,
}

/// The head.
#[derive(Debug)]
pub(super) struct EmbedHead {
    topic: Topic,
    /// The vector of the topic entity, from the text; not with [`Topic::Given`].
    head: Option<Dense>,
    relation: Dense,
    /// The attention over names, with [`Topic::Names`].
    names: Option<NamesAttention>,
    /// The normalisations of the topic entity's vector and of its product with the question's.
    norms: Option<[ComplexNorm; 2]>,
    /// (entities, 2k): real parts, then imaginary ones.
    entities: Tensor,
    /// A large negative logit (1, entities) for the entities without a vector.
    absent: Option<Tensor>,
}

/// An attention over the names in the document.
#[derive(Debug)]
struct NamesAttention {
    named: Dense,
    query: Dense,
    kind: Dense,
}

impl EmbedHead {
    /// A head for hidden states of `width` and vectors of `rank` complex numbers, with batch normalisation if `normalises`.
    /// `vectors` are the fixed entity vectors; without them, they are trained variables. The entities `absent` are never
    /// answers.
    pub(super) fn new(
        (width, topic, normalises): (usize, Topic, bool),
        entities: usize,
        rank: usize,
        vectors: Option<Tensor>,
        absent: &[u32],
        variables: &Variables,
    ) -> Result<Self> {
        let vb = variables.builder(&Device::Cpu).pp("question");
        let count = entities;
        let entities = match vectors {
            Some(vectors) => vectors,
            None => {
                vb.get_with_hints((entities, 2 * rank), "entities", Init::Randn { mean: 0.0, stdev: 0.1 })?
            }
        };
        let head = match topic {
            Topic::Given => None,
            Topic::Text | Topic::Names => Some(Dense::new(width, 2 * rank, &vb.pp("head"))?),
        };
        let relation = Dense::new(width, 2 * rank, &vb.pp("relation"))?;
        let names = match topic {
            Topic::Given | Topic::Text => None,
            Topic::Names => Some(NamesAttention {
                named: Dense::new(width, width, &vb.pp("named"))?,
                query: Dense::new(width, width, &vb.pp("asked"))?,
                kind: Dense::new(width, 2 * rank, &vb.pp("kind"))?,
            }),
        };
        let absent = if absent.is_empty() {
            None
        } else {
            let mut logits = vec![0f32; count];
            absent.iter().for_each(|&entity| logits[entity as usize] = -1e9);
            Some(Tensor::from_vec(logits, (1, count), entities.device())?)
        };
        let norms = if normalises {
            let norm = |name: &str| ComplexNorm::new(&format!("question.{name}"), variables);
            Some([norm("topic-norm")?, norm("product-norm")?])
        } else {
            None
        };
        Ok(Self { topic, head, relation, names, norms, entities, absent })
    }

    /// The entities' vectors, (entities, 2k).
    pub(super) fn entities(&self) -> &Tensor {
        &self.entities
    }

    /// Applies the head to the hidden states (tokens, d) of inputs. In training, batch normalisation counts the batch.
    pub(super) fn forward(
        &self,
        states: &Tensor,
        inputs: &[&EncodedQuestion],
        is_training: bool,
    ) -> Result<HeadOutput> {
        let words = Tokens::new(inputs, states, |input| match self.topic {
            Topic::Given | Topic::Text => vec![0],
            Topic::Names => input.question.clone().collect(),
        })?;
        let query = words.mean(states)?;
        let rank = self.entities.dim(1)? / 2;
        let from_text = self.head.as_ref().map(|head| head.forward(&query)).transpose()?;
        let (head, bridges) = match (from_text, &self.names) {
            (Some(head), Some(names)) => {
                let (vectors, bridges) = self.named(names, states, inputs, &query)?;
                ((head + vectors)?, bridges)
            }
            (Some(head), None) => (head, unseen(inputs, states)?),
            (None, _) => {
                let topics: Vec<u32> = inputs.iter().map(|input| input.topic.unwrap_or(0)).collect();
                let topics = Tensor::new(topics, states.device())?;
                (self.entities.index_select(&topics, 0)?, unseen(inputs, states)?)
            }
        };
        let head = match &self.norms {
            Some([topic, _]) => topic.forward(&head, is_training)?,
            None => head,
        };
        let relation = self.relation.forward(&query)?;
        let half = |vectors: &Tensor, at: usize| vectors.narrow(1, at * rank, rank);
        let (hr, hi) = (half(&head, 0)?, half(&head, 1)?);
        let (rr, ri) = (half(&relation, 0)?, half(&relation, 1)?);
        let real = ((&hr * &rr)? - (&hi * &ri)?)?;
        let imaginary = ((&hr * &ri)? + (&hi * &rr)?)?;
        let product = Tensor::cat(&[&real, &imaginary], 1)?;
        let product = match &self.norms {
            Some([_, norm]) => norm.forward(&product, is_training)?,
            None => product,
        };
        let mut logits = product.matmul(&self.entities.t()?)?;
        if let Some(absent) = &self.absent {
            logits = logits.broadcast_add(absent)?;
        }
        let likely = candle_nn::ops::softmax(&logits, 1)?;
        Ok(HeadOutput { likely, logits: Some(logits), bridges, steps: Vec::new() })
    }

    /// The sum (inputs, 2k) of the vectors of the named entities by their attention weights, and these (inputs, most).
    fn named(
        &self,
        names: &NamesAttention,
        states: &Tensor,
        inputs: &[&EncodedQuestion],
        query: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        let tokens = Tokens::new(inputs, states, |input| input.named.iter().map(|name| name.0).collect())?;
        let (size, most) = (inputs.len(), tokens.most());
        let mut ids = vec![0u32; size * most];
        for (row, input) in inputs.iter().enumerate() {
            for (at, (_, name)) in input.named.iter().enumerate() {
                ids[row * most + at] = name.entity;
            }
        }
        let width = self.entities.dim(1)?;
        let vectors = self.entities.index_select(&Tensor::new(ids, states.device())?, 0)?;
        let vectors = vectors.reshape((size, most, width))?;
        let context = tokens.states(states)?;
        let width = context.dim(2)?;
        let context = names.named.forward(&context.reshape((size * most, width))?)?;
        let context = context.reshape((size, most, width))?;
        let logits = (scaled_products(&context, &names.query.forward(query)?)?
            + scaled_products(&vectors, &names.kind.forward(query)?)?)?;
        let bridges = tokens.shares(&logits)?;
        Ok((weighted(&vectors, &bridges)?, bridges))
    }
}

/// No attention (inputs, most) on names.
pub(super) fn unseen(inputs: &[&EncodedQuestion], states: &Tensor) -> Result<Tensor> {
    let most = inputs.iter().map(|input| input.named.len()).max().unwrap_or(0).max(1);
    Ok(Tensor::zeros((inputs.len(), most), states.dtype(), states.device())?)
}
