//! Bi-encoders over the seeded tiny checkpoints of the transformers crate.

use std::path::PathBuf;

use sporran_retriever::{
    Error,
    dense::{BiEncoder, BiEncoderOptions, Embeddings, Encoder},
};
use sporran_transformers::Pooling;

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/encoders").join(name)
}

fn options(name: &str) -> BiEncoderOptions {
    BiEncoderOptions::new(folder(name))
}

fn worst(found: &Embeddings, expected: &[Vec<f32>]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let pairs = found.rows().zip(expected).flat_map(|(a, b)| a.iter().zip(b));
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn vectors_are_those_of_sentence_transformers_in_any_batch() {
    let text = std::fs::read_to_string(folder("sentence").join("expected.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
    let texts: Vec<&str> =
        expected["texts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    let vectors: Vec<Vec<f32>> = serde_json::from_value(expected["vectors"].clone()).unwrap();
    for batch_tokens in [1, 50, 4096] {
        let encoder = BiEncoder::load(&BiEncoderOptions { batch_tokens, ..options("sentence") }).unwrap();
        assert_eq!(encoder.dim(), 12);
        let found = encoder.encode(&texts).unwrap();
        assert!(worst(&found, &vectors) < 2e-5, "{batch_tokens}");
    }
}

#[test]
fn dpr_reads_titles_and_texts_as_pairs() {
    let encoder = BiEncoder::load(&options("dpr-context")).unwrap();
    assert_eq!(encoder.dim(), 7);
    let pairs = encoder.encode_passages(&[("king", "was born in the city")]).unwrap();
    let joined = encoder.encode(&["king was born in the city"]).unwrap();
    assert_ne!(pairs, joined);
    // A question's vector is the first token's state where the model has no projection.
    let question = BiEncoder::load(&options("dpr-question")).unwrap();
    let first = BiEncoderOptions { pooling: Some(Pooling::Cls), ..options("dpr-question") };
    let texts = ["who wrote the song", "war"];
    let first = BiEncoder::load(&first).unwrap().encode(&texts).unwrap();
    assert_eq!(question.encode(&texts).unwrap(), first);
}

#[test]
fn other_models_read_the_title_before_the_text_and_a_prompt_before_both() {
    let encoder = BiEncoder::load(&options("sentence")).unwrap();
    let passages = [("king", "was born"), ("", "river")];
    let found = encoder.encode_passages(&passages).unwrap();
    assert_eq!(found, encoder.encode(&["king was born", "river"]).unwrap());
    let prefixed = encoder.with_prompt("what of ").unwrap().encode_passages(&passages).unwrap();
    assert_eq!(prefixed, encoder.encode(&["what of king was born", "what of river"]).unwrap());
}

#[test]
fn a_bare_encoder_needs_a_pooling() {
    let error = BiEncoder::load(&options("bert-sequence")).err().unwrap();
    assert!(matches!(error, Error::Pooling { .. }), "{error}");
    let encoder =
        BiEncoder::load(&BiEncoderOptions { pooling: Some(Pooling::Max), ..options("bert-sequence") })
            .unwrap();
    assert_eq!(encoder.dim(), 16);
    let empty = BiEncoderOptions { batch_tokens: 0, ..options("sentence") };
    assert!(matches!(BiEncoder::load(&empty), Err(Error::Option { option: "batch-tokens", .. })));
    // A layer that was made for two poolings cannot take one.
    let other = BiEncoderOptions { pooling: Some(Pooling::Cls), ..options("sentence") };
    assert!(matches!(BiEncoder::load(&other), Err(Error::Transformers(_))));
}

#[test]
fn no_texts_have_no_vectors() {
    assert!(BiEncoder::load(&options("sentence")).unwrap().encode(&[]).unwrap().is_empty());
}
