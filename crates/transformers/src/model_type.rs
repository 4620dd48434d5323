//! The type of the model in a folder, from its settings alone.

use std::path::Path;

use sporran_checkpoint::{Adapter, CrossEncoderFolder, GgufFile, ModelKind, find_gguf, json};

use crate::architectures::{ModelConfig, bert::BertTask, registry::is_candle_type};

/// The type of a model, which decides what can use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelType {
    /// T5, BART or a model of their shape.
    EncoderDecoder,
    /// GPT-2, LLaMA or a decoder of its shape, or another model that continues its input.
    DecoderOnly,
    /// An encoder without a head, with that of masked language modelling, or with DPR's of vectors.
    Encoder,
    /// An encoder or a decoder-only model that labels its whole input, such as a cross-encoder.
    SequenceClassifier,
    /// An encoder that labels tokens.
    TokenClassifier,
    /// An encoder that marks the span of an answer.
    SpanReader,
    /// DPR's reader.
    DprReader,
    /// A model of sentence-transformers that makes vectors, such as a bi-encoder.
    SentenceEncoder,
    /// A tagger of this program.
    Tagger,
    /// A relation encoder of this program.
    RelationEncoder,
    /// A model of document relations of this program.
    DocumentRelations,
    /// A reranker of this program.
    Reranker,
}

impl ModelType {
    /// The types of all encoders: each has a body that a training can start from.
    pub const ENCODERS: &'static [Self] = &[
        Self::Encoder,
        Self::SequenceClassifier,
        Self::TokenClassifier,
        Self::SpanReader,
        Self::DprReader,
        Self::SentenceEncoder,
    ];

    /// The type in words.
    fn name(self) -> &'static str {
        match self {
            Self::EncoderDecoder => "an encoder-decoder",
            Self::DecoderOnly => "a decoder-only model",
            Self::Encoder => "an encoder",
            Self::SequenceClassifier => "an encoder with a head for sequence classification",
            Self::TokenClassifier => "an encoder with a head for token classification",
            Self::SpanReader => "an encoder with a head for spans",
            Self::DprReader => "DPR's reader",
            Self::SentenceEncoder => "a bi-encoder of sentence-transformers",
            Self::Tagger => "a tagger",
            Self::RelationEncoder => "a relation encoder",
            Self::DocumentRelations => "a model of document relations",
            Self::Reranker => "a reranker",
        }
    }
}

/// The models that a kind of a stage takes.
pub trait TakesModel {
    /// The types of these models.
    const TAKES: &'static [ModelType];
}

/// The kinds of a stage, each with the types of the models that it takes.
pub type Takers = &'static [(&'static str, &'static [ModelType])];

/// The files that describe the models of this program.
const HEADERS: [(&str, ModelType); 4] = [
    ("tagger.json", ModelType::Tagger),
    ("relations.json", ModelType::RelationEncoder),
    ("document-relations.json", ModelType::DocumentRelations),
    ("reranker.json", ModelType::Reranker),
];

/// The types of the model in a folder or a GGUF file, and its name, such as `t5`. A model of this program can also be one of
/// another type. Empty for folders that do not exist and for unknown models.
fn types_of(folder: &Path) -> (Vec<ModelType>, String) {
    let headers = HEADERS.iter().filter(|(file, _)| folder.join(file).is_file());
    let mut types: Vec<ModelType> = headers.map(|(_, header)| *header).collect();
    let (own, name) = own_type(folder).unzip();
    types.extend(own);
    (types, name.unwrap_or_default())
}

/// The type of an encoder with the head of a task.
fn of_task(task: BertTask) -> ModelType {
    match task {
        BertTask::SequenceClassification => ModelType::SequenceClassifier,
        BertTask::TokenClassification => ModelType::TokenClassifier,
        BertTask::Span => ModelType::SpanReader,
        BertTask::Reader => ModelType::DprReader,
        BertTask::States | BertTask::MaskedLm | BertTask::Question | BertTask::Context => ModelType::Encoder,
    }
}

/// The type of a model of another program.
fn own_type(folder: &Path) -> Option<(ModelType, String)> {
    if let Some(file) = find_gguf(folder).ok()? {
        let file = GgufFile::open(&file).ok()?;
        let name = file.fields().text("general.architecture").ok()?.to_owned();
        let own = match name.as_str() {
            "t5" => ModelType::EncoderDecoder,
            "t5encoder" | "bert" | "nomic-bert" | "roberta" => ModelType::Encoder,
            _ => ModelType::DecoderOnly,
        };
        return Some((own, name));
    }
    let mut model = folder.to_path_buf();
    match CrossEncoderFolder::is_of_layout(folder).ok()? {
        Some(true) => {
            let cross_encoder = CrossEncoderFolder::open(folder).ok()?;
            if cross_encoder.is_pooled {
                return Some((ModelType::SequenceClassifier, "sentence-transformers".to_owned()));
            }
            model = cross_encoder.model;
        }
        Some(false) => return Some((ModelType::SentenceEncoder, "sentence-transformers".to_owned())),
        None => {}
    }
    let path = model.join("config.json");
    let text = if Adapter::is_alone_in(&model) {
        let adapter = Adapter::open(&model).ok()?;
        adapter.model_config(&adapter.local_base().ok()?).ok()?
    } else {
        json::text(&path).ok()??
    };
    let config = match ModelConfig::from_json(&path, &text) {
        Ok(config) => config,
        Err(_) => {
            let kind: ModelKind = json::parse(&path, &text).ok()?;
            let name = kind.model_type.filter(|name| is_candle_type(name))?;
            return Some((ModelType::DecoderOnly, name));
        }
    };
    let own = match &config {
        ModelConfig::T5(_) | ModelConfig::Bart(_) => ModelType::EncoderDecoder,
        ModelConfig::Gpt2(_) | ModelConfig::Llama(_) => {
            config.encoder_task().map_or(ModelType::DecoderOnly, of_task)
        }
        ModelConfig::Bert(config) => of_task(config.task),
        ModelConfig::ModernBert(config) => of_task(config.task),
        ModelConfig::BartClassifier(_) => ModelType::SequenceClassifier,
        ModelConfig::T5Encoder(_) | ModelConfig::StaticEmbedding(_) => ModelType::Encoder,
    };
    Some((own, config.model_type().to_owned()))
}

