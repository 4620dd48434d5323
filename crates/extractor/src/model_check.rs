//! Checks of the models that a config names, without loading them.

use std::path::Path;

use sporran_config::Document;
use sporran_transformers::{ModelType, Takers, wrong_model_type};

/// The trainings of this stage that start from a model, with the types of models that they take.
const STARTERS: Takers = &[
    (TAGGER, ModelType::ENCODERS),
    (MARKED, ModelType::ENCODERS),
    (BILSTM, ModelType::ENCODERS),
    (TRIPLETS, &[ModelType::EncoderDecoder]),
    (DOCUMENTS, ModelType::ENCODERS),
];

/// The training of a tagger of kind `encoder-crf`.
pub(crate) const TAGGER: &str = "tagger";
/// The training of an encoder over marked mentions.
pub(crate) const MARKED: &str = "relations.training";
/// The training of a BiLSTM with the layers of an encoder.
pub(crate) const BILSTM: &str = "relations.bilstm";
/// The training of an encoder-decoder that writes triplets.
pub(crate) const TRIPLETS: &str = "relations.seq2seq";
/// The training of an encoder of documents.
pub(crate) const DOCUMENTS: &str = "document-relations.training";

/// Reports a folder from which the training `name` cannot start: one that does not exist, or a model of another type.
pub(crate) fn check_start(name: &str, key: &str, from: &Path, document: &mut Document<'_>) {
    document.check_checkpoint(key, from);
    let takes = STARTERS.iter().find(|(training, _)| *training == name).map_or(&[][..], |(_, takes)| *takes);
    if let Some(message) = wrong_model_type(from, takes, STARTERS) {
        document.report_key(key, message);
    }
}

/// Reports a folder that is no tagger of this program.
pub(crate) fn check_tagger(key: &str, folder: &Path, document: &mut Document<'_>) {
    match wrong_model_type(folder, &[ModelType::Tagger], STARTERS) {
        Some(message) => document.report_key(key, message),
        None => document.check_folder(key, folder, "tagger.json"),
    }
}

/// Reports a folder that has a model, but none of relations. An encoder-decoder writes triplets.
pub(crate) fn check_relations(key: &str, model: &Path, document: &mut Document<'_>) {
    let takes = [ModelType::RelationEncoder, ModelType::EncoderDecoder];
    if let Some(message) = wrong_model_type(model, &takes, STARTERS) {
        document.report_key(key, message);
    }
}

#[cfg(test)]
mod tests {
    use sporran_config::Text;

    use super::*;

    fn found(check: impl FnOnce(&Path, &mut Document<'_>)) -> String {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data");
        let text = Text::new(Path::new("c.toml"), "[training]\nfrom = 1\n".to_owned(), &[]);
        let mut document = Document::parse(&text);
        check(&data, &mut document);
        document.into_diagnostics().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_training_that_starts_from_another_type_is_reported_with_those_that_take_it() {
        let start = |name: &'static str, folder: &'static str| {
            found(|data, document| check_start(name, "training.from", &data.join(folder), document))
        };
        let message = start(MARKED, "bart");
        let expected =
            "c.toml:2: `training.from`: expected an encoder, found an encoder-decoder (`bart`) in ";
        assert!(message.starts_with(expected), "{message}");
        assert!(message.ends_with("kinds that take it: `relations.seq2seq`"), "{message}");
        assert!(start(TAGGER, "llama").contains("found a decoder-only model (`llama`)"));
        assert!(
            start(TRIPLETS, "encoders/bert-mlm").contains("expected an encoder-decoder, found an encoder")
        );
        for (name, folder) in [
            (TAGGER, "encoders/bert-token"),
            (MARKED, "encoders/bert-states"),
            (BILSTM, "encoders/distilbert-mlm"),
            (TRIPLETS, "t5-gated"),
            (DOCUMENTS, "encoders/roberta-mlm"),
        ] {
            assert_eq!(start(name, folder), "", "{name}");
        }
    }

    #[test]
    fn a_folder_that_is_no_tagger_is_reported_with_its_type() {
        let message = found(|data, document| {
            check_tagger("training.from", &data.join("encoders/bert-token"), document);
        });
        let expected = "expected a tagger, found an encoder with a head for token classification (`bert`)";
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn a_model_of_relations_is_no_bare_encoder() {
        let relations = |folder: &'static str| {
            found(|data, document| check_relations("training.from", &data.join(folder), document))
        };
        let message = relations("encoders/bert-states");
        assert!(
            message.contains("expected a relation encoder or an encoder-decoder, found an encoder"),
            "{message}"
        );
        assert_eq!(relations("t5-relu"), "");
        assert_eq!(relations("nothing"), "");
    }
}
