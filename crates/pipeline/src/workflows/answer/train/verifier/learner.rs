//! One classifier of pairs in training: an encoder that is tuned, or a matching network from random weights.

use std::{path::Path, sync::Arc};

use candle_core::DType;
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_checkpoint::Tokenizer;
use sporran_generator::{
    LabelledPair, Labeller, Matcher, MatchingObjective, NSMN, Nsmn, NsmnConfig, SelectionOptions, TokenPair,
    VerifierOptions, token_pair,
};
use sporran_training::{
    ClassificationObjective, EvaluationError, LabelledRow, TunedEncoder, Variables, VocabularyOptions,
    tokenizer_files, train_vocabulary,
};
use sporran_transformers::{BertTask, Checkpoint, EncoderInput, EncoderRow, Text, Truncation};

use super::{Claim, NOT_ENOUGH_INFO};
use crate::{
    Result,
    observe::Observer,
    training::{
        outcome::Trained,
        session::{Judge, Learning, encoder_files},
    },
    workflows::answer::{
        options::{MatchingOptions, Options, TrainOptions},
        train::start::card,
    },
};

/// What is learned of a claim: pieces with their labels.
pub(super) struct Lesson {
    claim: String,
    /// Shown in every pass.
    always: Vec<(String, u32)>,
    /// Of these a pass shows some.
    sampled: Vec<(String, u32)>,
}

impl Lesson {
    /// Which pieces are evidence.
    pub(super) fn of_relevance(claim: &Claim) -> Self {
        let label = |texts: &[String], label| texts.iter().map(|text| (text.clone(), label)).collect();
        Self {
            claim: claim.text.clone(),
            always: label(&claim.evidence, 1),
            sampled: label(&claim.others, 0),
        }
    }

    /// What the pieces say, or what they say together where a selection joins them.
    pub(super) fn of_verdict(claim: &Claim, selection: Option<&SelectionOptions>) -> Self {
        let label = |texts: &[String], label| texts.iter().map(|text| (text.clone(), label)).collect();
        let always = match selection {
            None => label(&claim.evidence, claim.label),
            Some(selection) => {
                let kept = &claim.evidence[..claim.evidence.len().min(selection.sentences)];
                vec![(kept.join(" "), claim.label)]
            }
        };
        Self { claim: claim.text.clone(), always, sampled: label(&claim.others, NOT_ENOUGH_INFO) }
    }
}

/// A lesson whose pairs are tokens.
struct Rows<T> {
    always: Vec<(T, u32)>,
    sampled: Vec<(T, u32)>,
}

impl<T: Clone> Rows<T> {
    fn new(lesson: &Lesson, row: impl Fn(&str, &str) -> Result<T>) -> Result<Self> {
        let rows = |pieces: &[(String, u32)]| {
            pieces.iter().map(|(text, label)| Ok((row(&lesson.claim, text)?, *label))).collect::<Result<_>>()
        };
        Ok(Self { always: rows(&lesson.always)?, sampled: rows(&lesson.sampled)? })
    }

    /// What a pass shows of all lessons.
    fn shown(all: &[Self], count: usize, seed: u64, epoch: u64) -> Vec<(T, u32)> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x7e21);
        rng.set_stream(epoch);
        let mut shown = Vec::new();
        for rows in all {
            shown.extend(rows.always.iter().cloned());
            let mut order: Vec<usize> = (0..rows.sampled.len()).collect();
            order.shuffle(&mut rng);
            shown.extend(order.into_iter().take(count).map(|at| rows.sampled[at].clone()));
        }
        shown
    }
}

/// Scores a model as it is.
type Scoring<'a> = &'a (dyn Fn(Box<dyn Labeller + '_>) -> Result<f64> + 'a);

/// Makes classifiers of pairs.
pub(super) struct Learner<'a> {
    pub(super) options: &'a Options,
    pub(super) train: &'a TrainOptions,
    pub(super) verifier: &'a VerifierOptions,
    /// What a vocabulary is learned from.
    pub(super) texts: Vec<String>,
}

