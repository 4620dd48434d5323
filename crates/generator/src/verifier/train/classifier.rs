//! Training of one classifier of pairs: a fine-tuned encoder, or a matching network with random initial weights.

use std::{path::Path, sync::Arc};

use candle_core::DType;
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_checkpoint::Tokenizer;
use sporran_kilt::observe::Observer;
use sporran_training::{
    ClassificationObjective, EvaluationError, LabelledRow, TunedEncoder, Variables, VocabularyOptions,
    session::{Evaluate, Trained, TrainingSession, encoder_files},
    tokenizer_files, train_vocabulary,
};
use sporran_transformers::{BertTask, Checkpoint, EncoderInput, EncoderRow, Truncation};

use super::{
    NOT_ENOUGH_INFO,
    claim::{Claim, Other},
};
use crate::{
    Result,
    training::{GeneratorTraining, MatchingOptions},
    verifier::{
        Labeller, Matcher, SelectionOptions, VerifierOptions,
        labels::texts,
        nsmn::{LabelledPair, MatchingObjective, NSMN, Nsmn, NsmnConfig, TokenPair},
        token_pair,
    },
};

/// A training example: a claim and labelled pieces.
pub(super) struct ClaimExample {
    claim: String,
    /// Pieces of every epoch.
    always: Vec<(String, u32)>,
    /// Pieces to sample from in each epoch.
    sampled: Vec<Pool<String>>,
}

/// Pieces of which each epoch has some, with their label.
struct Pool<T> {
    pieces: Vec<T>,
    label: u32,
    /// The number of pieces in an epoch.
    count: usize,
}

/// How many pieces without evidence an epoch has for each claim.
#[derive(Clone, Copy)]
pub(super) struct Negatives {
    /// Of all pages, or of pages without evidence if `of_gold_pages` is given.
    pub(super) count: usize,
    /// Of pages with evidence.
    pub(super) of_gold_pages: Option<usize>,
}

impl Negatives {
    fn pools(self, others: &[Other], label: u32) -> Vec<Pool<String>> {
        let pool = |count, is_kept: &dyn Fn(&Other) -> bool| {
            let kept = others.iter().filter(|other| is_kept(other));
            Pool { pieces: kept.map(|other| other.text.clone()).collect(), label, count }
        };
        match self.of_gold_pages {
            None => vec![pool(self.count, &|_| true)],
            Some(count) => {
                vec![pool(self.count, &|other| !other.of_gold_page), pool(count, &|other| other.of_gold_page)]
            }
        }
    }
}

impl ClaimExample {
    /// Labels pieces by whether they are evidence.
    pub(super) fn of_relevance(claim: &Claim, negatives: usize) -> Self {
        let negatives = Negatives { count: negatives, of_gold_pages: None };
        Self {
            claim: claim.text.clone(),
            always: claim.evidence.iter().map(|text| (text.clone(), 1)).collect(),
            sampled: negatives.pools(&claim.others, 0),
        }
    }

    /// Labels pieces by the verdict. With a selection, the pieces of evidence are joined to one.
    pub(super) fn of_verdict(
        claim: &Claim,
        selection: Option<&SelectionOptions>,
        negatives: Negatives,
    ) -> Self {
        let always = match selection {
            None => claim.evidence.iter().map(|text| (text.clone(), claim.label)).collect(),
            Some(selection) => {
                let kept = &claim.evidence[..claim.evidence.len().min(selection.sentences)];
                vec![(kept.join(" "), claim.label)]
            }
        };
        let sampled = negatives.pools(&claim.others, NOT_ENOUGH_INFO);
        Self { claim: claim.text.clone(), always, sampled }
    }
}

/// A tokenized example.
struct Rows<T> {
    always: Vec<(T, u32)>,
    sampled: Vec<Pool<T>>,
}

impl<T: Clone> Rows<T> {
    fn new(example: &ClaimExample, row: impl Fn(&str, &str) -> Result<T>) -> Result<Self> {
        let row = |text: &String| row(&example.claim, text);
        let always = example.always.iter().map(|(text, label)| Ok((row(text)?, *label)));
        let sampled = example.sampled.iter().map(|&Pool { ref pieces, label, count }| {
            Ok(Pool { pieces: pieces.iter().map(row).collect::<Result<_>>()?, label, count })
        });
        Ok(Self { always: always.collect::<Result<_>>()?, sampled: sampled.collect::<Result<_>>()? })
    }

    /// The rows of an epoch: all of `always`, and random ones of each pool.
    fn of_epoch(all: &[Self], seed: u64, epoch: u64) -> Vec<(T, u32)> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x7e21);
        rng.set_stream(epoch);
        let mut shown = Vec::new();
        for rows in all {
            shown.extend(rows.always.iter().cloned());
            for Pool { pieces, label, count } in &rows.sampled {
                let mut order: Vec<usize> = (0..pieces.len()).collect();
                order.shuffle(&mut rng);
                shown.extend(order.into_iter().take(*count).map(|at| (pieces[at].clone(), *label)));
            }
        }
        shown
    }
}

