//! ParlAI's end-to-end generator of Wizard of Wikipedia against ParlAI's own code, on the tiny network that
//! `scripts/reference/parlai_parity.py` makes.

use std::{fs, path::Path};

use candle_core::{DType, Device};
use serde::Deserialize;
use sporran_checkpoint::{Error, is_parlai};
use sporran_transformers::{
    Checkpoint, GenerationOptions, Inputs, Precision, Seq2Seq, attend_to_pieces, encode_separately, fuse,
    generate_with, import_parlai,
};
use tempfile::TempDir;

#[derive(Deserialize)]
struct Expected {
    vocabulary: usize,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    dialogue: String,
    pieces: Vec<String>,
    dialogue_tokens: Vec<u32>,
    piece_tokens: Vec<Vec<u32>>,
    attention: Vec<f32>,
    tokens: Vec<u32>,
    scores: Vec<f32>,
    text: String,
}

/// `text_truncate` and `knowledge_truncate` of the fixture.
const DIALOGUE: usize = 48;
const PIECE: usize = 16;

fn data() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/parlai")
}

fn imported() -> (TempDir, Checkpoint, Expected) {
    let folder = TempDir::new().unwrap();
    let into = folder.path().join("memnet");
    assert!(is_parlai(&data()) && !is_parlai(folder.path()));
    import_parlai(&data(), &into).unwrap();
    let checkpoint = Checkpoint::open(&into).unwrap();
    assert!(checkpoint.surplus().is_empty());
    let expected = fs::read_to_string(data().join("expected.json")).unwrap();
    (folder, checkpoint, serde_json::from_str(&expected).unwrap())
}

/// Maps the ids after ParlAI's words to the unknown token, as ParlAI does.
fn known(tokens: &[u32], words: usize) -> Vec<u32> {
    tokens.iter().map(|&token| if (token as usize) < words { token } else { 3 }).collect()
}

#[test]
fn texts_are_cut_into_parlais_words() {
    let (_folder, checkpoint, expected) = imported();
    let tokenizer = checkpoint.tokenizer().unwrap();
    let mut unknown = 0;
    for case in &expected.cases {
        let mut tokens = tokenizer.encode_plain(&case.dialogue).unwrap();
        tokens.drain(..tokens.len().saturating_sub(DIALOGUE));
        unknown += tokens.iter().filter(|token| **token as usize >= expected.vocabulary).count();
        assert_eq!(known(&tokens, expected.vocabulary), case.dialogue_tokens, "{}", case.dialogue);
        for (piece, tokens) in case.pieces.iter().zip(&case.piece_tokens) {
            let found = tokenizer.encode(piece, Some(PIECE)).unwrap();
            unknown += found.iter().filter(|token| **token as usize >= expected.vocabulary).count();
            assert_eq!(&known(&found, expected.vocabulary), tokens, "{piece}");
        }
    }
    assert!(unknown > 0, "no symbol that is no word occurs");
}

#[test]
fn the_network_attends_and_answers_as_parlais_does() {
    let (_folder, checkpoint, expected) = imported();
    let tokenizer = checkpoint.tokenizer().unwrap();
    let plain: Box<dyn Seq2Seq> = checkpoint.model(DType::F32, &Device::Cpu).unwrap();
    let packed: Box<dyn Seq2Seq> = Box::new(checkpoint.fast(Precision::F32).unwrap());
    let options = GenerationOptions { max_new_tokens: Some(12), ..GenerationOptions::default() };
    for model in [plain, packed] {
        // All texts of all cases are encoded together, so padding must not show.
        let rows: Vec<&Vec<u32>> = expected
            .cases
            .iter()
            .flat_map(|case| std::iter::once(&case.dialogue_tokens).chain(&case.piece_tokens))
            .collect();
        let mut states = encode_separately(model.as_ref(), &rows, 1000).unwrap().into_iter();
        let mut chosen = Vec::new();
        for case in &expected.cases {
            let dialogue = states.next().unwrap();
            let pieces: Vec<_> = states.by_ref().take(case.pieces.len()).collect();
            let attention = attend_to_pieces(&dialogue, &pieces).unwrap();
            for (found, expected) in attention.iter().zip(&case.attention) {
                assert!((found - expected).abs() < 1e-4, "{attention:?} for {:?}", case.attention);
            }
            let best = (0..pieces.len()).max_by(|a, b| attention[*a].total_cmp(&attention[*b])).unwrap();
            chosen.push([pieces[best].clone(), dialogue]);
        }
        let memory = fuse(&chosen.iter().map(|both| both.as_slice()).collect::<Vec<_>>()).unwrap();
        let inputs = Inputs::default();
        let answers = generate_with(model.as_ref(), &memory, &options, &inputs).unwrap();
        for (answer, case) in answers.iter().zip(&expected.cases) {
            assert_eq!(answer[0].tokens, case.tokens);
            let score: f32 = case.scores.iter().sum();
            assert!((answer[0].score - score).abs() < 1e-4, "{} for {score}", answer[0].score);
            assert_eq!(tokenizer.decode(&answer[0].tokens).unwrap(), case.text);
        }
    }
}

