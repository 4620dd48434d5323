//! The training of a cross-encoder, which learns to rank the passages of a query.

use sporran_kilt::{
    contrast::{ContrastExample, TitledText},
    observe::Observer,
};
use sporran_training::{
    EvaluationError, RankingLoss, RankingObjective, RankingQuery, ValidationList, mean_reciprocal_rank,
    session::{EncoderSession, Evaluate, Trained},
};
use sporran_transformers::{BertTask, EncoderInput, EncoderRow, Text};

use crate::{Error, Result};

/// The options of a cross-encoder's training.
#[derive(Clone, Copy, Debug)]
pub struct CrossEncoderTraining<'a> {
    /// The options of any encoder's training.
    pub session: EncoderSession<'a>,
    /// The number of negative passages of a query, sampled in each epoch. With 0 an epoch has all passages.
    pub negatives: usize,
    /// The loss.
    pub loss: RankingLoss,
}

/// Trains a cross-encoder and writes its folder in the Hugging Face layout. A stopped training resumes from its newest
/// checkpoint. The validation score is the mean reciprocal rank among the passages of a query.
///
/// # Errors
/// Errors of the initial encoder's folder, the training and the file system.
pub fn train_cross_encoder(
    training: &CrossEncoderTraining<'_>,
    examples: Vec<ContrastExample>,
    validation: &[ContrastExample],
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let session = &training.session;
    let initial = session.open(BertTask::SequenceClassification, 1)?;
    let (encoder, input) = (&initial.encoder, &initial.input);
    let queries = examples.into_iter().map(|example| query(input, example)).collect::<Result<Vec<_>>>()?;
    let candidates = Some(training.negatives + 1).filter(|&candidates| candidates > 1);
    let objective = RankingObjective::new(encoder, queries, training.loss, candidates, session.optimizer)?;
    let lists = validation.iter().map(|example| list(input, example)).collect::<Result<Vec<_>>>()?;
    let evaluate = || {
        mean_reciprocal_rank(&lists, |rows| encoder.scores(rows, session.optimizer.tokens_per_batch))
            .map_err(EvaluationError::from)
    };
    let evaluate = (!lists.is_empty()).then_some(&evaluate as Evaluate<'_>);
    session.run(&initial, &objective, evaluate, |_| Ok::<_, Error>(()), observe)
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