/// Evaluates the current model.
type EvaluateModel<'a> = &'a (dyn Fn(Box<dyn Labeller + '_>) -> Result<f64> + 'a);

/// Trains classifiers of pairs.
pub(super) struct ClassifierTrainer<'a> {
    pub(super) training: &'a GeneratorTraining<'a>,
    pub(super) verifier: &'a VerifierOptions,
    /// The texts for training a vocabulary.
    pub(super) texts: Vec<String>,
}

impl ClassifierTrainer<'_> {
    /// Trains a classifier of `labels`. Saves the best weights in `model`, and checkpoints in the folder `name` of the run.
    pub(super) fn train(
        &self,
        examples: Vec<ClaimExample>,
        labels: &[&str],
        (model, name): (&Path, &str),
        evaluate: Option<EvaluateModel<'_>>,
        observe: &mut Observer<'_>,
    ) -> Result<Trained> {
        let labels: Vec<String> = labels.iter().map(|&label| label.to_owned()).collect();
        match self.training.settings.from {
            Some(from) => self.fine_tune(from, &examples, labels, (model, name), evaluate, observe),
            None => self.train_matching(&examples, labels, (model, name), evaluate, observe),
        }
    }

    fn session<'l>(
        &'l self,
        variables: &'l Variables,
        extra_files: &'l [(String, Vec<u8>)],
        (model, name): (&'l Path, &str),
        dtype: DType,
    ) -> TrainingSession<'l> {
        TrainingSession {
            variables,
            options: self.training.settings.optimizer,
            folder: self.training.folder.join(name),
            model,
            dtype,
            extra_files,
            score: "accuracy",
        }
    }

    fn fine_tune(
        &self,
        from: &Path,
        examples: &[ClaimExample],
        labels: Vec<String>,
        place: (&Path, &str),
        evaluate: Option<EvaluateModel<'_>>,
        observe: &mut Observer<'_>,
    ) -> Result<Trained> {
        let GeneratorTraining { settings, seed, .. } = self.training;
        let (seed, optimizer) = (*seed, settings.optimizer);
        let checkpoint = Checkpoint::open(from)?;
        let device = settings.device.open()?;
        let task = BertTask::SequenceClassification;
        let encoder = TunedEncoder::open(&checkpoint, task, labels.len(), seed, &device)?;
        let length = encoder.config().max_input_length();
        let input =
            EncoderInput::open(&checkpoint, length, self.verifier.max_tokens, Truncation::LongestFirst)?;
        let config = encoder.config().with_labels(labels.clone());
        let extra_files = encoder_files(&checkpoint, &config)?;

        // One pair has one row.
        let row = |claim: &str, text: &str| Ok(input.rows(&texts(&[(claim, text)]))?.swap_remove(0));
        let rows: Vec<Rows<EncoderRow>> =
            examples.iter().map(|example| Rows::new(example, row)).collect::<Result<_>>()?;
        let of_epoch = |epoch| {
            let shown = Rows::of_epoch(&rows, seed, epoch).into_iter();
            shown.map(|(row, label)| LabelledRow { row, label }).collect()
        };
        let objective = ClassificationObjective::new(&encoder, &of_epoch, optimizer)?;
        let tokens = optimizer.tokens_per_batch;
        let evaluate = evaluate.map(|evaluate| {
            let (encoder, input, labels) = (&encoder, &input, &labels);
            move || {
                evaluate(Box::new(ClassifierInTraining { encoder, input, labels, tokens }))
                    .map_err(EvaluationError::from)
            }
        });
        let evaluate = evaluate.as_ref().map(|evaluate| evaluate as Evaluate<'_>);
        Ok(self
            .session(encoder.variables(), &extra_files, place, DType::F32)
            .run(&objective, evaluate, observe)?)
    }

    fn train_matching(
        &self,
        examples: &[ClaimExample],
        labels: Vec<String>,
        place: (&Path, &str),
        evaluate: Option<EvaluateModel<'_>>,
        observe: &mut Observer<'_>,
    ) -> Result<Trained> {
        let GeneratorTraining { settings, seed, .. } = self.training;
        let (seed, optimizer) = (*seed, settings.optimizer);
        let MatchingOptions { vocabulary, embedding_size, hidden_size, projection_size, dropout, max_length } =
            settings.matching;
        let wanted = VocabularyOptions { size: vocabulary, min_frequency: 2, marks: Vec::new() };
        let mut extra_files = tokenizer_files(&train_vocabulary(self.texts.iter(), &wanted)?)?;
        let json = extra_files.iter().find(|(name, _)| name == "tokenizer.json");
        let json = json.map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default();
        let tokenizer = Tokenizer::from_json(&place.0.join("tokenizer.json"), json)?;
        let config = NsmnConfig {
            model_type: NSMN.to_owned(),
            vocab_size: tokenizer.vocab_size(),
            embedding_size,
            hidden_size,
            projection_size,
            dropout,
            max_length,
            labels,
        };
        // Serializing this struct cannot fail.
        let written = serde_json::to_string_pretty(&config).unwrap_or_default();
        extra_files.push(("config.json".to_owned(), format!("{written}\n").into_bytes()));
        let network = Arc::new(Nsmn::new(&config, Variables::new(seed))?);
        let card = self.training.card("verifier", network.variables());
        extra_files.push(("model.toml".to_owned(), card.into_bytes()));

        let row = |claim: &str, text: &str| token_pair(&tokenizer, &network, claim, text);
        let rows: Vec<Rows<TokenPair>> =
            examples.iter().map(|example| Rows::new(example, row)).collect::<Result<_>>()?;
        let of_epoch = |epoch| {
            let shown = Rows::of_epoch(&rows, seed, epoch).into_iter();
            shown.map(|(pair, label)| LabelledPair { pair, label }).collect()
        };
        let objective = MatchingObjective::new(&network, &of_epoch, optimizer);
        let evaluate = evaluate.map(|evaluate| {
            let (network, tokenizer, tokens) = (&network, &tokenizer, self.verifier.batch_tokens);
            move || {
                let matcher = Matcher::new(Arc::clone(network), tokenizer.clone(), tokens)
                    .map_err(EvaluationError::from)?;
                evaluate(Box::new(matcher)).map_err(EvaluationError::from)
            }
        });
        let evaluate = evaluate.as_ref().map(|evaluate| evaluate as Evaluate<'_>);
        // The bundled models are in half precision.
        Ok(self
            .session(network.variables(), &extra_files, place, DType::F16)
            .run(&objective, evaluate, observe)?)
    }
}

/// The classifier over an encoder in training.
struct ClassifierInTraining<'a> {
    encoder: &'a TunedEncoder,
    input: &'a EncoderInput,
    labels: &'a [String],
    tokens: usize,
}

