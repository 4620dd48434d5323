//! The training of EmbedKGQA and TransferNet, which answer with entities.

use std::path::Path;

use candle_core::{DType, Device, Tensor};
use sporran_checkpoint::Tokenizer;
use sporran_kilt::{
    StagedFolder,
    kb::{EntityId, KnowledgeBase},
    korc::Question,
    observe::Observer,
};
use sporran_training::{
    EvaluationError, TrainingOptions, Variables, VocabularyOptions,
    session::{Evaluate, Trained, TrainingSession, variables_of},
    tokenizer_files, train_vocabulary,
};
use sporran_transformers::{BertConfig, BertTask, Checkpoint, ModelConfig};

use super::{
    QuestionInput,
    encoding::EncodedQuestion,
    kind::QuestionTraining,
    model::{Parts, QuestionKind, QuestionModel, Vectors},
    options::{EncoderShape, ObjectiveOptions, Reading, Topic},
    train::{QuestionExample, QuestionObjective, tune},
    transfer::POOLER,
};
use crate::{
    Error, Result,
    embedding::{EmbeddingModel, ModelKind},
};

/// A model before its training.
pub(super) struct Start<'a> {
    pub(super) kind: QuestionKind,
    pub(super) vectors: Vectors,
    pub(super) shape: &'a EncoderShape,
    pub(super) objective: ObjectiveOptions,
    /// The folder of the model.
    pub(super) folder: &'a Path,
}

/// Trains a model and saves it. The score is the P-F1 on the validation questions.
///
/// # Errors
/// Errors of files, model or training.
pub(super) fn train(
    start: Start<'_>,
    optimizer: &TrainingOptions,
    training: &QuestionTraining<'_>,
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let &QuestionTraining { kb, questions, valid, .. } = training;
    let (folder, options) = (start.folder, start.objective);
    let mut model = QuestionModel::new(parts(start, questions, training.seed)?, kb)?;
    let examples = |questions: &[Question]| -> Result<Vec<QuestionExample>> {
        let example = |question: &Question| {
            let input = model.read(&QuestionInput::of(question))?;
            Ok(QuestionExample { input, answers: gold(question, kb) })
        };
        questions.iter().map(example).collect()
    };
    let learned = examples(questions)?;
    let inputs: Vec<EncodedQuestion> = examples(valid)?.into_iter().map(|example| example.input).collect();
    let labels: Vec<&[String]> = valid.iter().map(Question::labels).collect();
    let label = |entity: u32| kb.label(EntityId(entity));
    let tuned = |model: &QuestionModel| -> Result<(f32, f64)> {
        Ok(tune(&model.likely(&inputs)?, &labels, training.max_answers, label))
    };
    let evaluate = || tuned(&model).map(|(_, score)| score).map_err(EvaluationError::from);
    let objective = QuestionObjective::new(&model, learned, optimizer, options);
    let session = TrainingSession {
        variables: model.encoder().variables(),
        options: optimizer,
        folder: training.folder.to_owned(),
        model: folder,
        dtype: DType::F32,
        extra_files: &[],
        score: "validation P-F1",
    };
    let evaluate = (!inputs.is_empty()).then_some(&evaluate as Evaluate<'_>);
    let outcome = session.optimise(&objective, evaluate, observe)?;
    if let Some(best) = &outcome.best_folder {
        model.restore(best)?;
    }
    if !inputs.is_empty() {
        let (threshold, _) = tuned(&model)?;
        model.set_threshold(threshold);
    }
    let card = training.card(model.encoder().variables());
    let staged = StagedFolder::create(folder)?;
    model.save(&staged.path(), kb, &card)?;
    staged.commit()?;
    Ok(Trained { model: folder.to_owned(), steps: outcome.step, best: outcome.best })
}

/// The source of EmbedKGQA's entity vectors in a config.
#[derive(Clone, Copy)]
pub(super) struct VectorSource<'a> {
    /// The folder of a ComplEx.
    pub(super) embedding: Option<&'a Path>,
    /// The rank of random vectors.
    pub(super) rank: Option<usize>,
    /// Whether the vectors of the ComplEx are trained.
    pub(super) are_trained: bool,
    pub(super) topic: Topic,
    pub(super) batch_normalisation: bool,
}

/// The rank of EmbedKGQA and its entity vectors: those of a trained ComplEx, or random ones.
///
/// # Errors
/// Errors of the embedding's folder.
pub(super) fn vectors(source: VectorSource<'_>, kb: &KnowledgeBase) -> Result<(QuestionKind, Vectors)> {
    const RANK: usize = 64;
    let VectorSource { topic, batch_normalisation, .. } = source;
    let kind = |rank| QuestionKind::EmbedKgqa { rank, topic, batch_normalisation };
    let Some(folder) = source.embedding else {
        return Ok((kind(source.rank.unwrap_or(RANK)), Vectors::Drawn));
    };
    let embedding = EmbeddingModel::open(folder)?;
    let wrong = |message: String| Error::Argument(format!("{}: {message}", folder.display()));
    if embedding.options().model != ModelKind::ComplEx {
        return Err(wrong("expected a ComplEx, found another model".into()));
    }
    let known = kb.entities().ids().iter().filter(|name| embedding.entities().number(name).is_some()).count();
    if known == 0 {
        return Err(wrong("expected vectors of the knowledge base's entities, found none of them".into()));
    }
    tracing::info!("{}: vectors of {known} of {} entities", folder.display(), kb.entity_count());
    let shape = (kb.entity_count(), embedding.width());
    let rows = Tensor::from_vec(embedding.vectors_for(kb), shape, &Device::Cpu)?;
    let vectors = if source.are_trained { Vectors::From(rows) } else { Vectors::Fixed(rows) };
    Ok((kind(embedding.width() / 2), vectors))
}

