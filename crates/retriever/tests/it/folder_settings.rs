//! Vectors use the settings of a sentence-transformers folder. The expected vectors are from
//! sentence-transformers; `scripts/reference/folder_settings.py` created them.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::Value;
use sporran_checkpoint::Role;
use sporran_kilt::{PassageId, Query};
use sporran_retriever::{
    Error, Retriever,
    dense::{BiEncoder, BiEncoderOptions, Dense, DenseOptions, Encoder, Prompt, Similarity},
};

#[derive(Deserialize)]
struct Expected {
    texts: Vec<String>,
    variants: Vec<Variant>,
}

#[derive(Deserialize)]
struct Variant {
    /// JSON files that replace the folder's.
    files: BTreeMap<String, Value>,
    how: How,
    vectors: Vec<Vec<f32>>,
}

#[derive(Debug, Deserialize)]
struct How {
    role: Option<String>,
    name: Option<String>,
    text: Option<String>,
    dimensions: Option<usize>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/settings/bi")
}

fn expected() -> Expected {
    serde_json::from_str(&fs::read_to_string(folder().join("expected.json")).unwrap()).unwrap()
}

/// Copies a folder and the folders in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(path, target).unwrap();
        }
    }
}

/// The fixture with other files.
fn variant(files: &BTreeMap<String, Value>) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    copy(&folder(), place.path());
    for (name, value) in files {
        fs::write(place.path().join(name), value.to_string()).unwrap();
    }
    place
}

fn with(name: &str, value: Value) -> tempfile::TempDir {
    variant(&BTreeMap::from([(name.to_owned(), value)]))
}

const SETTINGS: &str = "config_sentence_transformers.json";

#[test]
fn vectors_are_those_of_sentence_transformers_for_every_setting_and_in_any_batch() {
    let Expected { texts, variants } = expected();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    assert!(variants.len() > 40);
    for Variant { files, how, vectors } in variants {
        let place = variant(&files);
        let prompt = match (&how.role, &how.name, &how.text) {
            (Some(role), _, _) => Prompt::Role(if role == "query" { Role::Query } else { Role::Passage }),
            (_, Some(name), _) => Prompt::Named(name.clone()),
            (_, _, Some(text)) => Prompt::Text(text.clone()),
            _ => Prompt::Default,
        };
        for batch_tokens in [1, 4096] {
            let encoder = BiEncoder::load(&BiEncoderOptions {
                prompt: prompt.clone(),
                dimensions: how.dimensions,
                batch_tokens,
                ..BiEncoderOptions::new(place.path().into())
            })
            .unwrap();
            let found = encoder.encode(&texts).unwrap();
            assert_eq!((found.len(), found.dim()), (vectors.len(), vectors[0].len()), "{files:?} {how:?}");
            for ((found, expected), text) in found.rows().zip(&vectors).zip(&texts) {
                let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(worst < 2e-5, "{worst} for `{text}` in batches of {batch_tokens}: {files:?} {how:?}");
            }
        }
    }
}

const PASSAGES: [(&str, &str); 3] = [("", "the river"), ("king", "was born in the city"), ("", "who wrote")];

fn passages(
    from: PassageId,
) -> impl Iterator<Item = Result<(PassageId, &'static str, &'static str), Infallible>> {
    let passages = (0..).map(PassageId).zip(PASSAGES).skip(from.index());
    passages.map(|(id, (title, text))| Ok((id, title, text)))
}

