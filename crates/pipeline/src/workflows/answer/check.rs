//! What is wrong with a config that can be read: files that are missing, values that do not fit together.

use sporran_transformers::Precision;

use crate::{
    config::Document,
    source::pages::check_source,
    tasks::options::TasksOptions,
    workflows::{
        answer::{
            generation::{self, GeneratorOptions},
            options::{Options, Target},
            retrieval,
            train::{encoders::EncoderTraining, rag::dense_options},
        },
        registry::ConfigKind,
    },
};

/// What is wrong with `[train]` beside another generator.
pub(crate) const UNTRAINED: &str = "expected `seq2seq`, `fid`, `memnet`, `rag-token`, `rag-sequence`, `verifier` or `extractive`: they are the kinds that `[train]` \
     makes a model for";

/// Finds what is wrong with a config that can be read: files that are not there, values that do not fit together.
pub(crate) fn check(options: &Options, document: &mut Document<'_>) {
    let general = &options.general;
    let name_fits = |name: &str| {
        !name.is_empty()
            && !name.starts_with('.')
            && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    if !name_fits(&general.name) {
        document.report_key("name", "expected letters, digits, `-`, `_` and `.`: it names a folder");
    }
    for path in &general.also {
        use ConfigKind::{Documents, Linking, Population, Reason, Responses, Slots};
        match ConfigKind::of(path, &[]) {
            Ok(Documents | Linking | Population | Reason | Responses | Slots) => {}
            Ok(_) => {
                let expected = "expected a config that `sporran run` runs by itself, found";
                document.report_key("also", format!("{expected} {}", path.display()));
            }
            Err(error) => document.report_key("also", error.to_string()),
        }
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
    for (key, value) in
        [("evidence.depth", general.evidence.depth), ("evidence.limit", general.evidence.limit)]
    {
        if value == 0 {
            document.report_key(key, "expected at least 1, found 0");
        }
    }
    if let Some(depth) = general.evaluation.recall_at.iter().find(|&&depth| depth < 2) {
        document.report_key("evaluation.recall-at", format!("expected depths of at least 2, found {depth}"));
    }
    if general.tasks.limit == Some(0) {
        document.report_key("tasks.limit", "expected at least 1, found 0");
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
    if training.depth == 0 {
        document.report_key("encoder-training.depth", "expected at least 1, found 0");
    }
    if let Err(error) = training.device.check(Precision::F32) {
        document.report_key("encoder-training.device", error.to_string());
    }
    if let Err(error) = training.optimizer.check() {
        document.report_key("encoder-training.optimizer", error.to_string());
    }
}
