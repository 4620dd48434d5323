//! Making a model of document-level relations.

use std::fmt;

use candle_core::DType;
use rayon::prelude::*;
use serde::Serialize;
use sporran_extractor::{
    best_threshold,
    document_relations::{
        DOCUMENT_RELATIONS, DocumentOptions, DocumentReader, EntityExample, EntityHead, EntityHeadConfig,
        EntityLearning, EntityObjective, PAIR_FEATURES, Scored, entity_scores, example, labels,
        open_with_entities,
    },
};
use sporran_kilt::{StagedFolder, docred, jsonl};
use sporran_training::{TrainingOptions, TunedEncoder};
use sporran_transformers::Checkpoint;

use super::options::DocumentsOptions;
use crate::{
    Error, Result,
    observe::Observer,
    run_dir::training::TrainingFolder,
    training::{
        outcome::Trained,
        session::{Judge, Learning, encoder_files},
    },
};
use sporran_config::Diagnostic;

/// What a training made.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TrainedDocuments {
    /// The model, the steps, and the best evaluation: F1 with a threshold that was tuned on the same documents.
    #[serde(flatten)]
    pub trained: Trained,
    /// The logit above which a relation is stated.
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

/// The options that no training depends on: where the model goes, and what it reads then.
const WITHOUT: [&str; 3] =
    ["document-relations.model", "document-relations.files", "document-relations.precision"];

/// Trains `[document-relations]`. A training that was stopped goes on from its newest checkpoint.
///
/// # Errors
/// [`Error::Config`] where the config does not say what to learn from; whatever is wrong with files, models or training.
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
        inner: training.inner,
        block: training.block,
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
    let (mut learned, mut judges) = (Vec::new(), Vec::new());
    for (at, example) in examples.into_iter().enumerate() {
        let is_judge = at % training.judge_every == training.judge_every - 1;
        if is_judge { judges.push(example) } else { learned.push(example) }
    }
    tracing::info!(learned = learned.len(), judges = judges.len(), labels = labels.len(), "documents");

    let learning = EntityLearning {
        evidence: training.evidence,
        // A tokenizer without any of them has nothing to hide words by.
        hidden: mask.map_or(0.0, |_| training.hidden),
        mask: mask.unwrap_or_default(),
    };
    let optimizer = TrainingOptions { seed: options.seed, ..training.optimizer.clone() };
    let objective = EntityObjective::new(&encoder, &entity_head, learned, learning, &optimizer)?;
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
    let evaluate = || Ok(judge(&encoder, &entity_head, &judges)?.1);
    let learning = Learning {
        variables: encoder.variables(),
        options: &optimizer,
        folder: options.folder().join("training"),
        model: &folder,
        dtype: if training.half { DType::F16 } else { DType::F32 },
        companions: &files,
        score: "F1",
    };
    let trained =
        learning.run(&objective, (!judges.is_empty()).then_some(&evaluate as Judge<'_>), observe)?;
    // The threshold is that of the weights that were kept.
    let best = Checkpoint::open(&folder)?;
    let (encoder, entity_head) = open_with_entities(&best, &model.head, options.seed, &device)?;
    model.threshold = judge(&encoder, &entity_head, &judges)?.0;
    jsonl::write(folder.join(DOCUMENT_RELATIONS), &model.json()?)?;
    drop(best);
    staged.commit()?;
    underway.finish(trained.entry())?;
    let trained = Trained { model: options.model(), ..trained };
    Ok(TrainedDocuments { trained, threshold: model.threshold })
}

/// The best threshold by documents that are not learned from, and F1 with it.
fn judge(encoder: &TunedEncoder, head: &EntityHead, judges: &[EntityExample]) -> Result<(f32, f64)> {
    let (mut scored, mut all) = (Vec::new(), 0);
    for example in judges.iter().filter(|example| !example.document.pairs.is_empty()) {
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