impl Learner<'_> {
    /// Learns `labels`; the best weights go to the folder `model`, checkpoints to the folder `name` of the run.
    pub(super) fn learn(
        &self,
        lessons: Vec<Lesson>,
        labels: &[&str],
        (model, name): (&Path, &str),
        judge: Option<Scoring<'_>>,
        observe: &mut Observer<'_>,
    ) -> Result<Trained> {
        let labels: Vec<String> = labels.iter().map(|&label| label.to_owned()).collect();
        match &self.train.from {
            Some(from) => self.tune(from, &lessons, labels, (model, name), judge, observe),
            None => self.match_up(&lessons, labels, (model, name), judge, observe),
        }
    }

    fn learning<'l>(
        &'l self,
        variables: &'l Variables,
        companions: &'l [(String, Vec<u8>)],
        (model, name): (&'l Path, &str),
        dtype: DType,
    ) -> Learning<'l> {
        let general = &self.options.general;
        Learning {
            variables,
            options: &self.train.optimizer,
            folder: general.output.join(&general.name).join(name),
            model,
            dtype,
            companions,
            score: "accuracy",
        }
    }

    fn tune(
        &self,
        from: &Path,
        lessons: &[Lesson],
        labels: Vec<String>,
        place: (&Path, &str),
        judge: Option<Scoring<'_>>,
        observe: &mut Observer<'_>,
    ) -> Result<Trained> {
        let (seed, optimizer) = (self.options.general.seed, &self.train.optimizer);
        let checkpoint = Checkpoint::open(from)?;
        let device = self.train.device.open()?;
        let task = BertTask::SequenceClassification;
        let encoder = TunedEncoder::open(&checkpoint, task, labels.len(), seed, &device)?;
        let length = encoder.config().max_input_length();
        let input =
            EncoderInput::open(&checkpoint, length, self.verifier.max_tokens, Truncation::LongestFirst)?;
        let mut config = encoder.config().clone();
        config.labels = labels.clone();
        let companions = encoder_files(&checkpoint, &config)?;

        // One pair has one row.
        let row = |claim: &str, text: &str| Ok(input.rows(&[Text::Pair(claim, text)])?.swap_remove(0));
        let rows: Vec<Rows<EncoderRow>> =
            lessons.iter().map(|lesson| Rows::new(lesson, row)).collect::<Result<_>>()?;
        let of_epoch = |epoch| {
            let shown = Rows::shown(&rows, self.train.negatives, seed, epoch).into_iter();
            shown.map(|(row, label)| LabelledRow { row, label }).collect()
        };
        let objective = ClassificationObjective::new(&encoder, &of_epoch, optimizer)?;
        let tokens = optimizer.tokens_per_batch;
        let judge = judge.map(|judge| {
            let (encoder, input, labels) = (&encoder, &input, &labels);
            move || judge(Box::new(Tuned { encoder, input, labels, tokens })).map_err(EvaluationError::from)
        });
        let judge = judge.as_ref().map(|judge| judge as Judge<'_>);
        self.learning(encoder.variables(), &companions, place, DType::F32).run(&objective, judge, observe)
    }

    fn match_up(
        &self,
        lessons: &[Lesson],
        labels: Vec<String>,
        place: (&Path, &str),
        judge: Option<Scoring<'_>>,
        observe: &mut Observer<'_>,
    ) -> Result<Trained> {
        let (seed, optimizer) = (self.options.general.seed, &self.train.optimizer);
        let MatchingOptions { vocabulary, embedding_size, hidden_size, projection_size, dropout, max_length } =
            self.train.matching;
        let wanted = VocabularyOptions { size: vocabulary, min_frequency: 2, marks: Vec::new() };
        let mut companions = tokenizer_files(&train_vocabulary(self.texts.iter(), &wanted)?)?;
        let json = companions.iter().find(|(name, _)| name == "tokenizer.json");
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
        // Plain data, whose JSON cannot fail.
        let written = serde_json::to_string_pretty(&config).unwrap_or_default();
        companions.push(("config.json".to_owned(), format!("{written}\n").into_bytes()));
        let network = Arc::new(Nsmn::new(&config, Variables::new(seed))?);
        let card = card(self.options, "verifier", network.variables());
        companions.push(("model.toml".to_owned(), card.into_bytes()));

        let row = |claim: &str, text: &str| Ok(token_pair(&tokenizer, &network, claim, text)?);
        let rows: Vec<Rows<TokenPair>> =
            lessons.iter().map(|lesson| Rows::new(lesson, row)).collect::<Result<_>>()?;
        let of_epoch = |epoch| {
            let shown = Rows::shown(&rows, self.train.negatives, seed, epoch).into_iter();
            shown.map(|(pair, label)| LabelledPair { pair, label }).collect()
        };
        let objective = MatchingObjective::new(&network, &of_epoch, optimizer);
        let judge = judge.map(|judge| {
            let (network, tokenizer, tokens) = (&network, &tokenizer, self.verifier.batch_tokens);
            move || {
                let matcher = Matcher::new(Arc::clone(network), tokenizer.clone(), tokens)
                    .map_err(EvaluationError::from)?;
                judge(Box::new(matcher)).map_err(EvaluationError::from)
            }
        });
        let judge = judge.as_ref().map(|judge| judge as Judge<'_>);
        // Half precision is what the bundled models are kept in.
        self.learning(network.variables(), &companions, place, DType::F16).run(&objective, judge, observe)
    }
}

/// An encoder in training.
struct Tuned<'a> {
    encoder: &'a TunedEncoder,
    input: &'a EncoderInput,
    labels: &'a [String],
    tokens: usize,
}

impl Labeller for Tuned<'_> {
    fn labels(&self) -> &[String] {
        self.labels
    }

    fn logits(&self, pairs: &[(&str, &str)]) -> sporran_generator::Result<Vec<Vec<f32>>> {
        let texts: Vec<Text<'_>> = pairs.iter().map(|(claim, piece)| Text::Pair(claim, piece)).collect();
        Ok(self.encoder.logits(&self.input.rows(&texts)?, self.tokens)?)
    }
}
