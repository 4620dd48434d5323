//! Settings of model folders that a config overrides, for the manifest.

use sporran_config::Overrides;

use crate::{Result, workflows::answer::options::Options};

/// The settings of a config's model folders that its options override.
///
/// # Errors
/// Errors of a folder's files.
pub(crate) fn overrides(options: &Options) -> Result<Overrides> {
    let mut found = Overrides::new();
    if let Some(retriever) = &options.retriever {
        retriever.overrides("retriever", &mut found)?;
    }
    if let Some(generator) = &options.generator {
        generator.overrides("generator", &mut found)?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs, path::Path};

    use sporran_generator::{ByDatasetOptions, CausalOptions, GeneratorOptions};
    use sporran_kilt::Dataset;
    use sporran_reranker::{CrossEncoderOptions, RerankerOptions};
    use sporran_retriever::{
        dense::{DenseOptions, Similarity},
        hybrid::HybridOptions,
    };

    use super::*;
    use crate::workflows::answer::retrieval::{
        CombinedRetriever, RerankOptions, RerankedOptions, RerankerTable, RetrieverOptions,
    };

    /// A folder with the settings of a sentence-transformers model, without its weights.
    fn folder(settings: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("modules.json", r#"[{"path": "", "type": "sentence_transformers.models.Transformer"}]"#);
        write("config_sentence_transformers.json", settings);
        write("tokenizer_config.json", r#"{"model_max_length": 64}"#);
        folder
    }

    fn rows(found: Overrides) -> Vec<(String, String, String)> {
        found.into_iter().map(|(key, set)| (key, set.folder, set.config)).collect()
    }

    fn listed(options: &RetrieverOptions) -> Vec<(String, String, String)> {
        let mut found = Overrides::new();
        options.overrides("retriever", &mut found).unwrap();
        rows(found)
    }

    /// A decoder-only model whose folder has its own chat template and generation options.
    fn instructed() -> tempfile::TempDir {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/llama");
        let folder = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write(
            "chat_template.jinja",
            "{% if messages[0].role != 'system' %}<system>Be kind.</>{% endif %}\
             {% for message in messages %}<{{ message.role }}>{{ message.content }}</>{% endfor %}<answer>",
        );
        write(
            "generation_config.json",
            r#"{"max_length": 64, "num_beams": 4, "do_sample": true, "top_p": 0.9}"#,
        );
        folder
    }

    #[test]
    fn a_generator_s_overrides_are_listed() {
        let place = instructed();
        let causal = |text: &str| -> CausalOptions {
            toml::from_str(&format!("model = '{}'\n{text}", place.path().display())).unwrap()
        };
        let listed = |text: &str| {
            let mut found = Overrides::new();
            GeneratorOptions::Causal(causal(text)).overrides("generator", &mut found).unwrap();
            rows(found)
        };
        for same in [
            "",
            "chat = 'template'",
            "instruction = 'Be kind.'",
            "generation = { num-beams = 4, top-p = 0.9, length-penalty = 2.0 }",
        ] {
            assert_eq!(listed(same), [], "{same}");
        }
        let other = "chat = 'none'\ninstruction = 'Be short.'\n\
                     generation = { max-new-tokens = 9, num-beams = 1, do-sample = false }";
        let expected = |key: &str| {
            [
                ("chat", "template", "none"),
                ("generation.do-sample", "true", "false"),
                ("generation.max-new-tokens", "max-length 64", "9"),
                ("generation.num-beams", "4", "1"),
                ("instruction", "Be kind.", "Be short."),
            ]
            .map(|(option, own, set)| (format!("{key}.{option}"), own.to_owned(), set.to_owned()))
        };
        assert_eq!(listed(other), expected("generator"));
        assert_eq!(listed("chat = 'chatml'")[0].2, "chatml");
        let datasets = BTreeMap::from([(Dataset::Fever, GeneratorOptions::Causal(causal(other)))]);
        let default = Box::new(GeneratorOptions::Causal(causal("")));
        let by_dataset = GeneratorOptions::ByDataset(ByDatasetOptions { default, datasets });
        let mut found = Overrides::new();
        by_dataset.overrides("generator", &mut found).unwrap();
        assert_eq!(rows(found), expected("generator.datasets.fever"));
    }

    fn dense(folder: &Path) -> DenseOptions {
        DenseOptions::new(folder.into())
    }

    #[test]
    fn a_retriever_s_overrides_are_listed_with_both_values() {
        let place = folder(
            r#"{"prompts": {"query": "q: ", "document": "d: "}, "similarity_fn_name": "dot", "truncate_dim": 8}"#,
        );
        let plain = RetrieverOptions::Dense(dense(place.path()));
        assert_eq!(listed(&plain), []);
        let other = RetrieverOptions::Dense(DenseOptions {
            query_template: Some("q: {text}".into()),
            passage_template: Some("{text}".into()),
            similarity: Some(Similarity::Cosine),
            dimensions: Some(4),
            max_tokens: Some(32),
            ..dense(place.path())
        });
        let parts = vec![plain, other];
        let reranker = RerankerTable {
            rerank: RerankOptions::default(),
            model: RerankerOptions::CrossEncoder(CrossEncoderOptions {
                max_tokens: Some(16),
                ..CrossEncoderOptions::new(place.path().into())
            }),
        };
        let hybrid = RetrieverOptions::Hybrid(HybridOptions { fusion: Default::default(), parts });
        let reranked = RerankedOptions { reranker, base: Box::new(hybrid) };
        let whole = RetrieverOptions::Outer(CombinedRetriever::Reranked(reranked));
        // The query template equals the folder's prompt, so it is not listed.
        let expected = [
            ("retriever.base.parts[1].dimensions", "8", "4"),
            ("retriever.base.parts[1].max-tokens", "64", "32"),
            ("retriever.base.parts[1].passage-template", "d: {title} {text}", "{text}"),
            ("retriever.base.parts[1].similarity", "inner-product", "cosine"),
            ("retriever.reranker.max-tokens", "64", "16"),
        ];
        let expected: Vec<_> =
            expected.map(|(key, own, set)| (key.to_owned(), own.to_owned(), set.to_owned())).into();
        assert_eq!(listed(&whole), expected);
    }
}
