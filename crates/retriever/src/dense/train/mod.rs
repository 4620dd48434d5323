//! The training of a bi-encoder on queries with positive passages, hard negatives and in-batch negatives.

mod objective;

use rustc_hash::FxHashMap;
use sporran_kilt::{
    contrast::{ContrastExample, TitledText},
    observe::Observer,
};
use sporran_training::{
    EvaluationError, ValidationList, mean_reciprocal_rank,
    session::{EncoderSession, Evaluate, Trained},
};
use sporran_transformers::{BertTask, EncoderInput, EncoderRow, Pooling, Text};

use self::objective::{Contrast, ContrastOptions, ContrastPassage, ContrastiveObjective};
use super::{
    Similarity,
    sentence_layout::{SentenceLayout, SentencePrompts, vectors_of},
};
use crate::Result;

/// The options of a bi-encoder's training.
#[derive(Clone, Copy, Debug)]
pub struct BiEncoderTraining<'a> {
    /// The options of any encoder's training.
    pub session: EncoderSession<'a>,
    /// The number of hard negatives of a query, sampled in each epoch.
    pub negatives: usize,
    /// The pooling of hidden states, `mean` or `cls`. The default is that of the initial encoder's folder, else `mean`.
    pub pooling: Option<Pooling>,
    /// The similarity of vectors, the cosine or the inner product. The default is that of the initial encoder's folder, else
    /// the cosine.
    pub similarity: Option<Similarity>,
    /// The factor of similarities before the softmax. The default is 20 for the cosine and 1 for the inner product.
    pub scale: Option<f64>,
}

/// Trains a bi-encoder and writes its folder in the layout of sentence-transformers. A stopped training resumes from its
/// newest checkpoint. The validation score is the mean reciprocal rank among the passages of a query.
///
/// # Errors
/// Errors of the initial encoder's folder, the training and the file system.
pub fn train_bi_encoder(
    training: &BiEncoderTraining<'_>,
    examples: Vec<ContrastExample>,
    validation: &[ContrastExample],
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let session = &training.session;
    // An encoder without a head has no labels, but its config requires some.
    let initial = session.open(BertTask::States, 2)?;
    let (encoder, input) = (&initial.encoder, &initial.input);
    let (pooling, similarity) = match (training.pooling, training.similarity) {
        (Some(pooling), Some(similarity)) => (pooling, similarity),
        (pooling, similarity) => {
            let default = vectors_of(session.from)?;
            (pooling.unwrap_or(default.0), similarity.unwrap_or(default.1))
        }
    };
    let prompts = SentencePrompts::of(session.from)?;
    let contrast = ContrastOptions {
        pooling,
        cosine: similarity == Similarity::Cosine,
        scale: training.scale.unwrap_or(match similarity {
            Similarity::Cosine => 20.0,
            _ => 1.0,
        }),
        negatives: training.negatives,
    };
    let contrasts = contrasts(input, &prompts, examples)?;
    let objective = ContrastiveObjective::new(encoder, contrasts, contrast, session.optimizer)?;
    let lists = validation
        .iter()
        .map(|example| list(input, &prompts, example))
        .collect::<Result<Vec<ValidationList>>>()?;
    let evaluate = || {
        mean_reciprocal_rank(&lists, |rows| {
            let vectors = contrast.encode(encoder, rows, session.optimizer.tokens_per_batch)?;
            let near = |vector: &Vec<f32>| vectors[0].iter().zip(vector).map(|(a, b)| a * b).sum();
            Ok(vectors[1..].iter().map(near).collect())
        })
        .map_err(EvaluationError::from)
    };
    let evaluate = (!lists.is_empty()).then_some(&evaluate as Evaluate<'_>);
    let width = encoder.config().hidden_size;
    let layout = SentenceLayout { pooling, similarity, width, prompts };
    session.run(&initial, &objective, evaluate, |folder| layout.write(folder), observe)
}

/// The row of a text.
fn row(input: &EncoderInput, text: &str) -> Result<EncoderRow> {
    // One text has one row.
    Ok(input.rows(&[Text::One(text)])?.swap_remove(0))
}

fn contrasts(
    input: &EncoderInput,
    prompts: &SentencePrompts,
    examples: Vec<ContrastExample>,
) -> Result<Vec<Contrast>> {
    let mut keys: FxHashMap<String, u64> = FxHashMap::default();
    let mut passage = |passage: &TitledText| -> Result<ContrastPassage> {
        let text = passage.joined();
        let row = row(input, &prompts.before_passage(&text))?;
        let next = keys.len() as u64;
        Ok(ContrastPassage { row, key: *keys.entry(text).or_insert(next) })
    };
    let mut contrasts = Vec::new();
    for example in examples {
        let negatives: Vec<ContrastPassage> =
            example.negatives.iter().map(&mut passage).collect::<Result<_>>()?;
        // Each positive passage makes one example.
        for positive in &example.positives {
            let positive = passage(positive)?;
            let negatives = negatives.iter().filter(|other| other.key != positive.key).cloned().collect();
            let query = row(input, &prompts.before_query(&example.query))?;
            contrasts.push(Contrast { query, positive, negatives });
        }
    }
    Ok(contrasts)
}

/// The rows of a query, and of its passages.
fn list(
    input: &EncoderInput,
    prompts: &SentencePrompts,
    example: &ContrastExample,
) -> Result<ValidationList> {
    let mut rows = vec![row(input, &prompts.before_query(&example.query))?];
    for passage in example.passages() {
        rows.push(row(input, &prompts.before_passage(&passage.joined()))?);
    }
    Ok(ValidationList { rows, positives: example.positives.len() })
}