/// An encoder from a folder, or one with random weights and a vocabulary that is trained on the questions.
fn parts(start: Start<'_>, questions: &[Question], seed: u64) -> Result<Parts> {
    let Start { kind, vectors, shape, folder, .. } = start;
    let max_tokens = shape.max_tokens;
    if let Some(from) = &shape.from {
        let checkpoint = Checkpoint::open(from)?;
        let ModelConfig::Bert(encoder) = checkpoint.config() else {
            let message = format!(
                "{}: expected an encoder, found `{}`",
                from.display(),
                checkpoint.config().model_type()
            );
            return Err(Error::Argument(message));
        };
        let mut variables = variables_of(&checkpoint, seed)?;
        if let QuestionKind::TransferNet { reading: Reading::Original, topic: Topic::Given, .. } = kind {
            let pooler = pooler(from, encoder)?;
            if pooler.is_empty() {
                tracing::warn!("{}: the encoder has no pooler; a new one is trained", from.display());
            }
            variables = variables.and_initial(pooler);
        }
        let tokenizer = checkpoint.tokenizer()?;
        return Ok(Parts { kind, encoder: encoder.clone(), tokenizer, max_tokens, variables, vectors });
    }
    let texts = questions.iter().flat_map(|question| [question.question.as_str(), question.document()]);
    let vocabulary = VocabularyOptions { size: shape.vocabulary, min_frequency: 2, marks: Vec::new() };
    let files = tokenizer_files(&train_vocabulary(texts.collect::<Vec<_>>().into_iter(), &vocabulary)?)?;
    let json = files.iter().find(|(name, _)| name == "tokenizer.json");
    let json = json.map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default();
    let tokenizer = Tokenizer::from_json(&folder.join("tokenizer.json"), json)?;
    let encoder = BertConfig {
        vocab_size: tokenizer.vocab_size(),
        hidden_size: shape.hidden_size,
        num_hidden_layers: shape.layers,
        num_attention_heads: shape.heads,
        intermediate_size: shape.feed_forward,
        hidden_dropout_prob: shape.dropout,
        attention_probs_dropout_prob: shape.dropout,
        head_dropout: 0.0,
        max_position_embeddings: max_tokens,
        initializer_range: 0.05,
        ..BertConfig::default()
    };
    Ok(Parts { kind, encoder, tokenizer, max_tokens, variables: Variables::new(seed), vectors })
}

/// The pooler of an encoder's folder under the names of a TransferNet's; nothing if it has none.
fn pooler(folder: &Path, encoder: &BertConfig) -> Result<Vec<(String, Tensor)>> {
    let prefix = BertConfig { task: BertTask::SequenceClassification, ..encoder.clone() }.prefix();
    let mut found = Vec::new();
    // ALBERT's pooler has no inner layer `dense`.
    for layer in [&*format!("{prefix}.pooler.dense"), "pooler.dense", "albert.pooler"] {
        let stored = sporran_checkpoint::tensors_under(folder, layer, DType::F32, &Device::Cpu)?;
        for name in ["weight", "bias"] {
            let own = format!("{POOLER}{name}");
            if let Some(tensor) = stored.get(&format!("{layer}.{name}"))
                && tensor.dims().iter().all(|&size| size == encoder.hidden_size)
            {
                found.push((own, tensor.clone()));
            }
        }
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(found)
}

/// The ids of the gold answers in the knowledge base.
fn gold(question: &Question, kb: &KnowledgeBase) -> Vec<u32> {
    let mut gold: Vec<u32> = question.ids().iter().filter_map(|id| kb.entity(id)).map(|id| id.0).collect();
    gold.sort_unstable();
    gold.dedup();
    gold
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pooler_starts_as_that_of_the_encoder() {
        let encoders = Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/encoders");
        let found = |name: &str| {
            let folder = encoders.join(name);
            let checkpoint = Checkpoint::open(&folder).unwrap();
            let ModelConfig::Bert(config) = checkpoint.config() else { panic!("{name}") };
            pooler(&folder, config).unwrap()
        };
        let own = found("bert-sequence");
        let names: Vec<&str> = own.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["question.pooler.weight", "question.pooler.bias"]);
        let stored = sporran_checkpoint::tensors_under(
            &encoders.join("bert-sequence"),
            "bert.pooler.dense",
            DType::F32,
            &Device::Cpu,
        );
        let values = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(values(&own[0].1), values(&stored.unwrap()["bert.pooler.dense.weight"]));
        for name in ["bert-states", "albert-sequence"] {
            assert_eq!(found(name).len(), 2, "{name}");
        }
        assert!(found("distilbert-token").is_empty());
    }
}