impl Labeller for ClassifierInTraining<'_> {
    fn labels(&self) -> &[String] {
        self.labels
    }

    fn logits(&self, pairs: &[(&str, &str)]) -> Result<Vec<Vec<f32>>> {
        Ok(self.encoder.logits(&self.input.rows(&texts(pairs))?, self.tokens)?)
    }

    fn reads_claims(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> Claim {
        let other = |text: &str, of_gold_page| Other { text: text.to_owned(), of_gold_page };
        Claim {
            text: "c".to_owned(),
            label: 1,
            evidence: vec!["e".to_owned()],
            others: vec![other("o1", false), other("g1", true), other("o2", false), other("g2", true)],
        }
    }

    fn epochs(negatives: Negatives) -> Vec<Vec<(String, u32)>> {
        let example = ClaimExample::of_verdict(&claim(), None, negatives);
        let rows = Rows::new(&example, |claim, text| Ok(format!("{claim} {text}"))).unwrap();
        (0..20).map(|epoch| Rows::of_epoch(std::slice::from_ref(&rows), 3, epoch)).collect()
    }

    #[test]
    fn negatives_are_sampled_from_other_pages_and_from_gold_pages() {
        let mut known: Vec<String> = Vec::new();
        for epoch in epochs(Negatives { count: 1, of_gold_pages: Some(1) }) {
            let [evidence, other, of_gold] = epoch.as_slice() else { panic!("{epoch:?}") };
            assert_eq!(*evidence, ("c e".to_owned(), 1));
            assert!(other.0.starts_with("c o") && of_gold.0.starts_with("c g"), "{epoch:?}");
            assert_eq!((other.1, of_gold.1), (NOT_ENOUGH_INFO, NOT_ENOUGH_INFO));
            known.extend([other.0.clone(), of_gold.0.clone()]);
        }
        known.sort();
        known.dedup();
        assert_eq!(known, ["c g1", "c g2", "c o1", "c o2"]);
    }

    #[test]
    fn without_a_number_for_gold_pages_negatives_are_of_any_page() {
        let epochs = epochs(Negatives { count: 3, of_gold_pages: None });
        assert!(epochs.iter().all(|epoch| epoch.len() == 4));
        let both = |epoch: &Vec<(String, u32)>| {
            ["c o", "c g"].iter().all(|start| epoch.iter().any(|(text, _)| text.starts_with(start)))
        };
        assert!(epochs.iter().all(both), "three of two and two are of both");
    }
}
