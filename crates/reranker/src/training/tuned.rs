//! Cross-encoders and bi-encoders that learn to rank the passages of a query.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_kilt::{
    observe::Observer,
    scores::ranking::{Candidate, score},
};
use sporran_training::{
    EvaluationError, RankingLoss, RankingObjective, RankingQuery, TrainingOptions, TunedEncoder,
    session::{Evaluate, encoder_files},
};
use sporran_transformers::{
    BertTask, Checkpoint, DeviceName, EncoderInput, EncoderRow, Precision, Text, Truncation,
};

use super::{
    GradedQuery, RerankerSession, RerankerTrainingKind, check_from,
    similarities::{WeightedSimilarities, write_similarities},
};
use crate::{QueryView, Result, Saved, SavedPart, passage_text};

/// `kind = "masked-lm"`, `kind = "cross-encoder"` and `kind = "bi-encoder"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TunedOptions {
    /// The folder of the initial encoder.
    pub from: PathBuf,
    /// The largest number of tokens of a context and a sentence together. A longer context loses its beginning.
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// The ranking loss: `listwise`, `pairwise`, `binary` or `margin-mse`. A cross-encoder with `binary` and without `candidates` learns
    /// single pairs in random order; otherwise all pairs of a dialogue are in one batch.
    #[serde(default)]
    pub loss: RankingLoss,
    /// The largest number of sentences of a dialogue in an epoch, sampled again in each epoch. The default is all.
    #[schemars(extend("x-unit" = "sentences"))]
    pub candidates: Option<usize>,
    /// The factor of a bi-encoder's cosines in the loss.
    #[serde(default = "scale")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub scale: f64,
    /// `[reranker-training.optimizer]`: epochs, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
    /// The device of the training: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
}

impl TunedOptions {
    /// Reports wrong values and a missing folder. `key` is the path of the table.
    pub(super) fn check(&self, key: &str, document: &mut Document<'_>) {
        if let Err(error) = self.optimizer.check() {
            document.report_key(&format!("{key}.optimizer"), error.to_string());
        }
        if let Err(error) = self.device.check(Precision::F32) {
            document.report_key(&format!("{key}.device"), error.to_string());
        }
        check_from(&format!("{key}.from"), &self.from, document);
    }

    /// The optimiser's options, with the seed of the config.
    pub(super) fn optimizer(&self, seed: u64) -> TrainingOptions {
        TrainingOptions { seed, ..self.optimizer.clone() }
    }

    /// The tokenizer of the encoder. A long query loses its beginning.
    pub(super) fn input(&self, checkpoint: &Checkpoint, encoder: &TunedEncoder) -> Result<EncoderInput> {
        let length = encoder.config().max_input_length();
        Ok(EncoderInput::open(checkpoint, length, Some(self.max_tokens), Truncation::FirstAtItsStart)?)
    }
}

fn max_tokens() -> usize {
    256
}

fn scale() -> f64 {
    8.0
}

/// An encoder that is trained to score pairs of a query and a passage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct TunedCrossEncoderOptions(pub TunedOptions);

/// An encoder that is trained to map a query close to its relevant passages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct TunedBiEncoderOptions(pub TunedOptions);

impl RerankerTrainingKind for TunedCrossEncoderOptions {
    fn from(&self) -> Option<&Path> {
        Some(&self.0.from)
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        self.0.check(key, document);
    }

    fn train(&self, session: &RerankerSession<'_>, observe: &mut Observer<'_>) -> Result<u64> {
        train_combined(session, &self.0, Scorer::Pairs, observe)
    }
}

impl RerankerTrainingKind for TunedBiEncoderOptions {
    fn from(&self) -> Option<&Path> {
        Some(&self.0.from)
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        self.0.check(key, document);
    }

    fn train(&self, session: &RerankerSession<'_>, observe: &mut Observer<'_>) -> Result<u64> {
        train_combined(session, &self.0, Scorer::Vectors, observe)
    }
}

/// The way an encoder scores passages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scorer {
    /// A cross-encoder reads the query and a passage together.
    Pairs,
    /// A bi-encoder compares the vectors of the query and a passage.
    Vectors,
}

/// The folder of the trained model, next to those of the similarities.
const TRAINED: &str = "trained";

/// Trains an encoder with the similarities of `[combine]`, if there are any, as offsets.
fn train_combined(
    session: &RerankerSession<'_>,
    tuned: &TunedOptions,
    scorer: Scorer,
    observe: &mut Observer<'_>,
) -> Result<u64> {
    let similarities = write_similarities(session, &tuned.from, Some(tuned.max_tokens))?;
    if similarities.is_empty() {
        return train_encoder(session, tuned, scorer, None, observe);
    }
    let similarities = WeightedSimilarities::train(similarities, session)?;
    let model = session.model.join(TRAINED);
    let own = RerankerSession { model: &model, ..*session };
    let steps = train_encoder(&own, tuned, scorer, Some(similarities.sums()), observe)?;
    // The model was trained with the offsets, so its scores are not standardised.
    let weight = match scorer {
        Scorer::Vectors => tuned.scale as f32,
        Scorer::Pairs => 1.0,
    };
    let mut parts =
        vec![SavedPart { folder: TRAINED.into(), view: QueryView::default(), weight, standardised: false }];
    parts.extend(similarities.parts());
    Saved::Combined { parts }.write(session.model)?;
    Ok(steps)
}

