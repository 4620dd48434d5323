//! Training of a model of document-level relations.

use std::{fmt, path::Path};

use rayon::prelude::*;
use serde::Serialize;
use sporran_kilt::{StagedFolder, counted, docred::Document, jsonl, observe::Observer};
use sporran_training::{
    TrainingOptions, TunedEncoder,
    session::{Evaluate, Trained, TrainingSession, encoder_files},
};
use sporran_transformers::{Checkpoint, DeviceName};

use super::{
    DOCUMENT_RELATIONS, DocumentOptions, DocumentReader, DocumentsTraining, EntityExample, EntityHead,
    EntityHeadConfig, EntityLearning, EntityObjective, PAIR_FEATURES, Scored, entity_scores, example, labels,
    open_with_entities,
};
use crate::{Result, threshold::best_threshold};

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
        f.write_str(&counted(self.trained.steps, "step"))?;
        match self.trained.best {
            Some((step, f1)) => write!(f, ", best step {step}: validation F1 {:.1}", 100.0 * f1),
            None => Ok(()),
        }
    }
}

/// The inputs and outputs of a training.
#[derive(Clone, Copy)]
pub struct DocumentTraining<'a> {
    /// The options.
    pub options: &'a DocumentsTraining,
    /// The annotated documents, in order. The options choose those for validation.
    pub documents: &'a [Document],
    /// The device.
    pub device: DeviceName,
    /// The seed of all random choices.
    pub seed: u64,
    /// The folder of the checkpoints.
    pub checkpoints: &'a Path,
    /// The folder of the trained model.
    pub model: &'a Path,
}

/// Trains a model, tunes its threshold, and saves it. A stopped training resumes from its newest checkpoint.
///
/// # Errors
/// [`sporran_kilt::Error::Empty`] without a relation in the documents; errors of the initial encoder or of the
/// training.
pub fn train(training: &DocumentTraining<'_>, observe: &mut Observer<'_>) -> Result<TrainedDocuments> {
    let DocumentTraining { options, documents, device, seed, checkpoints, model: to } = *training;
    let labels = labels(documents);
    if labels.is_empty() {
        let path = options.files.first().cloned().unwrap_or_default();
        return Err(sporran_kilt::Error::Empty { path, what: "relation between entities" }.into());
    }
    let checkpoint = Checkpoint::open(&options.from)?;
    let device = device.open()?;
    let mut head = EntityHeadConfig {
        width: 0,
        inner: options.hidden_size,
        block: options.group_size,
        heads: options.heads,
        features: PAIR_FEATURES,
        labels: labels.len(),
        dropout: options.dropout,
    };
    head.width = checkpoint.config().hidden_size();
    let (encoder, entity_head) = open_with_entities(&checkpoint, &head, seed, &device)?;
    let max_tokens = options.max_tokens.min(encoder.config().max_input_length());
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
        let is_validation = at % options.validation_every == options.validation_every - 1;
        if is_validation { validation.push(example) } else { training_examples.push(example) }
    }
    tracing::info!(
        training = training_examples.len(),
        validation = validation.len(),
        labels = labels.len(),
        "documents"
    );

    let learning = EntityLearning {
        evidence: options.evidence,
        // Masking needs a mask token or an unknown token.
        hidden: mask.map_or(0.0, |_| options.mask_probability),
        mask: mask.unwrap_or_default(),
    };
    let optimizer = TrainingOptions { seed, ..options.optimizer.clone() };
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
    let staged = StagedFolder::create(to)?;
    let folder = staged.path();
    let evaluate = || Ok(evaluate_with(&encoder, &entity_head, &validation)?.1);
    let session = TrainingSession {
        variables: encoder.variables(),
        options: &optimizer,
        folder: checkpoints.to_path_buf(),
        model: &folder,
        dtype: options.dtype.into(),
        extra_files: &files,
        score: "F1",
    };
    let trained =
        session.run(&objective, (!validation.is_empty()).then_some(&evaluate as Evaluate<'_>), observe)?;
    // Tunes the threshold for the best weights.
    let best = Checkpoint::open(&folder)?;
    let (encoder, entity_head) = open_with_entities(&best, &model.head, seed, &device)?;
    model.threshold = evaluate_with(&encoder, &entity_head, &validation)?.0;
    jsonl::write(folder.join(DOCUMENT_RELATIONS), &model.json()?)?;
    drop(best);
    staged.commit()?;
    Ok(TrainedDocuments {
        trained: Trained { model: to.to_path_buf(), ..trained },
        threshold: model.threshold,
    })
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