/// Whether the model of a folder or a GGUF file is of a type. Reads no weights.
#[must_use]
pub fn has_model_type(folder: &Path, of: ModelType) -> bool {
    types_of(folder).0.contains(&of)
}

/// The message for a folder whose model `takes` does not list; `None` if the type fits or is unknown. It names the type and
/// the kinds in `takers` that take it. Reads no weights.
#[must_use]
pub fn wrong_model_type(folder: &Path, takes: &[ModelType], takers: Takers) -> Option<String> {
    let (types, name) = types_of(folder);
    let first = *types.first()?;
    if types.iter().any(|own| takes.contains(own)) {
        return None;
    }
    let mut expected: Vec<&str> = takes.iter().map(|model| model.name()).collect();
    if ModelType::ENCODERS.iter().all(|encoder| takes.contains(encoder)) {
        expected = vec!["an encoder"];
    }
    let name = if name.is_empty() { name } else { format!(" (`{name}`)") };
    let mut message =
        format!("expected {}, found {}{name} in {}", expected.join(" or "), first.name(), folder.display());
    let takers: Vec<String> = takers
        .iter()
        .filter(|(_, takes)| types.iter().any(|own| takes.contains(own)))
        .map(|(kind, _)| format!("`{kind}`"))
        .collect();
    if !takers.is_empty() {
        message.push_str(&format!("; kinds that take it: {}", takers.join(", ")));
    }
    Some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
    }

    #[test]
    fn the_type_of_each_folder_is_read_from_its_settings() {
        for (name, expected) in [
            ("t5-relu", ModelType::EncoderDecoder),
            ("bart", ModelType::EncoderDecoder),
            ("gpt2", ModelType::DecoderOnly),
            ("llama", ModelType::DecoderOnly),
            ("encoders/bert-states", ModelType::Encoder),
            ("encoders/bert-mlm", ModelType::Encoder),
            ("encoders/bert-sequence", ModelType::SequenceClassifier),
            ("encoders/roberta-token", ModelType::TokenClassifier),
            ("encoders/distilbert-span", ModelType::SpanReader),
            ("encoders/dpr-question", ModelType::Encoder),
            ("encoders/dpr-reader", ModelType::DprReader),
            ("encoders/sentence", ModelType::SentenceEncoder),
            ("encoders/qwen3-embedding", ModelType::SentenceEncoder),
            ("encoders/qwen3-reranker", ModelType::DecoderOnly),
            ("encoders/gpt2-sequence", ModelType::SequenceClassifier),
            ("encoders/llama-sequence", ModelType::SequenceClassifier),
            ("mt5", ModelType::EncoderDecoder),
            ("pegasus", ModelType::EncoderDecoder),
            ("marian", ModelType::EncoderDecoder),
            ("m2m100", ModelType::EncoderDecoder),
            ("blenderbot", ModelType::EncoderDecoder),
        ] {
            assert_eq!(types_of(&folder(name)).0, [expected], "{name}");
        }
        assert!(types_of(&folder("nothing")).0.is_empty());
    }

    #[test]
    fn a_folder_of_this_program_is_also_the_model_that_it_contains() {
        let place = tempfile::tempdir().unwrap();
        let config = std::fs::read(folder("encoders/bert-states").join("config.json")).unwrap();
        std::fs::write(place.path().join("config.json"), config).unwrap();
        std::fs::write(place.path().join("tagger.json"), "{}").unwrap();
        assert_eq!(types_of(place.path()).0, [ModelType::Tagger, ModelType::Encoder]);
    }

    #[test]
    fn the_message_names_the_type_and_the_kinds_that_take_it() {
        const TAKERS: Takers =
            &[("reader", &[ModelType::EncoderDecoder]), ("vectors", &[ModelType::Encoder])];
        let t5 = folder("t5-relu");
        assert_eq!(wrong_model_type(&t5, TAKERS[0].1, TAKERS), None);
        assert_eq!(wrong_model_type(&folder("nothing"), TAKERS[0].1, TAKERS), None);
        let message = wrong_model_type(&t5, TAKERS[1].1, TAKERS).unwrap();
        let expected = "expected an encoder, found an encoder-decoder (`t5`) in ";
        assert!(message.starts_with(expected), "{message}");
        assert!(message.ends_with("t5-relu; kinds that take it: `reader`"), "{message}");
        let message = wrong_model_type(&t5, ModelType::ENCODERS, &[]).unwrap();
        assert!(message.starts_with(expected) && message.ends_with("t5-relu"), "{message}");
    }
}
