//! A head that predicts relations between a document's entities, each of which may have several mentions.

use std::path::Path;

use candle_core::{D, DType, Device, Tensor};
use candle_nn::VarBuilder;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::{Error, Result, tensors_under};
use sporran_transformers::{
    EncoderRow, Mode, StatePair,
    layers::{Embedding, Linear},
};

/// The prefix of an entity head's tensors in a folder of weights.
pub const ENTITY_HEAD: &str = "entity_head";

/// The sizes of an entity head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EntityHeadConfig {
    /// Size of the hidden states, d.
    pub width: usize,
    /// Size of an entity's projection; a multiple of `block` and of `heads`.
    pub inner: usize,
    /// Group size of the bilinear form: all products within a group are features.
    pub block: usize,
    /// Attention heads that find the relevant tokens of both entities.
    pub heads: usize,
    /// The number of features; a pair's feature indices are below this.
    pub features: usize,
    /// The number of labels; a pair may have several.
    pub labels: usize,
    /// The dropout in training.
    pub dropout: f64,
}

/// A document as encoder input, in one row or in several overlapping ones, with the positions of its
/// entities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityDocument {
    /// The document's tokens with special tokens.
    pub rows: Vec<EncoderRow>,
    /// For each token of the document its position among all tokens of `rows`.
    pub places: Vec<usize>,
    /// For each token of the document the index of its sentence.
    pub sentences: Vec<usize>,
    /// For each entity the tokens that represent its mentions, as indices into `places`; at least one.
    pub entities: Vec<Vec<usize>>,
    /// Pairs of entities, as indices into `entities`.
    pub pairs: Vec<StatePair>,
}

impl EntityDocument {
    /// The number of tokens in all rows.
    #[must_use]
    pub fn length(&self) -> usize {
        self.rows.iter().map(|row| row.ids.len()).sum()
    }

    /// The number of sentences.
    #[must_use]
    pub fn sentence_count(&self) -> usize {
        self.sentences.iter().max().map_or(0, |last| last + 1)
    }

    /// Checks its indices, for a head with `features` features.
    pub(crate) fn check(&self, features: usize) -> Result<()> {
        let wrong = |expected: String, found: String| Err(Error::Batch { expected, found });
        let (length, tokens) = (self.length(), self.places.len());
        if let Some(place) = self.places.iter().find(|place| **place >= length) {
            return wrong(format!("places below {length}"), place.to_string());
        }
        if self.sentences.len() != tokens {
            return wrong(format!("sentences of {tokens} tokens"), self.sentences.len().to_string());
        }
        for (at, mentions) in self.entities.iter().enumerate() {
            if mentions.is_empty() || mentions.iter().any(|token| *token >= tokens) {
                return wrong(
                    format!("entity {at} with mentions at tokens below {tokens}"),
                    format!("{mentions:?}"),
                );
            }
        }
        let known = self.pairs.first().map_or(0, |pair| pair.features.len());
        if known == 0 {
            return wrong("at least one pair with at least one feature".into(), "none".into());
        }
        let entities = self.entities.len();
        for pair in &self.pairs {
            if pair.first.max(pair.second) as usize >= entities {
                return wrong(
                    format!("entities below {entities}"),
                    format!("{} and {}", pair.first, pair.second),
                );
            }
            if pair.features.len() != known || pair.features.iter().any(|at| *at as usize >= features) {
                return wrong(format!("{known} features below {features}"), format!("{:?}", pair.features));
            }
        }
        Ok(())
    }
}

/// The output of a head for a document's pairs.
#[derive(Debug, Clone)]
pub struct EntityScores {
    /// The logits of the labels, (pairs, labels).
    pub logits: Tensor,
    /// The attention of each pair over tokens, (pairs, tokens); each row sums to 1.
    pub attention: Tensor,
}

/// A classifier of ordered pairs of a document's entities, after ATLOP (Zhou et al., 2021).
///
/// An entity is the logsumexp of its mentions' hidden states. The context `c` of a pair is the mean of the
/// hidden states, weighted by the normalised product of both entities' attentions. The entity `s`, the
/// context and the pair's features give `z_s = tanh(S s + C c + f)`, and `z_o` likewise. The labels use all
/// products within groups of `z_s` and `z_o` (a grouped bilinear form) and both vectors. Unlike in ATLOP, the
/// attention belongs to the head instead of the encoder's last layer, so it can be trained on evidence
/// (DREEAM; Ma et al., 2023).
#[derive(Debug, Clone)]
pub struct EntityHead {
    query: Linear,
    key: Linear,
    subject: Linear,
    object: Linear,
    subject_context: Linear,
    object_context: Linear,
    features: Embedding,
    output: Linear,
    config: EntityHeadConfig,
}

