//! A reranker of texts for a query.

use std::path::Path;

use sporran_checkpoint::ScoreActivation;
use sporran_kilt::{Passage, Query};
use sporran_reranker::{
    Computing, CrossEncoder, CrossEncoderOptions, LlmOptions, LlmReranker, Reranker, Saved,
};

use crate::{
    Failure, Result, ServedModels,
    work::{Setting, Worker, size},
};

/// The tokens of a batch of the model itself.
const BATCH_TOKENS: usize = 4096;

/// A reranker with its thread.
pub(crate) struct ServedReranker {
    name: String,
    /// The most tokens that a model of pairs reads of a query with a text.
    max_tokens: Option<usize>,
    kind: Kind,
}

/// How texts reach the model.
enum Kind {
    /// Pairs of query and text, those of several requests together.
    Pairs(Worker<Pair, Score>),
    /// All texts of a query together, because a score can depend on the others.
    Whole(Worker<(String, Vec<String>), Vec<Score>>),
}

struct Pair {
    query: String,
    text: String,
}

/// The score of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Score {
    /// Before the activation.
    pub(crate) raw: f32,
    /// After the activation: for most models from 0 to 1.
    pub(crate) score: f32,
}

/// A model of pairs, with the activation of its scores.
enum PairModel {
    CrossEncoder(Box<CrossEncoder>, ScoreActivation),
    Llm(Box<LlmReranker>, ScoreActivation),
}

impl PairModel {
    fn max_length(&self) -> usize {
        match self {
            Self::CrossEncoder(model, _) => model.max_length(),
            Self::Llm(model, _) => model.max_length(),
        }
    }

    fn scores(&self, pairs: &[Pair]) -> sporran_reranker::Result<Vec<Score>> {
        let pairs: Vec<(&str, &str)> =
            pairs.iter().map(|pair| (pair.query.as_str(), pair.text.as_str())).collect();
        match self {
            Self::CrossEncoder(model, activation) => {
                let rows = model.logits_where_read(&pairs)?;
                Ok(rows.into_iter().map(|row| score(row.as_deref().unwrap_or(&[0.0]), *activation)).collect())
            }
            Self::Llm(model, activation) => {
                Ok(model.log_odds(&pairs)?.into_iter().map(|odds| score(&[odds], *activation)).collect())
            }
        }
    }
}

/// The score of a pair. With two labels, the raw score is the log odds of the second, and the score its probability.
fn score(logits: &[f32], activation: ScoreActivation) -> Score {
    let (raw, activation) = match logits {
        [against, relevant] => (relevant - against, ScoreActivation::Sigmoid),
        _ => (logits.first().copied().unwrap_or_default(), activation),
    };
    Score { raw, score: activation.scores(&[raw]).first().copied().unwrap_or(raw) }
}

impl ServedReranker {
    /// Loads a reranker, and starts its thread.
    ///
    /// # Errors
    /// Errors of the folder, and a system without threads.
    pub(crate) fn open(folder: &Path, options: &ServedModels, setting: &Setting) -> Result<Self> {
        let ServedModels { precision, device, .. } = *options;
        let pairs = match Saved::read(folder)? {
            Saved::CrossEncoder { .. } => {
                let options =
                    CrossEncoderOptions { precision, device, ..CrossEncoderOptions::new(folder.to_owned()) };
                let model = CrossEncoder::load(&options)?;
                let activation = model.activation()?;
                Some(PairModel::CrossEncoder(Box::new(model), activation))
            }
            Saved::Llm { .. } => {
                let options = LlmOptions { precision, device, ..LlmOptions::new(folder.to_owned()) };
                let model = LlmReranker::load(&options)?;
                let activation = model.activation()?;
                Some(PairModel::Llm(Box::new(model), activation))
            }
            _ => None,
        };
        let max_tokens = pairs.as_ref().map(PairModel::max_length);
        let kind = match pairs {
            Some(model) => Kind::Pairs(
                setting
                    .worker("rerank", move |pairs: &[Pair]| model.scores(pairs).map_err(Failure::internal))?,
            ),
            None => {
                let model = sporran_reranker::open(
                    folder,
                    Computing { precision, device, batch_tokens: BATCH_TOKENS },
                )?;
                let work = move |queries: &[(String, Vec<String>)]| {
                    let scores = queries.iter().map(|(query, texts)| whole(&*model, query, texts));
                    scores.collect::<sporran_reranker::Result<Vec<_>>>().map_err(Failure::internal)
                };
                Kind::Whole(setting.worker("rerank", work)?)
            }
        };
        Ok(Self { name: super::name(folder), max_tokens, kind })
    }

    /// The name: that of the folder.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The most tokens that the model reads of a query with a text; `None` if it has no such limit.
    pub(crate) fn max_tokens(&self) -> Option<usize> {
        self.max_tokens
    }

    /// The score of each text for a query.
    ///
    /// # Errors
    /// A full queue, and errors of the model.
    pub(crate) async fn scores(&self, query: &str, texts: Vec<String>) -> Result<Vec<Score>, Failure> {
        match &self.kind {
            Kind::Pairs(worker) => {
                let pair = |text: String| {
                    let tokens = size(query) + size(&text);
                    (Pair { query: query.to_owned(), text }, tokens)
                };
                worker.all(texts.into_iter().map(pair).collect()).await
            }
            Kind::Whole(worker) => {
                let tokens = size(query) + texts.iter().map(|text| size(text)).sum::<usize>();
                worker.one((query.to_owned(), texts), tokens).await
            }
        }
    }
}

/// The scores of a reranker that scores all texts of a query together.
fn whole(model: &dyn Reranker, query: &str, texts: &[String]) -> sporran_reranker::Result<Vec<Score>> {
    let passages: Vec<Passage> = texts.iter().map(|text| Passage::of_text(text.as_str())).collect();
    let passages: Vec<&Passage> = passages.iter().collect();
    let scores = model.score(&Query::of_text("", query), &passages)?;
    Ok(scores.into_iter().map(|raw| Score { raw, score: raw }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_labels_give_the_probability_of_the_second() {
        let found = score(&[1.0, 3.0], ScoreActivation::Identity);
        assert_eq!(found.raw, 2.0);
        assert!((found.score - 0.880_797).abs() < 1e-6);
        let one = score(&[0.0], ScoreActivation::Sigmoid);
        assert_eq!((one.raw, one.score), (0.0, 0.5));
    }
}
