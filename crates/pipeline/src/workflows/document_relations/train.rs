//! Training of a model of document-level relations.

use std::fmt;

use rayon::prelude::*;
use serde::Serialize;
use sporran_config::Diagnostic;
use sporran_extractor::{
    best_threshold,
    document_relations::{
        DOCUMENT_RELATIONS, DocumentOptions, DocumentReader, EntityExample, EntityHead, EntityHeadConfig,
        EntityLearning, EntityObjective, PAIR_FEATURES, Scored, entity_scores, example, labels,
        open_with_entities,
    },
};
use sporran_kilt::{StagedFolder, docred, jsonl, observe::Observer};
use sporran_training::{
    TrainingOptions, TunedEncoder,
    session::{Evaluate, Trained, TrainingSession, encoder_files},
};
use sporran_transformers::Checkpoint;

use super::options::DocumentsOptions;
use crate::{Error, Result, run_dir::training::TrainingFolder};

/// The result of a training.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TrainedDocuments {
    /// The model, the steps, and the best evaluation: F1 with a threshold that was tuned on the same documents.
    #[serde(flatten)]
    pub trained: Trained,
    /// The threshold of the logits of predicted relations.
    pub threshold: f32,
}

impl fmt::Display for TrainedDocuments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} steps", self.trained.steps)?;
        match self.trained.best {
            Some((step, f1)) => write!(f, ", best step {step}: validation F1 {:.1}", 100.0 * f1),
            None => Ok(()),
        }
    }
}

/// Options that do not change the training: the model's folder, and options of `sporran run`.
const WITHOUT: [&str; 3] =
    ["document-relations.model", "document-relations.files", "document-relations.precision"];

/// Trains `[document-relations]`. A stopped training resumes from its newest checkpoint.
///
/// # Errors
/// [`Error::Config`] without a table of the training; errors of files, models or training.
pub fn train(options: &DocumentsOptions, observe: &mut Observer<'_>) -> Result<TrainedDocuments> {
    let own = &options.document_relations;
    let Some(training) = &own.training else {
        let message = "is missing; training needs it";
        return Err(Error::Config(vec![Diagnostic::of_config("document-relations.training", message)]));
    };
    let mut underway = TrainingFolder::begin(options.folder(), options, &WITHOUT)?;
    let mut documents = Vec::new();
    for path in &training.files {
        documents.extend(docred::load(path)?);
    }
    underway.verify()?;
    let labels = labels(&documents);
    if labels.is_empty() {
        let path = training.files[0].clone();
        return Err(sporran_kilt::Error::Empty { path, what: "relation between entities" }.into());
    }
    let checkpoint = Checkpoint::open(&training.from)?;
    let device = own.device.open()?;
    let mut head = EntityHeadConfig {
        width: 0,
        inner: training.hidden_size,
        block: training.group_size,
        heads: training.heads,
        features: PAIR_FEATURES,
        labels: labels.len(),
        dropout: training.dropout,
    };
    if let sporran_transformers::ModelConfig::Bert(config) = checkpoint.config() {
        head.width = config.hidden_size;
    }
    let (encoder, entity_head) = open_with_entities(&checkpoint, &head, options.seed, &device)?;
    let max_tokens = training.max_tokens.min(encoder.config().max_input_length());
    let markers = DocumentReader::default_markers();
    let tokenizer = checkpoint.tokenizer()?;
    let mask = ["[MASK]", "<mask>", "[UNK]", "<unk>"].iter().find_map(|token| tokenizer.token_id(token));
    let reader = DocumentReader::new(tokenizer, &markers, max_tokens)?;
    let examples: Vec<EntityExample> = documents
        .par_iter()
        .map(|document| Ok(example(reader.read(document)?, &document.relations, &labels)))
        .collect::<Result<_>>()?;
    let (mut training_examples, mut validation) = (Vec::new(), Vec::new());
    for (at, example) in examples.into_iter().enumerate() {
        let is_validation = at % training.validation_every == training.validation_every - 1;
        if is_validation { validation.push(example) } else { training_examples.push(example) }
    }
    tracing::info!(
        training = training_examples.len(),
        validation = validation.len(),
        labels = labels.len(),
        "documents"
    );

    let learning = EntityLearning {
        evidence: training.evidence,
        // Masking needs a mask token or an unknown token.
        hidden: mask.map_or(0.0, |_| training.mask_probability),
        mask: mask.unwrap_or_default(),
    };
    let optimizer = TrainingOptions { seed: options.seed, ..training.optimizer.clone() };
    let objective = EntityObjective::new(&encoder, &entity_head, training_examples, learning, &optimizer)?;
    let mut model = DocumentOptions {
        version: DocumentOptions::VERSION,
        head,
        markers,
        max_tokens,
        labels,
        threshold: 0.0,
    };
    let mut files = encoder_files(&checkpoint, encoder.config())?;
    files.push((DOCUMENT_RELATIONS.to_owned(), model.json()?));
    let staged = StagedFolder::create(options.model())?;
    let folder = staged.path();
    let evaluate = || Ok(evaluate_with(&encoder, &entity_head, &validation)?.1);
    let session = TrainingSession {
        variables: encoder.variables(),
        options: &optimizer,
        folder: options.folder().join("training"),
        model: &folder,
        dtype: training.dtype.into(),
        extra_files: &files,
        score: "F1",
    };
    let trained =
        session.run(&objective, (!validation.is_empty()).then_some(&evaluate as Evaluate<'_>), observe)?;
    // Tunes the threshold for the best weights.
    let best = Checkpoint::open(&folder)?;
    let (encoder, entity_head) = open_with_entities(&best, &model.head, options.seed, &device)?;
    model.threshold = evaluate_with(&encoder, &entity_head, &validation)?.0;
    jsonl::write(folder.join(DOCUMENT_RELATIONS), &model.json()?)?;
    drop(best);
    staged.commit()?;
    underway.finish((&trained).into())?;
    let trained = Trained { model: options.model(), ..trained };
    Ok(TrainedDocuments { trained, threshold: model.threshold })
}

/// The best threshold on the validation documents, and its F1.
fn evaluate_with(
    encoder: &TunedEncoder,
    head: &EntityHead,
    validation: &[EntityExample],
) -> Result<(f32, f64)> {
    let (mut scored, mut all) = (Vec::new(), 0);
    for example in validation.iter().filter(|example| !example.document.pairs.is_empty()) {
        let scores = entity_scores(encoder, head, &example.document)?;
        let mut logits: Vec<(f32, bool)> =
            Scored::of(&scores, &example.document)?.logits.into_iter().map(|logit| (logit, false)).collect();
        for (pair, label) in &example.holds {
            logits[pair * head.config().labels + label].1 = true;
        }
        all += example.holds.len();
        scored.extend(logits);
    }
    Ok(best_threshold(scored, all))
}