impl EntityHead {
    /// Takes the weights from `vb` under [`ENTITY_HEAD`].
    ///
    /// # Errors
    /// [`Error::Options`] if `inner` is not a multiple of `block` and `heads`; a tensor error for missing weights or other
    /// shapes.
    pub fn new(config: &EntityHeadConfig, vb: &VarBuilder) -> Result<Self> {
        let EntityHeadConfig { width, inner, block, heads, .. } = *config;
        let divides = |part: usize| part > 0 && inner.is_multiple_of(part);
        if !(divides(block) && divides(heads)) {
            return Err(Error::Options {
                option: "inner",
                expected: format!("a multiple of {block} and of {heads}"),
                found: inner.to_string(),
            });
        }
        let vb = vb.pp(ENTITY_HEAD);
        let std = (1.0 / width as f64).sqrt();
        Ok(Self {
            query: Linear::new(width, inner, std, &vb.pp("query"))?,
            key: Linear::new(width, inner, std, &vb.pp("key"))?,
            subject: Linear::with_bias(width, inner, std, &vb.pp("subject"))?,
            object: Linear::with_bias(width, inner, std, &vb.pp("object"))?,
            subject_context: Linear::new(width, inner, std, &vb.pp("subject_context"))?,
            object_context: Linear::new(width, inner, std, &vb.pp("object_context"))?,
            features: Embedding::new(config.features, 2 * inner, 0.1, &vb.pp("features"))?,
            output: Linear::with_bias(inner * block + 2 * inner, config.labels, 0.02, &vb.pp("output"))?,
            config: config.clone(),
        })
    }

    /// Reads the head from a folder of weights that also contains its encoder.
    ///
    /// # Errors
    /// Errors of opening weights, and of [`new`](Self::new).
    pub fn open(folder: &Path, config: &EntityHeadConfig, device: &Device) -> Result<Self> {
        let tensors = tensors_under(folder, ENTITY_HEAD, DType::F32, device)?;
        Self::new(config, &VarBuilder::from_tensors(tensors, DType::F32, device))
    }

    /// Its sizes.
    #[must_use]
    pub fn config(&self) -> &EntityHeadConfig {
        &self.config
    }

    /// Maps the hidden states (tokens, d) of a document's tokens, in the order of its `places`, to scores of
    /// its pairs.
    ///
    /// # Errors
    /// [`Error::Batch`] for an index out of range or a document without pairs; a tensor error.
    pub fn forward(
        &self,
        states: &Tensor,
        document: &EntityDocument,
        mode: &mut Mode,
    ) -> Result<EntityScores> {
        document.check(self.config.features)?;
        let EntityHeadConfig { inner, block, heads, dropout, .. } = self.config;
        let device = states.device();
        let pairs = document.pairs.len();
        let column = |of: fn(&StatePair) -> u32| {
            Tensor::new(document.pairs.iter().map(of).collect::<Vec<_>>(), device)
        };
        let (first, second) = (column(|pair| pair.first)?, column(|pair| pair.second)?);
        let states = mode.dropout(states.clone(), dropout)?;
        let entities = pooled(&states, &document.entities)?;

        let split = |xs: Tensor| -> Result<Tensor> {
            let rows = xs.dim(0)?;
            Ok(xs.reshape((rows, heads, inner / heads))?.transpose(0, 1)?.contiguous()?)
        };
        let (query, key) = (split(self.query.forward(&entities)?)?, split(self.key.forward(&states)?)?);
        let scale = ((inner / heads) as f64).sqrt().recip();
        let weights = (query.matmul(&key.transpose(1, 2)?.contiguous()?)? * scale)?;
        let weights = candle_nn::ops::softmax(&weights, D::Minus1)?;
        let both = (weights.index_select(&first, 1)? * weights.index_select(&second, 1)?)?.sum(0)?;
        let attention = both.broadcast_div(&(both.sum_keepdim(1)? + 1e-9)?)?;
        let context = attention.matmul(&states)?;

        let known = document.pairs[0].features.len();
        let features: Vec<u32> =
            document.pairs.iter().flat_map(|pair| pair.features.iter().copied()).collect();
        let features = Tensor::from_vec(features, (pairs, known), device)?;
        let features = self.features.forward(&features)?.sum(1)?;
        let side = |entity: &Linear, context_of: &Linear, at: &Tensor, half: usize| -> Result<Tensor> {
            let entity = entity.forward(&entities)?.index_select(at, 0)?;
            let sum =
                ((entity + context_of.forward(&context)?)? + features.narrow(1, half * inner, inner)?)?;
            Ok(sum.tanh()?)
        };
        let subject = side(&self.subject, &self.subject_context, &first, 0)?;
        let object = side(&self.object, &self.object_context, &second, 1)?;
        let parts = inner / block;
        let products = subject
            .reshape((pairs, parts, block, 1))?
            .broadcast_mul(&object.reshape((pairs, parts, 1, block))?)?
            .reshape((pairs, inner * block))?;
        let read = mode.dropout(Tensor::cat(&[products, subject, object], D::Minus1)?, dropout)?;
        Ok(EntityScores { logits: self.output.forward(&read)?, attention })
    }
}

