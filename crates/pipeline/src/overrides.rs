//! Settings of models' folders in whose place a config sets others, as the manifest lists them.

use std::collections::BTreeMap;

use sporran_retriever::dense::Override;
use sporran_transformers::folder_max_tokens;

use crate::{
    Result,
    retrieval::{RerankerOptions, RetrieverOptions, ScorerOptions},
};

/// By the key of the config's option, what the folder says and what the config says.
pub(crate) type Overrides = BTreeMap<String, Override>;

/// What a retriever's options set in the place of what its models' folders say.
///
/// # Errors
/// What is wrong with a folder's files.
pub(crate) fn overrides(retriever: Option<&RetrieverOptions>) -> Result<Overrides> {
    let mut found = Overrides::new();
    if let Some(retriever) = retriever {
        of_retriever(retriever, "retriever", &mut found)?;
    }
    Ok(found)
}

fn of_retriever(options: &RetrieverOptions, key: &str, found: &mut Overrides) -> Result<()> {
    match options {
        RetrieverOptions::Bm25(_) | RetrieverOptions::TfIdf(_) | RetrieverOptions::EntityTitle(_) => {}
        RetrieverOptions::Dense(options) => {
            for set in options.overrides()? {
                found.insert(format!("{key}.{}", set.option), set);
            }
        }
        RetrieverOptions::Entity(options) => {
            if let Some(context) = &options.context {
                of_retriever(context, &format!("{key}.context"), found)?;
            }
        }
        RetrieverOptions::Hybrid(options) => {
            for (at, part) in options.parts.iter().enumerate() {
                of_retriever(part, &format!("{key}.parts[{at}]"), found)?;
            }
        }
        RetrieverOptions::Iterative(options) => of_retriever(&options.base, &format!("{key}.base"), found)?,
        RetrieverOptions::Reranked(options) => {
            of_reranker(&options.reranker, &format!("{key}.reranker"), found)?;
            of_retriever(&options.base, &format!("{key}.base"), found)?;
        }
    }
    Ok(())
}

fn of_reranker(options: &RerankerOptions, key: &str, found: &mut Overrides) -> Result<()> {
    let ScorerOptions::CrossEncoder(model) = &options.model;
    if let (Some(own), Some(most)) = (folder_max_tokens(&model.folder)?, model.max_tokens)
        && own != most
    {
        let (folder, config) = (own.to_string(), most.to_string());
        found.insert(format!("{key}.max-tokens"), Override { option: "max-tokens", folder, config });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use sporran_reranker::CrossEncoderOptions;
    use sporran_retriever::dense::{DenseOptions, Similarity};

    use super::*;
    use crate::retrieval::{HybridOptions, RerankOptions, RerankedOptions};

    /// A folder of sentence-transformers as far as its settings go.
    fn folder(settings: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("modules.json", r#"[{"path": "", "type": "sentence_transformers.models.Transformer"}]"#);
        write("config_sentence_transformers.json", settings);
        write("tokenizer_config.json", r#"{"model_max_length": 64}"#);
        folder
    }

    fn listed(options: &RetrieverOptions) -> Vec<(String, String, String)> {
        let found = overrides(Some(options)).unwrap();
        found.into_iter().map(|(key, set)| (key, set.folder, set.config)).collect()
    }

    fn dense(folder: &Path) -> DenseOptions {
        DenseOptions::new(folder.into())
    }

    #[test]
    fn what_replaces_a_folder_s_setting_is_listed_with_both_values() {
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
        let reranker = RerankerOptions {
            rerank: RerankOptions::default(),
            model: ScorerOptions::CrossEncoder(CrossEncoderOptions {
                max_tokens: Some(16),
                ..CrossEncoderOptions::new(place.path().into())
            }),
        };
        let hybrid = RetrieverOptions::Hybrid(HybridOptions { fusion: Default::default(), parts });
        let whole = RetrieverOptions::Reranked(RerankedOptions { reranker, base: Box::new(hybrid) });
        // The query's template says what the folder says.
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
