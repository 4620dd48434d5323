//! Training of document-level relations and their evidence.

use candle_core::{DType, Device, Tensor};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sporran_checkpoint::{Error, Result, tensors_under};
use sporran_training::{
    Gradients, Objective, Pick, TrainingOptions, TunedEncoder, Variables, shuffled_batches,
};
use sporran_transformers::{BertTask, Checkpoint, EncoderRow, Mode};

use super::entity_head::{ENTITY_HEAD, EntityDocument, EntityHead, EntityHeadConfig, EntityScores};

/// A document with its relations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityExample {
    /// The document.
    pub document: EntityDocument,
    /// The labels that hold, as the indices of a pair and a label; all others do not hold.
    pub holds: Vec<(usize, usize)>,
    /// Evidence as the indices of a pair and a sentence. Pairs without evidence do not train it.
    pub evidence: Vec<(usize, usize)>,
}

/// The options of the training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EntityLearning {
    /// The weight of the evidence loss; 0 disables it.
    pub evidence: f64,
    /// The share of tokens, except markers before mentions, that are masked, sampled again each time.
    pub hidden: f64,
    /// The mask token.
    pub mask: u32,
}

/// The balanced softmax `log(1 + sum of e^l over labels that do not hold) + log(1 + sum of e^-l over those
/// that hold)` (Zhang et al., 2021), the mean over pairs. It moves the logits of labels that hold above zero
/// and all others below. The evidence loss is `-log` of the attention on a pair's evidence, times
/// [`EntityLearning::evidence`], the mean over pairs with evidence (after Ma et al., 2023).
pub struct EntityObjective<'a> {
    encoder: &'a TunedEncoder,
    head: &'a EntityHead,
    examples: Vec<EntityExample>,
    learning: EntityLearning,
    tokens_per_batch: usize,
    seed: u64,
}

impl<'a> EntityObjective<'a> {
    /// Trains `encoder` and `head` on `examples`. The head's weights are among the encoder's variables.
    /// Examples without pairs are skipped.
    ///
    /// # Errors
    /// [`Error::Batch`] for an index out of range; [`Error::Options`] for a wrong share of masked tokens; [`Error::Training`] if the
    /// encoder does not train the head.
    pub fn new(
        encoder: &'a TunedEncoder,
        head: &'a EntityHead,
        mut examples: Vec<EntityExample>,
        learning: EntityLearning,
        options: &TrainingOptions,
    ) -> Result<Self> {
        let name = format!("{ENTITY_HEAD}.output.weight");
        if encoder.variables().named(&name).is_none() {
            return Err(Error::Training {
                what: "the entity head".into(),
                expected: format!("`{name}` among the encoder's variables"),
                found: "none".into(),
            });
        }
        if !(0.0..1.0).contains(&learning.hidden) {
            return Err(Error::Options {
                option: "hidden",
                expected: "at least 0 and below 1".into(),
                found: learning.hidden.to_string(),
            });
        }
        examples.retain(|example| !example.document.pairs.is_empty());
        for (at, example) in examples.iter().enumerate() {
            example.document.check(head.config().features)?;
            let (pairs, labels) = (example.document.pairs.len(), head.config().labels);
            let sentences = example.document.sentence_count();
            for (what, numbers, most) in
                [("labels", &example.holds, labels), ("sentences", &example.evidence, sentences)]
            {
                if let Some(found) = numbers.iter().find(|(pair, other)| *pair >= pairs || *other >= most) {
                    let expected = format!("pairs below {pairs} and {what} below {most} in example {at}");
                    return Err(Error::Batch { expected, found: format!("{found:?}") });
                }
            }
        }
        let (tokens_per_batch, seed) = (options.tokens_per_batch, options.seed);
        Ok(Self { encoder, head, examples, learning, tokens_per_batch, seed })
    }

    fn members(&self, batch: &[usize]) -> impl Iterator<Item = &EntityExample> {
        batch.iter().map(|&at| &self.examples[at])
    }

    /// The rows of a document with some tokens masked.
    fn with_hidden(&self, document: &EntityDocument, random: &mut ChaCha8Rng) -> Vec<EncoderRow> {
        let mut rows = document.rows.clone();
        let mut marks: Vec<usize> = document.entities.concat();
        marks.sort_unstable();
        // A token of two windows is masked in the one that it is read from.
        for (token, place) in document.places.iter().enumerate() {
            if random.random_bool(self.learning.hidden) && marks.binary_search(&token).is_err() {
                let mut rest = *place;
                for row in &mut rows {
                    if rest < row.ids.len() {
                        row.ids[rest] = self.learning.mask;
                        break;
                    }
                    rest -= row.ids.len();
                }
            }
        }
        rows
    }
}