/// For each entity the logsumexp of its mentions' hidden states, (entities, d).
fn pooled(states: &Tensor, entities: &[Vec<usize>]) -> Result<Tensor> {
    let device = states.device();
    let places: Vec<u32> = entities.iter().flatten().map(|token| *token as u32).collect();
    let count = places.len();
    let mut members = vec![0.0f32; entities.len() * count];
    let mut next = 0;
    for (entity, mentions) in entities.iter().enumerate() {
        members[entity * count + next..][..mentions.len()].fill(1.0);
        next += mentions.len();
    }
    let members = Tensor::from_vec(members, (entities.len(), count), device)?.to_dtype(states.dtype())?;
    let mentions = states.index_select(&Tensor::new(places, device)?, 0)?;
    let highest = mentions.max_keepdim(0)?.detach();
    let sums = members.matmul(&mentions.broadcast_sub(&highest)?.exp()?)?;
    Ok(sums.log()?.broadcast_add(&highest)?)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use sporran_training::Variables;

    pub(crate) fn config(width: usize) -> EntityHeadConfig {
        EntityHeadConfig { width, inner: 8, block: 4, heads: 2, features: 5, labels: 3, dropout: 0.0 }
    }

    fn head() -> EntityHead {
        EntityHead::new(&config(4), &Variables::new(5).builder(&Device::Cpu)).unwrap()
    }

    fn states() -> Tensor {
        let values: Vec<f32> = (0..20).map(|at| (at as f32 * 0.7).sin()).collect();
        Tensor::from_vec(values, (5, 4), &Device::Cpu).unwrap()
    }

    fn pair(first: u32, second: u32, features: &[u32]) -> StatePair {
        StatePair { first, second, features: features.to_vec() }
    }

    fn document(entities: &[&[usize]], pairs: &[StatePair]) -> EntityDocument {
        EntityDocument {
            rows: vec![EncoderRow { ids: vec![1; 7], types: vec![0; 7] }],
            places: (1..6).collect(),
            sentences: vec![0, 0, 1, 1, 1],
            entities: entities.iter().map(|mentions| mentions.to_vec()).collect(),
            pairs: pairs.to_vec(),
        }
    }

    #[test]
    fn an_entity_is_the_log_of_its_mentions_summed_exponents() {
        let found = pooled(&states(), &[vec![0, 3], vec![2]]).unwrap().to_vec2::<f32>().unwrap();
        let states = states().to_vec2::<f32>().unwrap();
        for column in 0..4 {
            let expected = (states[0][column].exp() + states[3][column].exp()).ln();
            assert!((found[0][column] - expected).abs() < 1e-6);
            assert!((found[1][column] - states[2][column]).abs() < 1e-6);
        }
    }

    #[test]
    fn logits_do_not_depend_on_other_pairs_and_order_matters() {
        let (head, states) = (head(), states());
        let of = |pairs: &[StatePair]| {
            let document = document(&[&[0, 3], &[2], &[4]], pairs);
            let scores = head.forward(&states, &document, &mut Mode::Inference).unwrap();
            let attention = scores.attention.to_vec2::<f32>().unwrap();
            assert!(attention.iter().all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-5));
            scores.logits.to_vec2::<f32>().unwrap()
        };
        let (one, other) = (pair(0, 1, &[1, 4]), pair(1, 0, &[1, 4]));
        let both = of(&[one.clone(), other.clone(), pair(0, 2, &[0, 0])]);
        for (alone, together) in [of(&[one]), of(&[other])].iter().zip(&both) {
            assert!(alone[0].iter().zip(together).all(|(a, b)| (a - b).abs() < 1e-6));
        }
        assert!((both[0][0] - both[1][0]).abs() > 1e-4);
    }

    #[test]
    fn documents_that_cannot_be_are_refused() {
        let message = |document: EntityDocument| {
            head().forward(&states(), &document, &mut Mode::Inference).unwrap_err().to_string()
        };
        let entities: [&[usize]; 2] = [&[0], &[2]];
        assert!(message(document(&entities, &[])).contains("at least one pair"));
        assert!(message(document(&entities, &[pair(0, 2, &[0])])).contains("entities below 2"));
        assert!(message(document(&entities, &[pair(0, 1, &[5])])).contains("features below 5"));
        assert!(message(document(&[&[0], &[5]], &[pair(0, 1, &[0])])).contains("entity 1"));
        let odd = EntityHeadConfig { block: 3, ..config(4) };
        let error = EntityHead::new(&odd, &Variables::new(5).builder(&Device::Cpu)).unwrap_err();
        assert!(error.to_string().contains("multiple of 3"));
    }
}
