//! Reading and checking a config of the workflows `answer` and `retriever-training`.

use schemars::Schema;
use sporran_retriever::dense::{DenseOptions, Similarity};
use sporran_transformers::Precision;

use super::{
    generation::{self, GeneratorOptions},
    options::{General, Options, Target},
    retrieval::{self, RerankerOptions, RetrieverOptions},
    train::encoders::EncoderTraining,
};
use crate::{
    config::{Document, load::Config, schema},
    source::pages::check_source,
    tasks::options::TasksOptions,
};

/// What is wrong with `[train]` beside another generator.
pub(crate) const UNTRAINED: &str = "expected `seq2seq`, `fid`, `memnet`, `rag-token`, `rag-sequence`, `verifier` or `extractive`: they are the kinds that `[train]` \
     makes a model for";

/// The retriever that RAG learns with: a dense one over all pages, whose scores are inner products.
///
/// # Errors
/// The key at fault and what is wrong with it.
pub(crate) fn dense_options(options: &Options) -> Result<&DenseOptions, (&'static str, &'static str)> {
    match &options.retriever {
        Some(RetrieverOptions::Dense(dense))
            if dense.similarity.is_some_and(|similarity| similarity != Similarity::InnerProduct) =>
        {
            Err(("retriever.similarity", "expected `inner-product`, by which RAG weighs passages"))
        }
        Some(RetrieverOptions::Dense(_)) if options.general.pages.is_some() => {
            Err(("pages", "expected none; RAG is trained on all pages"))
        }
        Some(RetrieverOptions::Dense(dense))
            if options.general.train.as_ref().is_some_and(|train| train.question_encoder.is_some())
                && dense.passage_model.is_none() =>
        {
            let message =
                "is missing; vectors of passages stay as they are while the question encoder is trained";
            Err(("retriever.passage-model", message))
        }
        Some(RetrieverOptions::Dense(dense)) => Ok(dense),
        _ => Err(("retriever.kind", "expected `dense`, whose scores RAG learns from")),
    }
}

const STAGES: [&str; 3] = ["retriever", "reranker", "generator"];
const ANSWER: &str = "answer";
const RETRIEVER_TRAINING: &str = "retriever-training";

impl Config for Options {
    const WORKFLOWS: &'static [&'static str] = &[ANSWER, RETRIEVER_TRAINING];

    fn workflow(&self) -> &'static str {
        if self.general.encoder_training.is_some() { RETRIEVER_TRAINING } else { ANSWER }
    }

    fn schema() -> Schema {
        schema::with_key::<Self, RerankerOptions>("reranker")
    }

    fn read(document: &mut Document<'_>) -> Option<Self> {
        document.check_workflow_table("encoder-training", RETRIEVER_TRAINING);
        let retriever = retrieval::read(document);
        let generator = generation::read(document);
        for (table, is_wrong) in [("retriever", retriever.is_err()), ("generator", generator.is_err())] {
            if is_wrong {
                document.suspect(table);
            }
        }
        let mut general: General = document.read_root(&STAGES)?;
        general.hold_what_is_scored();
        Some(Self {
            general,
            retriever: retriever.unwrap_or_default(),
            generator: generator.unwrap_or_default(),
        })
    }

    fn check(&self, document: &mut Document<'_>) {
        check(self, document);
    }
}

