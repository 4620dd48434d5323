//! The training of a cross-encoder, which learns to rank the passages of a query.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_kilt::{
    contrast::{ContrastExample, TitledText},
    observe::Observer,
};
use sporran_training::{
    EvaluationError, RankingLoss, RankingObjective, RankingQuery, TrainingOptions, ValidationList,
    mean_reciprocal_rank,
    session::{ContrastTraining, EncoderSession, Evaluate, Trained},
};
use sporran_transformers::{BertTask, DeviceName, EncoderInput, EncoderRow, Precision, Text, Truncation};

use crate::{
    Error, Result,
    training::{check_from, contrast::ContrastTrainingKind},
};

/// `kind = "cross-encoder"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CrossEncoderTraining {
    /// The folder of the initial encoder: BERT, RoBERTa, or another that the table of models says can be trained.
    pub from: PathBuf,
    /// The folder of the trained model, in the layout of Hugging Face.
    pub model: PathBuf,
    /// The number of hard negatives of a query, sampled in each epoch. With 0 an epoch has all passages.
    #[serde(default = "negatives")]
    pub negatives: usize,
    /// The largest number of tokens of a query with its passage. The default is that of the folder `from`.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: Option<usize>,
    /// The truncation of a query and a passage that are too long.
    #[serde(default)]
    pub truncation: Truncation,
    /// The loss, `listwise`, `pairwise` or `binary`.
    #[serde(default)]
    pub loss: RankingLoss,
    /// `[encoder-training.optimizer]`: epochs, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
    /// The device of the training: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
}

fn negatives() -> usize {
    4
}

impl CrossEncoderTraining {
    fn session<'a>(&'a self, training: &ContrastTraining<'a>) -> EncoderSession<'a> {
        EncoderSession {
            from: &self.from,
            model: &self.model,
            checkpoints: training.checkpoints,
            seed: training.seed,
            max_tokens: self.max_tokens,
            truncation: self.truncation,
            optimizer: &self.optimizer,
            device: self.device,
        }
    }
}

impl ContrastTrainingKind for CrossEncoderTraining {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        check_from(&format!("{key}.from"), &self.from, document);
        if let Err(error) = self.device.check(Precision::F32) {
            document.report_key(&format!("{key}.device"), error.to_string());
        }
        if let Err(error) = self.optimizer.check() {
            document.report_key(&format!("{key}.optimizer"), error.to_string());
        }
    }

    fn model(&self) -> &Path {
        &self.model
    }

    /// Trains to rank the passages of one query. Writes the Hugging Face layout.
    fn train(&self, training: ContrastTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained> {
        let session = self.session(&training);
        let initial = session.open(BertTask::SequenceClassification, 1)?;
        let (encoder, input) = (&initial.encoder, &initial.input);
        let queries =
            training.examples.into_iter().map(|example| query(input, example)).collect::<Result<Vec<_>>>()?;
        let candidates = Some(self.negatives + 1).filter(|&candidates| candidates > 1);
        let objective = RankingObjective::new(encoder, queries, self.loss, candidates, session.optimizer)?;
        let lists =
            training.validation.iter().map(|example| list(input, example)).collect::<Result<Vec<_>>>()?;
        let evaluate = || {
            mean_reciprocal_rank(&lists, |rows| encoder.scores(rows, session.optimizer.tokens_per_batch))
                .map_err(EvaluationError::from)
        };
        let evaluate = (!lists.is_empty()).then_some(&evaluate as Evaluate<'_>);
        session.run(&initial, &objective, evaluate, |_| Ok::<_, Error>(()), observe)
    }
}

/// The rows of a query with each of its passages.
fn pairs(input: &EncoderInput, example: &ContrastExample) -> Result<Vec<EncoderRow>> {
    let texts: Vec<String> = example.passages().map(TitledText::joined).collect();
    let pairs: Vec<Text<'_>> = texts.iter().map(|text| Text::Pair(&example.query, text)).collect();
    Ok(input.rows(&pairs)?)
}

fn query(input: &EncoderInput, example: ContrastExample) -> Result<RankingQuery> {
    let rows = pairs(input, &example)?;
    let targets = (0..rows.len()).map(|at| f32::from(u8::from(at < example.positives.len()))).collect();
    Ok(RankingQuery { query: None, rows, targets, offsets: Vec::new() })
}

fn list(input: &EncoderInput, example: &ContrastExample) -> Result<ValidationList> {
    Ok(ValidationList { rows: pairs(input, example)?, positives: example.positives.len() })
}