/// The rows of documents, and the positions of their tokens among all tokens of these.
fn joined<'e>(documents: impl Iterator<Item = &'e EntityDocument>) -> (Vec<&'e EncoderRow>, Vec<usize>) {
    let (mut rows, mut places, mut first) = (Vec::new(), Vec::new(), 0);
    for document in documents {
        places.extend(document.places.iter().map(|place| first + place));
        rows.extend(&document.rows);
        first += document.length();
    }
    (rows, places)
}

/// Opens the encoder in a folder, with the folder's entity head if it has one, or with one initialised from
/// `seed`.
///
/// # Errors
/// As for [`TunedEncoder::open`], those of [`EntityHead::new`], and a tensor error if the folder's head has other sizes.
pub fn open_with_entities(
    checkpoint: &Checkpoint,
    head: &EntityHeadConfig,
    seed: u64,
    device: &Device,
) -> Result<(TunedEncoder, EntityHead)> {
    let (config, mut tensors) = TunedEncoder::start(checkpoint, BertTask::States, 2)?;
    tensors.extend(tensors_under(checkpoint.folder(), ENTITY_HEAD, DType::F32, &Device::Cpu)?);
    let variables = Variables::with_initial(seed, tensors);
    // The encoder trains all variables that exist at its creation.
    let head = EntityHead::new(head, &variables.builder(device))?;
    Ok((TunedEncoder::new(&config, variables, device)?, head))
}

/// The scores of a head for a document with the current weights.
///
/// # Errors
/// Those of [`TunedEncoder::states`] and of [`EntityHead::forward`].
pub fn entity_scores(
    encoder: &TunedEncoder,
    head: &EntityHead,
    document: &EntityDocument,
) -> Result<EntityScores> {
    let (rows, places) = joined(std::iter::once(document));
    let states = encoder.states(&rows, Pick::Tokens(&places))?;
    head.forward(&states, document, &mut Mode::Inference)
}

impl Objective for EntityObjective<'_> {
    type Batch = Vec<usize>;

    fn check(&self, options: &TrainingOptions) -> Result<()> {
        options.refuse_smoothing("entities are learned")
    }

    fn epoch(&self, number: u64) -> Result<Vec<Vec<usize>>> {
        let lengths: Vec<usize> = self.examples.iter().map(|example| example.document.length()).collect();
        Ok(shuffled_batches(&lengths, self.tokens_per_batch, self.seed, number))
    }

    fn weight(&self, batch: &Vec<usize>) -> f64 {
        self.members(batch).map(|example| example.document.pairs.len() as f64).sum()
    }

    fn tokens(&self, batch: &Vec<usize>) -> usize {
        self.members(batch).map(|example| example.document.length()).sum()
    }

    fn learn(&self, batch: &Vec<usize>, weight: f64, seed: u64, gradients: &mut Gradients) -> Result<f64> {
        let (rows, places) = joined(self.members(batch).map(|example| &example.document));
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let hidden: Vec<EncoderRow> = match self.learning.hidden {
            0.0 => Vec::new(),
            _ => self
                .members(batch)
                .flat_map(|example| self.with_hidden(&example.document, &mut random))
                .collect(),
        };
        let rows = if hidden.is_empty() { rows } else { hidden.iter().collect() };
        self.encoder.learn(&rows, Pick::Tokens(&places), seed, gradients, |states, mode| {
            let (mut sum, mut first): (Option<Tensor>, usize) = (None, 0);
            for example in self.members(batch) {
                let tokens = example.document.places.len();
                let own = states.narrow(0, first, tokens)?;
                first += tokens;
                let scores = self.head.forward(&own, &example.document, mode)?;
                let mut loss = (balanced(&scores.logits, &example.holds)? / weight)?;
                if self.learning.evidence > 0.0 && !example.evidence.is_empty() {
                    // Weighted like the document's pairs, so that its share does not depend on the number of
                    // pairs with evidence.
                    let share = self.learning.evidence * example.document.pairs.len() as f64 / weight;
                    loss = (loss + (shown(&scores.attention, example)? * share)?)?;
                }
                sum = Some(match sum {
                    Some(sum) => (sum + loss)?,
                    None => loss,
                });
            }
            sum.ok_or_else(|| Error::Batch { expected: "at least one document".into(), found: "none".into() })
        })
    }
}

