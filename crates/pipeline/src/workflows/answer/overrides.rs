//! Settings of models' folders in whose place a config sets others, as the manifest lists them.

use std::{collections::BTreeMap, path::Path};

use sporran_checkpoint::{ChatTemplate, find_gguf};
use sporran_generator::{CausalOptions, Chat};
use sporran_retriever::dense::Override;
use sporran_transformers::{Checkpoint, GenerationOptions, folder_max_tokens};

use crate::{
    Result,
    workflows::answer::{
        generation::GeneratorOptions,
        options::Options,
        retrieval::{RerankerOptions, RetrieverOptions, ScorerOptions},
    },
};

/// By the key of the config's option, what the folder says and what the config says.
pub(crate) type Overrides = BTreeMap<String, Override>;

/// The options of a config that replace settings of its models' folders.
///
/// # Errors
/// What is wrong with a folder's files.
pub(crate) fn overrides(options: &Options) -> Result<Overrides> {
    let mut found = Overrides::new();
    if let Some(retriever) = &options.retriever {
        of_retriever(retriever, "retriever", &mut found)?;
    }
    if let Some(generator) = &options.generator {
        of_generator(generator, "generator", &mut found)?;
    }
    Ok(found)
}

fn of_retriever(options: &RetrieverOptions, key: &str, found: &mut Overrides) -> Result<()> {
    match options {
        RetrieverOptions::Bm25(_) | RetrieverOptions::TfIdf(_) => {}
        RetrieverOptions::EntityTitle(options) => {
            of_generation(&options.generation(), &options.model, key, found)?;
        }
        RetrieverOptions::Dense(options) => {
            let set = options.overrides()?.into_iter();
            found.extend(set.map(|(option, set)| (format!("{key}.{option}"), set)));
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
        found.insert(format!("{key}.max-tokens"), Override { folder, config });
    }
    Ok(())
}

fn of_generator(options: &GeneratorOptions, key: &str, found: &mut Overrides) -> Result<()> {
    match options {
        GeneratorOptions::Seq2Seq(options) => of_generation(&options.generation, &options.model, key, found),
        GeneratorOptions::Fid(options) => of_generation(&options.generation, &options.model, key, found),
        GeneratorOptions::RagSequence(options) => {
            of_generation(&options.generation, &options.model, key, found)
        }
        GeneratorOptions::RagToken(options) => of_generation(&options.generation, &options.model, key, found),
        GeneratorOptions::MemNet(options) => of_generation(&options.generation, &options.model, key, found),
        GeneratorOptions::Causal(options) => {
            of_chat(options, key, found)?;
            of_generation(&options.generation, &options.model, key, found)
        }
        GeneratorOptions::ByDataset(options) => {
            of_generator(&options.default, &format!("{key}.default"), found)?;
            for (dataset, generator) in &options.datasets {
                of_generator(generator, &format!("{key}.datasets.{}", dataset.stem()), found)?;
            }
            Ok(())
        }
        // What they write is no sequence that a model searches for.
        GeneratorOptions::Verifier(_) | GeneratorOptions::Extractive(_) | GeneratorOptions::Title(_) => {
            Ok(())
        }
    }
}

/// The options of a search that a model's folder sets otherwise.
fn of_generation(options: &GenerationOptions, folder: &Path, key: &str, found: &mut Overrides) -> Result<()> {
    // A GGUF file sets none.
    if find_gguf(folder)?.is_none() {
        let replaced = options.replacing(Checkpoint::open(folder)?.generation_defaults());
        found.extend(replaced.into_iter().map(|(option, folder, config)| {
            (format!("{key}.generation.{option}"), Override { folder, config })
        }));
    }
    Ok(())
}

/// Another marking of turns than by the folder's template, and other words of the system than the template's.
fn of_chat(options: &CausalOptions, key: &str, found: &mut Overrides) -> Result<()> {
    let CausalOptions { model, chat, instruction, .. } = options;
    let Some(template) = ChatTemplate::open(model)? else { return Ok(()) };
    let mut push = |option: &str, folder: String, config: &str| {
        found.insert(format!("{key}.{option}"), Override { folder, config: config.to_owned() });
    };
    match chat {
        Chat::None => push("chat", "template".to_owned(), "none"),
        Chat::Chatml => push("chat", "template".to_owned(), "chatml"),
        Chat::Auto | Chat::Template => {}
    }
    if let Some(own) = template.default_system()
        && !instruction.is_empty()
        && *instruction != own
    {
        push("instruction", own, instruction);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use sporran_kilt::Dataset;
    use sporran_reranker::CrossEncoderOptions;
    use sporran_retriever::dense::{DenseOptions, Similarity};

    use super::*;
    use crate::workflows::answer::{
        generation::ByDatasetOptions,
        retrieval::{HybridOptions, RerankOptions, RerankedOptions},
    };

    /// A folder of sentence-transformers as far as its settings go.
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
        of_retriever(options, "retriever", &mut found).unwrap();
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
    fn what_a_generator_sets_in_the_place_of_its_folder_s_settings_is_listed() {
        let place = instructed();
        let causal = |text: &str| -> CausalOptions {
            toml::from_str(&format!("model = '{}'\n{text}", place.path().display())).unwrap()
        };
        let listed = |text: &str| {
            let mut found = Overrides::new();
            of_generator(&GeneratorOptions::Causal(causal(text)), "generator", &mut found).unwrap();
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
        of_generator(&by_dataset, "generator", &mut found).unwrap();
        assert_eq!(rows(found), expected("generator.datasets.fever"));
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
