//! Dense retrieval over the seeded tiny checkpoints of the transformers crate.

use std::{convert::Infallible, path::PathBuf};

use sporran_kilt::{PassageId, Query};
use sporran_retriever::{
    Error, Retriever,
    dense::{
        BiEncoder, BiEncoderOptions, Dense, DenseOptions, Encoder, FlatOptions, IndexOptions, Prompt,
        Similarity, Storage, VectorIndex,
    },
};

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/encoders").join(name)
}

const PASSAGES: [(&str, &str); 5] = [
    ("king", "was born in the city"),
    ("", "who wrote the song"),
    ("war", "the king of the river"),
    ("song", "was written in the war"),
    ("city", "on the river"),
];

fn passages(
    from: PassageId,
) -> impl Iterator<Item = Result<(PassageId, &'static str, &'static str), Infallible>> {
    let passages = (0..).map(PassageId).zip(PASSAGES).skip(from.index());
    passages.map(|(id, (title, text))| Ok((id, title, text)))
}

fn query(text: &str) -> Query {
    Query::of_text("q", text)
}

fn built(options: &DenseOptions, dir: &std::path::Path) -> Dense {
    Dense::build(options, passages, "p", dir, &mut |_| {}).unwrap();
    Dense::open(options, dir, "p").unwrap()
}

/// The scores of all passages from the encoders' vectors.
fn scores(query: &[f32], passages: impl Iterator<Item = Vec<f32>>) -> Vec<f32> {
    passages.map(|passage| passage.iter().zip(query).map(|(a, b)| a * b).sum()).collect()
}

fn assert_ranked(dense: &Dense, text: &str, expected: &[f32]) {
    let found = dense.retrieve(&[query("war"), query(text)], 9).unwrap().remove(1);
    assert_eq!(found.len(), PASSAGES.len());
    for pair in found.windows(2) {
        assert!(pair[0].score >= pair[1].score);
    }
    for hit in found {
        assert!((hit.score - expected[hit.passage.index()]).abs() < 1e-4, "{hit:?} {expected:?}");
    }
}

#[test]
fn passages_are_ranked_by_the_vectors_of_their_texts() {
    let place = tempfile::tempdir().unwrap();
    let options = DenseOptions::new(folder("sentence"));
    let dense = built(&options, &place.path().join("index"));
    assert_eq!(dense.index().len(), PASSAGES.len());
    let encoder = BiEncoder::load(&BiEncoderOptions::new(folder("sentence"))).unwrap();
    let text = "who wrote the song";
    let query = encoder.encode(&[text]).unwrap();
    let vectors = encoder.encode_passages(&PASSAGES).unwrap();
    assert_ranked(&dense, text, &scores(query.values(), vectors.rows().map(<[f32]>::to_vec)));
    assert!(dense.retrieve(&[], 3).unwrap().is_empty());
}

#[test]
fn two_towers_read_queries_and_passages() {
    let place = tempfile::tempdir().unwrap();
    // Different lengths: the mean of the question's states is not projected, the context's vector is.
    let options = DenseOptions {
        passage_model: Some(folder("dpr-context")),
        similarity: Some(Similarity::Cosine),
        ..DenseOptions::new(folder("sentence"))
    };
    Dense::build(&options, passages, "p", place.path().join("index"), &mut |_| {}).unwrap();
    let error = Dense::open(&options, place.path().join("index"), "p").err().unwrap().to_string();
    assert!(error.contains("12 values, and 7 there"), "{error}");

    let options =
        DenseOptions { passage_model: Some(folder("sentence")), ..DenseOptions::new(folder("sentence")) };
    let towers = built(&options, &place.path().join("towers"));
    let one = built(&DenseOptions::new(folder("sentence")), &place.path().join("one"));
    let queries = [query("king of the city")];
    assert_eq!(towers.retrieve(&queries, 5).unwrap(), one.retrieve(&queries, 5).unwrap());
}

#[test]
fn templates_are_the_whole_text() {
    let place = tempfile::tempdir().unwrap();
    let options = DenseOptions {
        query_template: Some("the {text}".into()),
        passage_template: Some("{text} of {title}".into()),
        ..DenseOptions::new(folder("sentence"))
    };
    let dense = built(&options, &place.path().join("index"));
    let plain =
        BiEncoderOptions { prompt: Prompt::Text(String::new()), ..BiEncoderOptions::new(folder("sentence")) };
    let encoder = BiEncoder::load(&plain).unwrap();
    let query = encoder.encode(&["the song"]).unwrap();
    let texts: Vec<String> = PASSAGES.iter().map(|(title, text)| format!("{text} of {title}")).collect();
    let vectors = encoder.encode(&texts.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    assert_ranked(&dense, "song", &scores(query.values(), vectors.rows().map(<[f32]>::to_vec)));
    for (template, option) in [("no field", "query-template"), ("{title}", "query-template")] {
        let wrong = DenseOptions { query_template: Some(template.into()), ..options.clone() };
        assert!(matches!(wrong.check(), Err(Error::Option { option: found, .. }) if found == option));
    }
}

#[test]
fn an_index_opens_only_for_its_passages_model_and_options() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("index");
    let options = DenseOptions::new(folder("sentence"));
    built(&options, &dir);
    let open = |options: &DenseOptions, hash| Dense::open(options, &dir, hash).err().unwrap();
    assert!(matches!(open(&options, "q"), Error::OtherPassages { .. }));
    let other = DenseOptions { passage_template: Some("{text}".into()), ..options.clone() };
    assert!(matches!(open(&other, "p"), Error::OtherEncoder { .. }));
    assert_ne!(other.key().unwrap(), options.key().unwrap());
    let storage = FlatOptions { storage: Storage::F16, ..FlatOptions::default() };
    let other = DenseOptions { index: IndexOptions::Flat(storage), ..options.clone() };
    assert!(matches!(open(&other, "p"), Error::OtherOptions { .. }));
    assert_ne!(other.key().unwrap(), options.key().unwrap());
    let other = DenseOptions { batch_tokens: 7, ..options.clone() };
    assert!(Dense::open(&other, &dir, "p").is_ok());
    assert_eq!(other.key().unwrap(), options.key().unwrap());
}

#[test]
fn passages_out_of_order_are_an_error() {
    let place = tempfile::tempdir().unwrap();
    let options = DenseOptions::new(folder("sentence"));
    let passages = |_| [Ok::<_, Infallible>((PassageId(0), "a", "b")), Ok((PassageId(2), "a", "b"))];
    let failed = Dense::build(&options, passages, "p", place.path().join("index"), &mut |_| {});
    assert!(matches!(failed, Err(Error::PassageOrder { expected: 1, found: 2 })));
}