/// The balanced softmax of logits (pairs, labels), summed over pairs.
fn balanced(logits: &Tensor, holds: &[(usize, usize)]) -> Result<Tensor> {
    /// Far below any logit, and finite.
    const OUT: f64 = 1e4;
    let (pairs, labels) = logits.dims2()?;
    let mut known = vec![0.0f32; pairs * labels];
    for (pair, label) in holds {
        known[pair * labels + label] = 1.0;
    }
    let device = logits.device();
    let known = Tensor::from_vec(known, (pairs, labels), device)?.to_dtype(logits.dtype())?;
    let zero = Tensor::zeros((pairs, 1), logits.dtype(), device)?;
    let absent = (logits - (&known * OUT)?)?;
    let present = (logits.neg()? - ((1.0 - &known)? * OUT)?)?;
    let sums = |xs: Tensor| -> Result<Tensor> { Ok(Tensor::cat(&[&xs, &zero], 1)?.log_sum_exp(1)?) };
    Ok((sums(absent)? + sums(present)?)?.sum_all()?)
}

/// The mean over pairs with evidence of `-log` of their attention on it.
fn shown(attention: &Tensor, example: &EntityExample) -> Result<Tensor> {
    let mut pairs: Vec<u32> = example.evidence.iter().map(|(pair, _)| *pair as u32).collect();
    pairs.sort_unstable();
    pairs.dedup();
    let sentences = &example.document.sentences;
    let mut mask = vec![0.0f32; pairs.len() * sentences.len()];
    for (pair, sentence) in &example.evidence {
        // The list contains every pair with evidence.
        let row = pairs.partition_point(|other| (*other as usize) < *pair);
        let row = &mut mask[row * sentences.len()..][..sentences.len()];
        row.iter_mut().zip(sentences).filter(|(_, own)| *own == sentence).for_each(|(cell, _)| *cell = 1.0);
    }
    let device = attention.device();
    let mask = Tensor::from_vec(mask, (pairs.len(), sentences.len()), device)?.to_dtype(attention.dtype())?;
    let shares = (attention.index_select(&Tensor::new(pairs, device)?, 0)? * mask)?.sum(1)?;
    Ok((shares + 1e-6)?.log()?.mean_all()?.neg()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document_relations::entity_head::tests::config;
    use sporran_training::{Training, train};
    use sporran_transformers::{BertConfig, StatePair};

    fn body() -> BertConfig {
        BertConfig {
            vocab_size: 50,
            hidden_size: 24,
            num_hidden_layers: 2,
            num_attention_heads: 3,
            intermediate_size: 40,
            hidden_dropout_prob: 0.0,
            attention_probs_dropout_prob: 0.0,
            head_dropout: 0.0,
            max_position_embeddings: 32,
            initializer_range: 0.3,
            layer_norm_eps: 1e-5,
            pad_token_id: 1,
            ..BertConfig::default()
        }
    }

    fn model() -> (TunedEncoder, EntityHead) {
        let body = body();
        let variables = Variables::new(3);
        let head = EntityHead::new(&config(24), &variables.builder(&Device::Cpu)).unwrap();
        (TunedEncoder::new(&body, variables, &Device::Cpu).unwrap(), head)
    }

    fn learning(evidence: f64) -> EntityLearning {
        EntityLearning { evidence, hidden: 0.0, mask: 8 }
    }

    /// Two entities with two mentions each. The first token determines the label, and the second sentence is
    /// the evidence.
    fn examples(count: usize) -> Vec<EntityExample> {
        let each = (0..count as u32).map(|i| {
            let length = 3 + (i * 5 + 1) % 7;
            let mut ids: Vec<u32> = (0..length.min(6)).map(|j| 4 + (i * 11 + j * 7 + 3) % 46).collect();
            ids.resize(6, 9);
            let row = EncoderRow { ids, types: vec![0; 6] };
            let label = usize::from(row.ids[1].is_multiple_of(2));
            let pair = |first, second| StatePair { first, second, features: vec![first + second] };
            let document = EntityDocument {
                rows: vec![row],
                places: vec![1, 2, 3, 4],
                sentences: vec![0, 0, 1, 1],
                entities: vec![vec![0, 3], vec![1]],
                pairs: vec![pair(0, 1), pair(1, 0)],
            };
            EntityExample { document, holds: vec![(0, label)], evidence: vec![(0, 1)] }
        });
        each.collect()
    }

    #[test]
    fn the_balanced_softmax_follows_its_formula() {
        let logits = Tensor::new(&[[0.3f32, -1.2, 2.0], [0.1, 0.2, 0.3]], &Device::Cpu).unwrap();
        let found = balanced(&logits, &[(0, 2), (0, 0)]).unwrap().to_scalar::<f32>().unwrap();
        let ln = |terms: &[f32]| (1.0 + terms.iter().map(|x| x.exp()).sum::<f32>()).ln();
        let expected = ln(&[-1.2]) + ln(&[-2.0, -0.3]) + ln(&[0.1, 0.2, 0.3]);
        assert!((found - expected).abs() < 1e-5, "{found} {expected}");
    }

    #[test]
    fn what_holds_and_what_shows_it_are_learned() {
        let (encoder, head) = model();
        let examples = examples(24);
        let options = TrainingOptions {
            steps: 150,
            warmup_steps: Some(5),
            tokens_per_batch: 80,
            learning_rate: 2e-3,
            ..TrainingOptions::default()
        };
        let objective =
            EntityObjective::new(&encoder, &head, examples.clone(), learning(0.5), &options).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let training = Training {
            objective: &objective,
            variables: encoder.variables(),
            options: &options,
            evaluate: None,
            folder: folder.path(),
            extra_files: &[],
        };
        train(&training, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
        for example in &examples {
            let scores = entity_scores(&encoder, &head, &example.document).unwrap();
            let logits = scores.logits.to_vec2::<f32>().unwrap();
            let holds: Vec<(usize, usize)> = (0..2)
                .flat_map(|pair| (0..3).map(move |label| (pair, label)))
                .filter(|&(pair, label)| logits[pair][label] > 0.0)
                .collect();
            assert_eq!(holds, example.holds);
            let attention = scores.attention.to_vec2::<f32>().unwrap();
            assert!(attention[0][2] + attention[0][3] > 0.8, "{:?}", attention[0]);
        }
    }

    #[test]
    fn a_batch_has_the_gradients_that_differences_show() {
        let (encoder, head) = model();
        let options = TrainingOptions { tokens_per_batch: 100, ..TrainingOptions::default() };
        let objective = EntityObjective::new(&encoder, &head, examples(3), learning(0.3), &options).unwrap();
        let batch = &objective.epoch(0).unwrap()[0];
        let weight = objective.weight(batch);
        let learn = || {
            let mut gradients: Gradients =
                encoder.variables().all().iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect();
            let loss = objective.learn(batch, weight, 0, &mut gradients).unwrap();
            (loss, gradients)
        };
        let (_, gradients) = learn();
        for ((name, var), gradient) in encoder.variables().all().iter().zip(&gradients) {
            let norm = gradient.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
            if !name.starts_with(ENTITY_HEAD) {
                continue;
            }
            assert!(norm > 1e-5, "{name} has no gradient");
            let before = var.as_tensor().copy().unwrap();
            let direction = Tensor::from_slice(gradient, var.shape(), &Device::Cpu).unwrap();
            let at = |step: f64| {
                var.set(&(&before + (&direction * (step / norm)).unwrap()).unwrap()).unwrap();
                learn().0
            };
            let slope = (at(2e-2) - at(-2e-2)) / 4e-2;
            var.set(&before).unwrap();
            assert!((slope - norm).abs() < 0.05 * norm + 1e-4, "{name}: {slope} {norm}");
        }
    }

    #[test]
    fn some_tokens_are_hidden_and_no_markers() {
        let (encoder, head) = model();
        let all = EntityLearning { evidence: 0.0, hidden: 0.5, mask: 8 };
        let objective = EntityObjective::new(&encoder, &head, examples(40), all, &TrainingOptions::default());
        let objective = objective.unwrap();
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut hidden = 0;
        for example in &objective.examples {
            let shown = objective.with_hidden(&example.document, &mut random).remove(0).ids;
            // Of four tokens three represent entities, and special tokens are no words.
            let may = |at: usize| at == 3;
            for (at, (now, before)) in shown.iter().zip(&example.document.rows[0].ids).enumerate() {
                assert!(now == before || (may(at) && *now == 8), "{at}");
            }
            hidden += usize::from(shown[3] == 8);
        }
        assert!((10..=30).contains(&hidden), "{hidden}");
    }

    #[test]
    fn numbers_of_nothing_are_refused() {
        let (encoder, head) = model();
        let message = |change: fn(&mut EntityExample)| {
            let mut examples = examples(2);
            change(&mut examples[1]);
            let made =
                EntityObjective::new(&encoder, &head, examples, learning(0.0), &TrainingOptions::default());
            made.err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(message(|example| example.holds.push((0, 3))).contains("labels below 3"));
        assert!(message(|example| example.evidence.push((1, 2))).contains("sentences below 2"));
        assert!(message(|example| example.document.places.push(6)).contains("places below 6"));
        let other = TunedEncoder::new(&body(), Variables::new(3), &Device::Cpu).unwrap();
        let made =
            EntityObjective::new(&other, &head, examples(1), learning(0.0), &TrainingOptions::default());
        assert!(made.err().unwrap().to_string().contains("entity_head"));
    }
}