/// Without merges every word is cut into letters, and no symbol needs an id after the words.
#[test]
fn a_vocabulary_of_letters_needs_no_further_ids() {
    let folder = TempDir::new().unwrap();
    for name in ["model", "model.opt", "model.dict"] {
        fs::copy(data().join(name), folder.path().join(name)).unwrap();
    }
    fs::write(folder.path().join("model.dict.codecs"), "#version: 0.2\n").unwrap();
    let into = folder.path().join("into");
    import_parlai(folder.path(), &into).unwrap();
    let (_folder, _, expected) = imported();
    let checkpoint = Checkpoint::open(&into).unwrap();
    let table = checkpoint.parameters().find(|parameter| parameter.name == "model.shared.weight").unwrap();
    assert_eq!(table.shape.dims()[0], expected.vocabulary);
    // `z` is no word, at the end of a word or within one.
    let tokens = checkpoint.tokenizer().unwrap().encode_plain("z zz").unwrap();
    assert_eq!(tokens, [3, 3, 3]);
}

#[test]
fn what_cannot_be_read_is_named() {
    let copy = |change: &dyn Fn(&Path)| {
        let folder = TempDir::new().unwrap();
        for name in ["model", "model.opt", "model.dict", "model.dict.codecs"] {
            fs::copy(data().join(name), folder.path().join(name)).unwrap();
        }
        change(folder.path());
        let into = folder.path().join("into");
        let error = import_parlai(folder.path(), &into).unwrap_err();
        assert!(!into.exists());
        error
    };
    let replace = |name: &'static str, from: &'static str, to: &'static str| {
        move |folder: &Path| {
            let text = fs::read_to_string(folder.join(name)).unwrap();
            assert!(text.contains(from));
            fs::write(folder.join(name), text.replacen(from, to, 1)).unwrap();
        }
    };
    let error = copy(&replace("model.opt", "\"aiayn\"", "\"prelayernorm\"")).to_string();
    assert!(error.ends_with("field `variant`: expected `aiayn`, found `prelayernorm`"), "{error}");
    let error = copy(&replace("model.opt", "\"bpe\"", "\"re\"")).to_string();
    assert!(error.ends_with("field `dict_tokenizer`: expected `bpe`, found `re`"), "{error}");
    let error = copy(&replace("model.opt", "\"n_layers\": 2", "\"n_layers\": 3"));
    assert!(
        matches!(&error, Error::MissingTensor { tensor, .. }
            if tensor.starts_with("encoder.transformer.layers.2.")),
        "{error}"
    );
    let error = copy(&replace("model.dict.codecs", "#version: 0.2\n", "#version: 0.2\nx\n")).to_string();
    assert!(
        error.ends_with("field `line 2`: expected two symbols with a blank between, found `x`"),
        "{error}"
    );
    for name in ["model", "model.dict", "model.dict.codecs"] {
        let error = copy(&|folder| fs::remove_file(folder.join(name)).unwrap()).to_string();
        assert!(error.ends_with(&format!("expected the file {name}, found none")), "{error}");
    }
    let error = copy(&replace("model.dict", "__unk__", "one\ntwo\n__unk__"));
    assert!(matches!(&error, Error::TensorShape { tensor, .. } if tensor == "embeddings.weight"), "{error}");
}
