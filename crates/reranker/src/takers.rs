//! The types of models that each kind of reranker takes.

use sporran_transformers::{ModelType, Takers, TakesModel};

use crate::{CosineOptions, CrossEncoderOptions, LlmOptions, combined::CombinedOptions, tfidf::TfIdfOptions};

impl TakesModel for CrossEncoderOptions {
    const TAKES: &'static [ModelType] = &[ModelType::SequenceClassifier];
}

impl TakesModel for LlmOptions {
    const TAKES: &'static [ModelType] = &[ModelType::DecoderOnly];
}

impl TakesModel for CosineOptions {
    const TAKES: &'static [ModelType] = ModelType::ENCODERS;
}

impl TakesModel for TfIdfOptions {
    const TAKES: &'static [ModelType] = &[ModelType::Reranker];
}

impl TakesModel for CombinedOptions {
    const TAKES: &'static [ModelType] = &[ModelType::Reranker];
}

/// The kinds, each with the types of its models. A folder with `reranker.json` names its kind itself.
pub(crate) const TAKERS: Takers = &[
    ("cross-encoder", CrossEncoderOptions::TAKES),
    ("llm", LlmOptions::TAKES),
    ("cosine", CosineOptions::TAKES),
    ("tfidf", TfIdfOptions::TAKES),
    ("combined", CombinedOptions::TAKES),
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sporran_config::{Document, Kinds, Text};

    use crate::RerankerOptions;

    #[test]
    fn a_model_of_another_type_is_reported_with_the_kinds_that_take_it() {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data");
        let check = |kind: &str, model: &str| {
            let keys = format!("[reranker]\nkind = \"{kind}\"\nmodel = {:?}\n", data.join(model));
            let text = Text::new(Path::new("c.toml"), keys, &[]);
            let mut document = Document::parse(&text);
            let written = document.clone();
            let reranker: RerankerOptions = document.read_stage("reranker").ok().flatten().unwrap();
            document.restore(written);
            reranker.check("reranker", &mut document);
            document.into_diagnostics().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let found = check("cross-encoder", "encoders/sentence");
        let start = "c.toml:3: `reranker.model`: expected an encoder with a head for sequence classification, found a \
                     bi-encoder of sentence-transformers";
        assert!(found.starts_with(start) && found.ends_with("kinds that take it: `cosine`"), "{found}");
        let found = check("cosine", "t5-relu");
        assert!(found.contains("expected an encoder, found an encoder-decoder (`t5`)"), "{found}");
        assert_eq!(check("cross-encoder", "encoders/bert-sequence"), "");
        assert_eq!(check("cosine", "encoders/sentence"), "");
        assert_eq!(check("cross-encoder", "encoders/qwen3-sequence"), "");
        assert_eq!(check("llm", "encoders/qwen3-reranker"), "");
        let found = check("cross-encoder", "encoders/qwen3-reranker");
        assert!(found.contains("found a decoder-only model (`qwen3`)"), "{found}");
        assert!(found.ends_with("kinds that take it: `llm`"), "{found}");
        let takers = super::TAKERS.iter().map(|(kind, _)| *kind);
        // The model of the last kind is at an endpoint.
        assert_eq!(RerankerOptions::kinds(), takers.chain(["remote"]).collect::<Vec<_>>());
    }
}