#[test]
fn dense_retrieval_takes_the_folder_s_prompts_dimensions_and_similarity() {
    let place = with(
        SETTINGS,
        serde_json::json!({"prompts": {"query": "query : ", "document": "passage : "}, "truncate_dim": 5}),
    );
    let options = DenseOptions::new(place.path().into());
    assert_eq!(options.similarity().unwrap(), Similarity::Cosine);
    let dir = place.path().join("index");
    Dense::build(&options, passages, "p", &dir, &mut |_| {}).unwrap();
    let dense = Dense::open(&options, &dir, "p").unwrap();
    // The same by hand.
    let encoder = |prompt: &str| {
        let prompt = Prompt::Text(prompt.into());
        BiEncoder::load(&BiEncoderOptions { prompt, ..BiEncoderOptions::new(place.path().into()) }).unwrap()
    };
    let asked = encoder("query : ").encode(&["where was the king born ?"]).unwrap();
    let found = encoder("passage : ").encode_passages(&PASSAGES).unwrap();
    assert_eq!(found.dim(), 5);
    let length = |vector: &[f32]| vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    let cosine = |vector: &[f32]| {
        let product: f32 = vector.iter().zip(asked.values()).map(|(a, b)| a * b).sum();
        product / (length(vector) * length(asked.values()))
    };
    let expected: Vec<f32> = found.rows().map(cosine).collect();
    let hits = dense.retrieve(&[Query::of_text("q", "where was the king born ?")], 3).unwrap().remove(0);
    assert_eq!(hits.len(), 3);
    for hit in hits {
        assert!((hit.score - expected[hit.passage.index()]).abs() < 1e-5, "{hit:?} {expected:?}");
    }
}

#[test]
fn another_prompt_dimension_pooling_or_similarity_is_another_index() {
    let prompts = |text: &str| serde_json::json!({"prompts": {"document": text}});
    let key = |place: &tempfile::TempDir| DenseOptions::new(place.path().into()).key().unwrap();
    let base = with(SETTINGS, prompts("the "));
    let mut keys = vec![
        key(&base),
        key(&with(SETTINGS, prompts("of "))),
        key(&with(SETTINGS, serde_json::json!({"prompts": {"document": "the "}, "truncate_dim": 4}))),
        key(&with(
            SETTINGS,
            serde_json::json!({"prompts": {"document": "the "}, "similarity_fn_name": "dot"}),
        )),
        key(&with("1_Pooling/config.json", serde_json::json!({"pooling_mode": "lasttoken"}))),
    ];
    let options = DenseOptions::new(base.path().into());
    let dimensions = DenseOptions { dimensions: Some(4), ..options.clone() };
    let similarity = DenseOptions { similarity: Some(Similarity::InnerProduct), ..options.clone() };
    keys.extend([dimensions.key().unwrap(), similarity.key().unwrap()]);
    assert!(keys.iter().enumerate().all(|(at, key)| !keys[..at].contains(key)), "{keys:?}");
    assert_eq!(key(&with(SETTINGS, prompts("the "))), keys[0]);
}

#[test]
fn a_folder_s_distance_is_the_similarity() {
    for (name, similarity) in [("euclidean", Similarity::Euclidean), ("manhattan", Similarity::Manhattan)] {
        let place = with(SETTINGS, serde_json::json!({"similarity_fn_name": name}));
        let options = DenseOptions::new(place.path().into());
        assert_eq!(options.similarity().unwrap(), similarity);
        let set = DenseOptions { similarity: Some(Similarity::Cosine), ..options.clone() };
        assert_ne!(set.key().unwrap(), options.key().unwrap());
    }
    let null = with(SETTINGS, serde_json::json!({"similarity_fn_name": null}));
    let options = DenseOptions::new(null.path().into());
    assert_eq!(options.similarity().unwrap(), Similarity::Cosine);
}

#[test]
fn wrong_names_and_numbers_say_what_there_is() {
    let place = with(SETTINGS, serde_json::json!({"prompts": {"query": "query : "}}));
    let load = |options: BiEncoderOptions| BiEncoder::load(&options).err().unwrap().to_string();
    let options = BiEncoderOptions::new(place.path().into());
    let error = load(BiEncoderOptions { prompt: Prompt::Named("qury".into()), ..options.clone() });
    let names = "`query`, `document`, found `qury`";
    assert!(error.contains("`prompt-name`") && error.contains(names), "{error}");
    // A folder has a passage prompt even if it defines none.
    BiEncoder::load(&BiEncoderOptions { prompt: Prompt::Named("document".into()), ..options.clone() })
        .unwrap();
    let error = load(BiEncoderOptions { dimensions: Some(9), ..options.clone() });
    assert!(error.contains("`dimensions`: expected 1 to 8"), "{error}");
    let dense = DenseOptions { dimensions: Some(0), ..DenseOptions::new(place.path().into()) };
    assert!(matches!(dense.check(), Err(Error::Option { option: "dimensions", .. })));
}