/// Trains an encoder on the queries and writes it into the folder of the model. `offsets` are added to the scores.
fn train_encoder(
    session: &RerankerSession<'_>,
    tuned: &TunedOptions,
    scorer: Scorer,
    offsets: Option<Vec<Vec<f32>>>,
    observe: &mut Observer<'_>,
) -> Result<u64> {
    let checkpoint = Checkpoint::open(&tuned.from)?;
    let device = tuned.device.open()?;
    let task = match scorer {
        Scorer::Vectors => BertTask::States,
        Scorer::Pairs => BertTask::SequenceClassification,
    };
    let encoder = TunedEncoder::open(&checkpoint, task, 1, session.seed, &device)?;
    let input = tuned.input(&checkpoint, &encoder)?;
    let (loss, candidates) = (tuned.loss, tuned.candidates);
    let (mut training, mut validation) = (Vec::new(), Vec::new());
    for (at, graded) in session.queries.iter().enumerate() {
        let (query, rows) = rows(&input, graded, scorer)?;
        let offsets = offsets.as_ref().map_or_else(Vec::new, |offsets| offsets[at].clone());
        let query = RankingQuery { query, rows, targets: graded.targets.clone(), offsets };
        let every = session.validation_every;
        if every > 0 && at % every == every - 1 {
            validation.push(query);
        } else if scorer == Scorer::Pairs && loss == RankingLoss::Binary && candidates.is_none() {
            training.extend(pairs(query));
        } else {
            training.push(query);
        }
    }
    let optimizer = tuned.optimizer(session.seed);
    let objective = match scorer {
        Scorer::Vectors => {
            RankingObjective::of_vectors(&encoder, tuned.scale, training, loss, candidates, &optimizer)?
        }
        Scorer::Pairs => RankingObjective::new(&encoder, training, loss, candidates, &optimizer)?,
    };
    let evaluate = || {
        mean_precision(&encoder, tuned.scale, &validation, session.threshold).map_err(EvaluationError::from)
    };
    let files = encoder_files(&checkpoint, encoder.config())?;
    let evaluate = (!validation.is_empty()).then_some(&evaluate as Evaluate<'_>);
    let steps = session.run(&objective, &encoder, &optimizer, evaluate, &files, observe)?;
    let (max_tokens, truncation) = (Some(tuned.max_tokens), Truncation::FirstAtItsStart);
    let saved = match scorer {
        Scorer::Vectors => Saved::Cosine { max_tokens },
        Scorer::Pairs => Saved::CrossEncoder { max_tokens, truncation },
    };
    saved.write(session.model)?;
    Ok(steps)
}

/// Each pair of a query as a query of its own, for a loss that does not compare pairs.
fn pairs(query: RankingQuery) -> impl Iterator<Item = RankingQuery> {
    let RankingQuery { query, rows, targets, offsets } = query;
    rows.into_iter().zip(targets).enumerate().map(move |(at, (row, target))| RankingQuery {
        query: query.clone(),
        rows: vec![row],
        targets: vec![target],
        offsets: offsets.get(at).copied().into_iter().collect(),
    })
}

/// The token rows of pairs of the query and each passage, or the row of the query and those of the passages.
fn rows(
    input: &EncoderInput,
    graded: &GradedQuery,
    scorer: Scorer,
) -> Result<(Option<EncoderRow>, Vec<EncoderRow>)> {
    let query = graded.query.text.as_str();
    let passages: Vec<String> = graded.passages.iter().map(passage_text).collect();
    match scorer {
        Scorer::Pairs => {
            let pairs: Vec<Text<'_>> = passages.iter().map(|passage| Text::Pair(query, passage)).collect();
            Ok((None, input.rows(&pairs)?))
        }
        Scorer::Vectors => {
            let passages: Vec<Text<'_>> = passages.iter().map(|passage| Text::One(passage)).collect();
            Ok((input.rows(&[Text::One(query)])?.pop(), input.rows(&passages)?))
        }
    }
}

/// The mean average precision at 5 over the validation queries with a relevant passage.
fn mean_precision(
    encoder: &TunedEncoder,
    scale: f64,
    validation: &[RankingQuery],
    threshold: f64,
) -> Result<f64> {
    let mut found = Vec::new();
    for query in validation {
        let scores: Vec<f32> = match &query.query {
            Some(own) => {
                encoder.cosines(own, &query.rows)?.into_iter().map(|score| score * scale as f32).collect()
            }
            None => encoder.scores(&query.rows, 4096)?,
        };
        let candidates: Vec<Candidate> = scores
            .into_iter()
            .zip(&query.targets)
            .enumerate()
            .map(|(at, (score, target))| (at, score + query.offsets.get(at).unwrap_or(&0.0), target))
            .map(|(at, score, target)| Candidate {
                id: format!("{at:04}").into(),
                // Rounds the f32 to the decimal of the file, so that 0.6 is not below the threshold 0.6.
                confidence: (f64::from(*target) * 1e6).round() / 1e6,
                score: score.into(),
            })
            .collect();
        found.extend(score(&candidates, threshold).map(|scores| scores.map_at_5));
    }
    Ok(found.iter().sum::<f64>() / found.len().max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_becomes_its_pairs() {
        let row = |id: u32| EncoderRow { ids: vec![id], types: vec![0] };
        let query = |rows, targets, offsets| RankingQuery { query: None, rows, targets, offsets };
        let offset = query(vec![row(3), row(5)], vec![1.0, 0.0], vec![0.5, -0.5]);
        let found: Vec<RankingQuery> = pairs(offset).collect();
        let expected =
            [query(vec![row(3)], vec![1.0], vec![0.5]), query(vec![row(5)], vec![0.0], vec![-0.5])];
        assert_eq!(found, expected);
        let without = query(vec![row(3)], vec![1.0], Vec::new());
        assert_eq!(pairs(without.clone()).collect::<Vec<_>>(), [without]);
    }
}