/// Reports files that are missing and values that do not fit together.
fn check(options: &Options, document: &mut Document<'_>) {
    let general = &options.general;
    let name_fits = |name: &str| {
        !name.is_empty()
            && !name.starts_with('.')
            && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    if !name_fits(&general.name) {
        document.report_key("name", "expected letters, digits, `-`, `_` and `.`: it names a folder");
    }
    if let Err(faults) = general.tasks.resolve() {
        for (key, message) in faults {
            document.report_key(&format!("tasks.{key}"), message);
        }
    }
    if let Some(source) = &general.source {
        check_source(source, document);
    } else if options.retriever.is_some() {
        document.report_key("source", "is missing; a retriever needs passages");
    }
    if options.retriever.is_none() && options.generator.is_none() {
        document.report_key("retriever", "is missing; expected `[retriever]`, `[generator]` or both");
    }
    if let Some(pages) = general.pages.as_ref().filter(|pages| !pages.file.is_file()) {
        document.report_key("pages.file", format!("no file {}", pages.file.display()));
    }
    if let Some(retriever) = &options.retriever {
        let learned = general.train.as_ref().is_some_and(|train| train.question_encoder.is_some());
        retrieval::check(retriever, learned, document);
    }
    if let Some(generator) = &options.generator {
        let depth = options.retriever.is_some().then_some(general.evidence.depth);
        generation::check(generator, general.train.is_some(), depth, document);
    }
    if let Some(training) = &general.encoder_training {
        check_encoder_training(training, options, document);
    }
    if let Some(train) = &general.train {
        if !matches!(
            options.generator,
            None | Some(
                GeneratorOptions::Seq2Seq(_)
                    | GeneratorOptions::Fid(_)
                    | GeneratorOptions::MemNet(_)
                    | GeneratorOptions::RagToken(_)
                    | GeneratorOptions::RagSequence(_)
                    | GeneratorOptions::Verifier(_)
                    | GeneratorOptions::Extractive(_)
            )
        ) {
            document.report_key("generator.kind", UNTRAINED);
        }
        if train.target == Target::Title && general.source.is_none() {
            document.report_key(
                "train.target",
                "expected a `[source]` beside it, whose titles are to be written",
            );
        }
        if let Err(faults) = train.examples.resolve() {
            for (key, message) in faults {
                document.report_key(&format!("train.examples.{key}"), message);
            }
        }
        for (key, from) in [("train.from", &train.from), ("train.question-encoder", &train.question_encoder)]
        {
            // A model that is made already can be run without what it was made from.
            let is_made = train.model.join("config.json").is_file();
            if let Some(from) = from.as_ref().filter(|_| !is_made) {
                document.check_checkpoint(key, from);
            }
        }
        if let Some(GeneratorOptions::RagToken(_) | GeneratorOptions::RagSequence(_)) = options.generator
            && let Err((key, message)) = dense_options(options)
        {
            document.report_key(key, message);
        }
        if let Err(error) = train.device.check(Precision::F32) {
            document.report_key("train.device", error.to_string());
        }
        if let Err(error) = train.optimizer.check() {
            document.report_key("train.optimizer", error.to_string());
        }
        if let Err(error) = train.knowledge.check() {
            document.report_key("train.knowledge", error.to_string());
        }
    }
}

/// Finds what is wrong with `[encoder-training]`.
fn check_encoder_training(training: &EncoderTraining, options: &Options, document: &mut Document<'_>) {
    let table = "encoder-training";
    if options.general.train.is_some() {
        document.report_key(table, "expected either this or `[train]`: a config trains one model");
    }
    if options.retriever.is_none() {
        document.report_key("retriever", "is missing; it finds what the encoder is to tell apart");
    }
    document.check_checkpoint("encoder-training.from", &training.from);
    if training.similarity.is_some_and(Similarity::is_distance) {
        let message = "expected `cosine` or `inner-product`, found a distance";
        document.report_key("encoder-training.similarity", message);
    }
    if training.data.is_empty() && training.dialogues.is_empty() && training.examples.is_none() {
        document.report_key(table, "expected `data`, `dialogues` or `examples` to learn from");
    }
    for (key, paths) in [("data", &training.data), ("dialogues", &training.dialogues)] {
        for path in paths.iter().filter(|path| !path.is_file()) {
            document.report_key(&format!("encoder-training.{key}"), format!("no file {}", path.display()));
        }
    }
    if let Some(Err(faults)) = training.examples.as_ref().map(TasksOptions::resolve) {
        for (key, message) in faults {
            document.report_key(&format!("encoder-training.examples.{key}"), message);
        }
    }
    if let Err(error) = training.device.check(Precision::F32) {
        document.report_key("encoder-training.device", error.to_string());
    }
    if let Err(error) = training.optimizer.check() {
        document.report_key("encoder-training.optimizer", error.to_string());
    }
}
