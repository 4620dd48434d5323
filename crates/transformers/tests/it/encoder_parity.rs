//! Encoders and their heads against the `transformers` library, and sentence vectors against sentence-transformers, on
//! seeded tiny checkpoints that `scripts/reference/encoder_parity.py`, `encoder_families.py`,
//! `own_code.py`, `decoder_encoders.py` and `sentence_modules.py` make.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::PathBuf,
};

use crate::{common::near, device::device};
use candle_core::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap};
use serde::Deserialize;
use sporran_checkpoint::{Error, Role, save};
use sporran_transformers::{
    Batch, Bert, BertConfig, BertModel, Checkpoint, DecoderHead, DeviceName, Encoder, EncoderInput,
    EncoderModel, Head, Mode, ModelConfig, ModelType, ModernBert, ModernBertConfig, PairClassifier,
    PairOptions, Pooling, Precision, Sentences, Text, TextEncoder, TextEncoderOptions, Truncation,
    has_model_type,
};

/// Encoders that are not trained.
const UNTRAINED: [&str; 64] = [
    "bart-sequence",
    "modernbert-states",
    "modernbert-sequence",
    "modernbert-first",
    "modernbert-token",
    "modernbert-span",
    "modernbert-mlm",
    "t5-encoder",
    "mt5-encoder",
    "umt5-encoder",
    "qwen3-states",
    "qwen3-sequence",
    "llama-sequence",
    "qwen2-sequence",
    "mistral-sequence",
    "gemma2-sequence",
    "gemma3-sequence",
    "gpt2-states",
    "gpt2-sequence",
    "eurobert-states",
    "eurobert-mlm-states",
    "eurobert-sequence",
    "eurobert-mean",
    "eurobert-first",
    "eurobert-token",
    "ultrabert-states",
    "ultrabert-mlm-states",
    "ultrabert-cls",
    "ultrabert-mean",
    "ultrabert-token",
    "gemma3-both-states",
    "qwen2-both-states",
    "qwen3-both-sequence",
    "falcon-sequence",
    // Its last layer reads the first token's state by projections of its own, so that others have no gradients.
    "longformer-sequence",
    "squeezebert-states",
    "squeezebert-sequence",
    "squeezebert-token",
    "squeezebert-span",
    "squeezebert-mlm",
    "mobilebert-states",
    "mobilebert-sequence",
    "mobilebert-bare",
    "mobilebert-token",
    "mobilebert-span",
    "mobilebert-mlm",
    "xlnet-states",
    "xlnet-sequence",
    "xlnet-token",
    "xlnet-span",
    "convbert-states",
    "convbert-sequence",
    "convbert-token",
    "convbert-span",
    "convbert-mlm",
    "fnet-states",
    "fnet-sequence",
    "fnet-span",
    "fnet-mlm",
    "nystromformer-states",
    "nystromformer-sequence",
    "nystromformer-token",
    "nystromformer-span",
    "nystromformer-mlm",
];

const FOLDERS: [&str; 92] = [
    "bert-states",
    "bert-sequence",
    "bert-token",
    "bert-span",
    "bert-mlm",
    "roberta-sequence",
    "roberta-token",
    "roberta-span",
    "roberta-mlm",
    "xlm-roberta-sequence",
    "distilbert-sequence",
    "distilbert-token",
    "distilbert-span",
    "distilbert-mlm",
    "dpr-question",
    "dpr-context",
    "dpr-reader",
    "camembert-sequence",
    "camembert-mlm",
    "mpnet-states",
    "mpnet-sequence",
    "mpnet-mlm",
    "electra-states",
    "electra-sequence",
    "electra-mlm",
    "albert-sequence",
    "albert-token",
    "albert-mlm",
    "deberta-sequence",
    "deberta-token",
    "deberta-span",
    "deberta-convolution",
    "deberta-mlm",
    "ernie-states",
    "ernie-sequence",
    "ernie-mlm",
    "data2vec-sequence",
    "data2vec-mlm",
    "roberta-prelayernorm-sequence",
    "roberta-prelayernorm-mlm",
    "xlm-roberta-xl-sequence",
    "xlm-roberta-xl-token",
    "megatron-bert-sequence",
    "megatron-bert-mlm",
    "rembert-sequence",
    "rembert-token",
    "rembert-mlm",
    "roformer-states",
    "roformer-sequence",
    "roformer-token",
    "roformer-mlm",
    "nomic-states",
    "nomic-sequence",
    "nomic-mlm",
    "gte-states",
    "gte-sequence",
    "gte-mlm",
    "jina-sequence",
    "jina-span",
    "deberta-v1-sequence",
    "deberta-v1-mlm",
    "deberta-v1-token",
    "deberta-v1-span",
    "big-bird-sequence",
    "big-bird-token",
    "big-bird-mlm",
    "longformer-states",
    "longformer-token",
    "longformer-mlm",
    "ibert-states",
    "ibert-sequence",
    "ibert-token",
    "ibert-span",
    "ibert-mlm",
    "luke-states",
    "luke-sequence",
    "luke-token",
    "luke-span",
    "luke-mlm",
    "xmod-states",
    "xmod-sequence",
    "xmod-token",
    "xmod-span",
    "xmod-mlm",
    "jina-bert-states",
    "jina-bert-sequence",
    "jina-bert-mlm",
    "jina-xlm-roberta-sequence",
    "new-states",
    "new-sequence",
    "nomic-own-states",
    "nomic-own-sequence",
];

fn all_folders() -> impl Iterator<Item = &'static str> {
    FOLDERS.into_iter().chain(UNTRAINED)
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/encoders").join(name)
}

struct Fixture {
    checkpoint: Checkpoint,
    tensors: HashMap<String, Tensor>,
}

impl Fixture {
    fn open(name: &str) -> Self {
        let path = folder(name).join("expected.safetensors");
        Self {
            checkpoint: Checkpoint::open(&folder(name)).unwrap(),
            tensors: candle_core::safetensors::load(path, &Device::Cpu).unwrap(),
        }
    }

    fn model(&self) -> EncoderModel {
        self.checkpoint.encoder(DType::F32, &device()).unwrap()
    }

    /// The model over candle and the packed one.
    fn models(&self) -> [EncoderModel; 2] {
        [self.model(), self.checkpoint.fast_encoder(Precision::F32).unwrap()]
    }

    /// The rows `rows` of the fixture's batch, without the padding that all of them have.
    fn batch(&self, rows: std::ops::Range<usize>) -> Batch {
        let lengths: Vec<f32> =
            self.tensors["attention_mask"].to_dtype(DType::F32).unwrap().sum(1).unwrap().to_vec1().unwrap();
        let length = lengths[rows.clone()].iter().fold(0.0, |a: f32, b| a.max(*b)) as usize;
        let part = |name: &str| {
            let tensor = self.tensors.get(name)?.to_dtype(DType::U32).unwrap();
            let part = tensor.narrow(0, rows.start, rows.len()).unwrap().narrow(1, 0, length).unwrap();
            Some(part.to_device(&device()).unwrap())
        };
        let batch =
            Batch::from_tensors(part("input_ids").unwrap(), &part("attention_mask").unwrap()).unwrap();
        Batch { types: part("token_type_ids"), ..batch }
    }
}

/// The outputs of a head over all states of a batch, by the names of `transformers`.
fn outputs(head: &Head, states: &Tensor, input: &Batch, mode: &mut Mode) -> Vec<(&'static str, Tensor)> {
    match head {
        Head::States => vec![],
        Head::Sequence(head) => {
            vec![("logits", head.forward(&head.pool(states, input, mode).unwrap(), mode).unwrap())]
        }
        Head::Token(head) => vec![("logits", head.forward(states, mode).unwrap())],
        Head::MaskedLm(head) => vec![("logits", head.forward(states, mode).unwrap())],
        Head::Span(head) => {
            let span = head.forward(states, mode).unwrap();
            vec![("start_logits", span.start), ("end_logits", span.end)]
        }
        Head::Vector(head) => vec![("pooler_output", head.forward(states).unwrap())],
        Head::Reader(head) => {
            let found = head.forward(states).unwrap();
            let span = found.span;
            vec![
                ("start_logits", span.start),
                ("end_logits", span.end),
                ("relevance_logits", found.relevance),
            ]
        }
        other => panic!("{}", other.name()),
    }
}

/// The greatest difference over rows `rows` of `expected`, at tokens where there is one value a token (`mask` is
/// (b, s)).
fn difference(found: &Tensor, expected: &Tensor, rows: std::ops::Range<usize>, mask: &Tensor) -> f32 {
    let [found, expected, mask] =
        [found, expected, mask].map(|tensor| tensor.to_device(&Device::Cpu).unwrap());
    let mut expected = expected.narrow(0, rows.start, rows.len()).unwrap();
    let (batch, length) = mask.dims2().unwrap();
    let by_token = found.rank() >= 2 && expected.dims()[1] >= length && found.dims()[..2] == [batch, length];
    if by_token {
        expected = expected.narrow(1, 0, length).unwrap();
    }
    assert_eq!(found.dims(), expected.dims());
    let mut gap = (found - expected).unwrap().abs().unwrap();
    if by_token {
        let mask = if gap.rank() == 3 { mask.unsqueeze(2).unwrap() } else { mask.clone() };
        gap = gap.broadcast_mul(&mask).unwrap();
    }
    gap.max_all().unwrap().to_scalar().unwrap()
}

#[test]
fn states_and_heads_agree_in_a_padded_batch_and_alone() {
    for name in all_folders() {
        let fixture = Fixture::open(name);
        let models = fixture.models();
        for (kind, model) in ["candle", "packed"].iter().zip(&models) {
            // The whole batch, each row alone, and some together.
            let mut worst: BTreeMap<&str, f32> = BTreeMap::new();
            for rows in [0..4, 0..1, 1..2, 2..3, 3..4, 1..3] {
                let batch = fixture.batch(rows.clone());
                let states = model.body.states(&batch).unwrap();
                let mut found = outputs(&model.head, &states, &batch, &mut Mode::Inference);
                if let Head::Sequence(head) = &model.head {
                    found.push(("logits", head.logits(&*model.body, &batch).unwrap()));
                }
                // All but the bare body have a head with something to compare.
                assert_eq!(found.is_empty(), name.ends_with("-states") || name.ends_with("-encoder"));
                found.push(("states", states));
                for (output, tensor) in found {
                    let gap = difference(&tensor, &fixture.tensors[output], rows.clone(), &batch.mask);
                    let most = worst.entry(output).or_insert(0.0);
                    *most = most.max(gap);
                }
            }
            for (output, worst) in worst {
                near(&format!("{name}, {kind}"), &format!("{output}, padded batch and alone"), worst, 2e-5);
            }
        }
    }
}

#[test]
fn states_of_some_tokens_are_those_among_all() {
    for name in all_folders() {
        let fixture = Fixture::open(name);
        let batch = fixture.batch(0..4);
        let expected = &fixture.tensors["states"];
        // In any order, one twice, and of some inputs none.
        let tokens = [(3, 0), (0, 2), (0, 0), (3, 0)];
        for (kind, model) in ["candle", "packed"].iter().zip(fixture.models()) {
            let gap = |found: &Tensor, (row, position): (usize, usize)| {
                let of = expected.get(row).unwrap().get(position).unwrap();
                (found.to_device(of.device()) - of)
                    .unwrap()
                    .abs()
                    .unwrap()
                    .max_all()
                    .unwrap()
                    .to_scalar::<f32>()
                    .unwrap()
            };
            let found = model.body.states_at(&batch, &tokens).unwrap();
            assert_eq!(found.dims(), [tokens.len(), model.body.width()]);
            let first = model.body.first_states(&batch).unwrap();
            assert_eq!(first.dims(), [4, 1, model.body.width()]);
            let picked = tokens.iter().enumerate().map(|(at, token)| gap(&found.get(at).unwrap(), *token));
            let firsts = (0..4).map(|row| gap(&first.get(row).unwrap().get(0).unwrap(), (row, 0)));
            let worst = picked.chain(firsts).fold(0.0, f32::max);
            near(&format!("{name}, {kind}"), "states of some tokens", worst, 2e-5);
            assert!(model.body.states_at(&batch, &[(4, 0)]).is_err());
            assert!(model.body.states_at(&batch, &[(0, batch.length())]).is_err());
        }
    }
}

#[test]
fn a_layer_s_states_are_those_of_a_model_that_ends_there() {
    for name in ["bert-sequence", "roberta-token", "distilbert-token"] {
        let fixture = Fixture::open(name);
        let batch = fixture.batch(0..4);
        let [candle, packed] = fixture.models().map(|model| model.body.layers(&batch).unwrap());
        let ModelConfig::Bert(config) = fixture.checkpoint.config() else { panic!("{name}") };
        assert_eq!(
            (candle.len(), packed.len()),
            (config.num_hidden_layers + 1, config.num_hidden_layers + 1)
        );
        for (a, b) in candle.iter().zip(&packed) {
            assert!(difference(b, a, 0..4, &batch.mask) < 2e-5, "{name}");
        }
        let tensors =
            candle_core::safetensors::load(folder(name).join("model.safetensors"), &device()).unwrap();
        let vb = VarBuilder::from_tensors(tensors, DType::F32, &device());
        for (layers, states) in candle.iter().enumerate().skip(1) {
            let config = BertConfig { num_hidden_layers: layers, ..config.clone() };
            let short = Bert::new(&config, &vb).unwrap().states(&batch).unwrap();
            assert!(difference(states, &short, 0..4, &batch.mask) < 1e-6, "{name}, {layers}");
        }
        assert!(difference(&candle[candle.len() - 1], &fixture.tensors["states"], 0..4, &batch.mask) < 2e-5);
    }
}

#[test]
fn both_models_give_the_same_states_of_every_layer() {
    for name in all_folders() {
        let fixture = Fixture::open(name);
        let batch = fixture.batch(0..4);
        let [candle, packed] = fixture.models().map(|model| model.body.layers(&batch).unwrap());
        assert_eq!(candle.len(), packed.len(), "{name}");
        for (a, b) in candle.iter().zip(&packed) {
            assert!(difference(b, a, 0..4, &batch.mask) < 2e-5, "{name}");
        }
        assert!(difference(&candle[candle.len() - 1], &fixture.tensors["states"], 0..4, &batch.mask) < 2e-5);
    }
}

/// Longer than the blocks of queries that share their keys.
#[test]
fn local_attention_over_a_long_input_is_that_of_the_definition() {
    let fixture = Fixture::open("modernbert-first");
    let ModelConfig::ModernBert(config) = fixture.checkpoint.config() else { panic!() };
    let written = tempfile::TempDir::new().unwrap();
    let longer = ModernBertConfig { max_position_embeddings: 400, window: 30, ..config.clone() };
    let weights = fixture.checkpoint.var_map(DType::F32, &device()).unwrap();
    let tokenizer = Checkpoint::open(&folder("bert-sequence")).unwrap().tokenizer().unwrap();
    save(written.path(), &ModelConfig::ModernBert(longer), &weights, &tokenizer, DType::F32).unwrap();
    let checkpoint = Checkpoint::open(written.path()).unwrap();
    let rows: Vec<Vec<u32>> = [330, 1, 31, 32, 150]
        .map(|length: u32| (0..length).map(|at| 5 + (at * 7 + length) % 90).collect())
        .into();
    let batch = Batch::new(&rows, 0, &device()).unwrap();
    let candle = checkpoint.encoder(DType::F32, &device()).unwrap().body;
    let packed = checkpoint.fast_encoder(Precision::F32).unwrap().body;
    let expected = candle.states(&batch).unwrap();
    assert!(difference(&packed.states(&batch).unwrap(), &expected, 0..5, &batch.mask) < 5e-5);
    let tokens = [(4, 149), (0, 0), (0, 200), (1, 0), (0, 329)];
    let (found, expected) =
        (packed.states_at(&batch, &tokens).unwrap(), candle.states_at(&batch, &tokens).unwrap());
    let gap = (found - expected.to_device(&Device::Cpu).unwrap()).unwrap().abs().unwrap().max_all().unwrap();
    assert!(gap.to_scalar::<f32>().unwrap() < 5e-5);
}

#[test]
fn every_tensor_of_a_checkpoint_is_used_except_known_ones() {
    for name in all_folders() {
        assert!(Fixture::open(name).checkpoint.surplus().is_empty(), "{name}");
    }
}

/// As all-mpnet-base-v2 and all-distilroberta-v1 are stored.
#[test]
fn a_body_that_names_the_head_of_pre_training_is_a_body() {
    for (name, class, named) in [
        ("mpnet-states", "MPNetModel", "MPNetForMaskedLM"),
        ("bert-states", "BertModel", "BertForMaskedLM"),
        ("modernbert-states", "ModernBertModel", "ModernBertForMaskedLM"),
    ] {
        let fixture = Fixture::open(name);
        let copy = tempfile::TempDir::new().unwrap();
        fs::copy(folder(name).join("model.safetensors"), copy.path().join("model.safetensors")).unwrap();
        let config = fs::read_to_string(folder(name).join("config.json")).unwrap();
        assert!(config.contains(class));
        fs::write(copy.path().join("config.json"), config.replace(class, named)).unwrap();
        let checkpoint = Checkpoint::open(copy.path()).unwrap();
        assert_eq!(checkpoint.config(), fixture.checkpoint.config(), "{name}");
        let batch = fixture.batch(0..4);
        let states = checkpoint.fast_encoder(Precision::F32).unwrap().body.states(&batch).unwrap();
        assert!(difference(&states, &fixture.tensors["states"], 0..4, &batch.mask) < 2e-5, "{name}");
    }
    // A head of which a part is there is not left out.
    let copy = tempfile::TempDir::new().unwrap();
    fs::copy(folder("mpnet-mlm").join("config.json"), copy.path().join("config.json")).unwrap();
    let mut tensors =
        candle_core::safetensors::load(folder("mpnet-mlm").join("model.safetensors"), &Device::Cpu).unwrap();
    tensors.remove("lm_head.dense.weight").unwrap();
    candle_core::safetensors::save(&tensors, copy.path().join("model.safetensors")).unwrap();
    assert!(matches!(Checkpoint::open(copy.path()), Err(Error::MissingTensor { .. })));
}

#[derive(Deserialize)]
struct Cut {
    texts: Vec<String>,
    length: Option<usize>,
    only_second: bool,
    row: Option<Row>,
}

#[derive(Deserialize)]
struct Row {
    ids: Vec<u32>,
    types: Vec<u32>,
}

#[test]
fn texts_and_pairs_are_tokenized_and_cut_alike() {
    for name in ["bert-sequence", "roberta-sequence", "mpnet-sequence"] {
        let checkpoint = Checkpoint::open(&folder(name)).unwrap();
        let tokenizer = checkpoint.tokenizer().unwrap();
        let cuts: Vec<Cut> =
            serde_json::from_str(&fs::read_to_string(folder(name).join("expected.json")).unwrap()).unwrap();
        assert!(cuts.iter().any(|cut| cut.row.is_none()));
        for cut in cuts {
            let truncation = if cut.only_second { Truncation::OnlySecond } else { Truncation::LongestFirst };
            let input =
                EncoderInput::new(tokenizer.clone(), cut.length.unwrap_or(10_000), truncation).unwrap();
            let text = match cut.texts.as_slice() {
                [text] => Text::One(text),
                [first, second] => Text::Pair(first, second),
                other => panic!("{other:?}"),
            };
            let what = format!("{name}, {:?} to {:?}", cut.texts, cut.length);
            match (input.rows(&[text]), cut.row) {
                (Ok(found), Some(row)) => {
                    assert_eq!(found[0].ids, row.ids, "{what}");
                    assert_eq!(found[0].types, row.types, "{what}");
                }
                (Err(Error::Tokenizer { .. }), None) => {}
                (found, row) => panic!("{what}: {found:?}, but refused there: {}", row.is_none()),
            }
        }
    }
}

#[derive(Deserialize)]
struct ExpectedVectors {
    texts: Vec<String>,
    vectors: Vec<Vec<f32>>,
}

#[test]
fn sentence_vectors_agree_with_sentence_transformers() {
    let folder = folder("sentence");
    let expected: ExpectedVectors =
        serde_json::from_str(&fs::read_to_string(folder.join("expected.json")).unwrap()).unwrap();
    let sentences = Sentences::open(&folder, DType::F32, &device()).unwrap().unwrap();
    assert_eq!(sentences.pooling, [Pooling::Mean, Pooling::Max]);
    let checkpoint = Checkpoint::open(&sentences.encoder).unwrap();
    let model = checkpoint.encoder(DType::F32, &device()).unwrap();
    let packed = checkpoint.fast_encoder(Precision::F32).unwrap();
    let input =
        EncoderInput::open(&checkpoint, model.body.max_input_length(), None, Truncation::LongestFirst)
            .unwrap();
    assert_eq!(input.max_length(), 20);
    let texts: Vec<Text<'_>> = expected.texts.iter().map(|text| Text::One(text)).collect();
    let rows = input.rows(&texts).unwrap();
    let batch = Batch::for_encoder(&rows.iter().collect::<Vec<_>>(), &*model.body).unwrap();
    let vectors = sentences.vectors(&model.body.states(&batch).unwrap(), &batch.mask, 0).unwrap();
    assert_eq!(vectors.dims2().unwrap(), (texts.len(), sentences.width(16)));
    for (found, expected) in vectors.to_vec2::<f32>().unwrap().iter().zip(&expected.vectors) {
        let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 2e-5, "{worst}");
    }
    // A batch's vectors by the way that may leave tokens out.
    for (sentences, body) in [(&sentences, &model), (&Sentences::plain(&folder, Pooling::Cls), &packed)] {
        let expected = sentences.vectors(&body.body.states(&batch).unwrap(), &batch.mask, 0).unwrap();
        let found = sentences.encode(&*body.body, &batch, 0).unwrap();
        let gap = (found - expected).unwrap().abs().unwrap().max_all().unwrap();
        assert!(gap.to_scalar::<f32>().unwrap() < 2e-5);
    }
}

#[derive(Deserialize)]
struct LastTokenVectors {
    texts: Vec<String>,
    cases: Vec<RoleVectors>,
}

#[derive(Deserialize)]
struct RoleVectors {
    role: String,
    prompt: String,
    vectors: Vec<Vec<f32>>,
}

/// Decoders as Qwen3-Embedding and E5-Mistral are stored, which sentence-transformers pads on the left; and static embeddings as
/// sentence-transformers and model2vec store them.
#[test]
fn vectors_agree_with_sentence_transformers_in_batches_and_alone() {
    let names = ["qwen3-embedding", "mistral-embedding", "gemma3-embedding", "static-embedding", "model2vec"];
    for name in names {
        let folder = folder(name);
        let expected: LastTokenVectors =
            serde_json::from_str(&fs::read_to_string(folder.join("expected.json")).unwrap()).unwrap();
        let texts: Vec<Text<'_>> = expected.texts.iter().map(|text| Text::One(text)).collect();
        let encoder = TextEncoder::load(&TextEncoderOptions::new(folder.clone())).unwrap().unwrap();
        // The definition over candle.
        let sentences = Sentences::open(&folder, DType::F32, &device()).unwrap().unwrap();
        let checkpoint = Checkpoint::open(&sentences.encoder).unwrap();
        let candle = checkpoint.encoder(DType::F32, &device()).unwrap().body;
        for RoleVectors { role, prompt, vectors } in &expected.cases {
            let of = if role == "query" { Role::Query } else { Role::Passage };
            let encoder = encoder.for_role(of).unwrap();
            assert_eq!(encoder.settings().unwrap().prompt(of), prompt);
            let flat: Vec<f32> = vectors.concat();
            let worst = |found: &[f32], expected: &[f32]| {
                assert_eq!(found.len(), expected.len());
                found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
            };
            let packed = worst(&encoder.encode(&texts).unwrap(), &flat);
            near(&format!("{name}, packed"), &format!("vectors, {role}"), packed, 2e-5);
            for (text, expected) in texts.iter().zip(vectors) {
                assert!(worst(&encoder.encode(&[*text]).unwrap(), expected) < 2e-5, "{name}");
            }
            let rows = encoder.rows(&texts).unwrap();
            let batch = Batch::for_encoder(&rows.iter().collect::<Vec<_>>(), &*candle).unwrap();
            let found = sentences.encode(&*candle, &batch, 0).unwrap().flatten_all().unwrap();
            let gap = worst(&found.to_vec1::<f32>().unwrap(), &flat);
            near(&format!("{name}, candle"), &format!("vectors, {role}"), gap, 2e-5);
        }
    }
}

#[derive(Deserialize)]
struct PairScores {
    pairs: Vec<(String, String)>,
    scores: Vec<f32>,
}

#[test]
fn scores_of_pooled_modules_agree_with_sentence_transformers() {
    let folder = folder("pooled-scores");
    let text = fs::read_to_string(folder.join("expected.json")).unwrap();
    let PairScores { pairs, scores } = serde_json::from_str(&text).unwrap();
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|(one, two)| (one.as_str(), two.as_str())).collect();
    let options = PairOptions {
        max_tokens: None,
        truncation: Truncation::LongestFirst,
        first_room: None,
        precision: Precision::F32,
        device: DeviceName::Cpu,
        batch_tokens: 64,
    };
    let classifier = PairClassifier::load(&folder, &options).unwrap();
    assert_eq!(classifier.labels(), ["LABEL_0"]);
    let found = classifier.logits(&pairs).unwrap().concat();
    let worst = found.iter().zip(&scores).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    near("pooled-scores, packed", "scores", worst, 2e-5);
    for (pair, expected) in pairs.iter().zip(&scores) {
        assert!((classifier.logits(&[*pair]).unwrap()[0][0] - expected).abs() < 2e-5);
    }
    assert!(has_model_type(&folder, ModelType::SequenceClassifier));
}

#[test]
fn static_embeddings_leave_out_special_tokens_and_read_texts_of_any_length() {
    let encoder = TextEncoder::load(&TextEncoderOptions::new(folder("static-embedding"))).unwrap().unwrap();
    let row = |text: &str| encoder.rows(&[Text::One(text)]).unwrap().remove(0).ids;
    assert_eq!(row("king"), [6]);
    assert_eq!(row(&"king ".repeat(3000)).len(), 3000);
    // No token, and so the vector of nothing.
    assert_eq!(encoder.encode(&[Text::One("")]).unwrap(), vec![0.0; 16]);
    let config = Checkpoint::open(&folder("static-embedding")).unwrap().config().clone();
    assert_eq!((config.model_type(), config.vocab_size(), config.hidden_size()), ("model2vec", 25, 16));
    assert!(!config.is_tunable());
}

#[test]
fn weights_that_make_no_vectors_are_refused() {
    let copy = tempfile::tempdir().unwrap();
    for name in ["config.json", "modules.json", "tokenizer.json"] {
        fs::copy(folder("model2vec").join(name), copy.path().join(name)).unwrap();
    }
    let weights = folder("model2vec").join("model.safetensors");
    let mut tensors = candle_core::safetensors::load(weights, &device()).unwrap();
    tensors.insert("mapping".into(), Tensor::full(11i64, 25, &device()).unwrap());
    candle_core::safetensors::save(&tensors, copy.path().join("model.safetensors")).unwrap();
    let error = TextEncoder::load(&TextEncoderOptions::new(copy.path().into())).err().unwrap().to_string();
    assert!(
        error.ends_with("field `mapping`: expected rows of the table, which has 11, found 11"),
        "{error}"
    );
    tensors.insert("mapping".into(), Tensor::zeros(25, DType::I64, &device()).unwrap());
    tensors.insert("weights".into(), Tensor::full(f32::NAN, 25, &device()).unwrap());
    candle_core::safetensors::save(&tensors, copy.path().join("model.safetensors")).unwrap();
    let encoder = TextEncoder::load(&TextEncoderOptions::new(copy.path().into())).unwrap().unwrap();
    let error = encoder.encode(&[Text::One("king")]).unwrap_err().to_string();
    assert!(error.contains(": expected vectors of finite numbers, found others: the weights"), "{error}");
    tensors.insert("mapping".into(), Tensor::full(-1i64, 25, &device()).unwrap());
    candle_core::safetensors::save(&tensors, copy.path().join("model.safetensors")).unwrap();
    let error = TextEncoder::load(&TextEncoderOptions::new(copy.path().into())).err().unwrap().to_string();
    assert!(error.contains("`mapping`") && error.contains("whole numbers"), "{error}");
}

#[test]
fn a_decoder_without_its_head_reads_states_and_writes_no_text() {
    let checkpoint = Fixture::open("qwen3-states").checkpoint;
    assert_eq!(checkpoint.config().decoder_head(), Some(&DecoderHead::None));
    let error = checkpoint.causal(DeviceName::Cpu, Precision::F32).err().unwrap().to_string();
    assert!(
        error.ends_with(
            "expected a decoder-only model, found `qwen3`, whose weights lack the head `lm_head.weight`"
        ),
        "{error}"
    );
    let both = Fixture::open("qwen2-both-states").checkpoint;
    let error = both.causal(DeviceName::Cpu, Precision::F32).err().unwrap().to_string();
    assert!(error.ends_with("found `qwen2`, whose tokens see those after them"), "{error}");
    let error = Fixture::open("llama-sequence").checkpoint.causal_model(DType::F32, &device()).err().unwrap();
    assert!(error.to_string().ends_with("found `llama` with a head for sequence classification"), "{error}");
    // A model with its head has states too.
    let whole = Checkpoint::open(&folder("qwen3-reranker")).unwrap();
    let [candle, packed] =
        [whole.encoder(DType::F32, &device()).unwrap(), whole.fast_encoder(Precision::F32).unwrap()];
    let batch = Batch::new(&[vec![5u32, 6, 7], vec![8]], 0, &device()).unwrap();
    let [candle, packed] = [candle, packed].map(|model| model.body.states(&batch).unwrap());
    assert!(difference(&packed, &candle, 0..2, &batch.mask) < 2e-5);
}

#[test]
fn an_input_of_too_many_tokens_is_refused() {
    for (name, most) in [
        ("bert-states", 40),
        ("roberta-sequence", 40),
        ("distilbert-token", 40),
        ("mpnet-states", 40),
        ("deberta-token", 40),
        ("nomic-states", 40),
        ("jina-sequence", 42),
        ("ernie-states", 40),
        ("modernbert-states", 40),
    ] {
        let model = Fixture::open(name).model();
        assert_eq!(model.body.max_input_length(), most, "{name}");
        let batch = Batch::new(&[vec![5u32; most + 1]], 0, &device()).unwrap();
        let error = model.body.states(&batch).unwrap_err().to_string();
        assert_eq!(error, format!("batch: expected at most {most} input tokens, found {}", most + 1));
    }
}

#[test]
fn an_encoder_is_no_encoder_decoder_and_the_other_way_round() {
    let checkpoint = Fixture::open("bert-mlm").checkpoint;
    assert!(matches!(checkpoint.model(DType::F32, &device()), Err(Error::Architecture { .. })));
    let seq2seq = Checkpoint::open(&folder("../bart")).unwrap();
    let error = seq2seq.encoder(DType::F32, &device()).err().unwrap().to_string();
    assert!(error.ends_with("expected an encoder, found `bart`"), "{error}");
}

#[test]
fn a_written_encoder_is_read_back() {
    for name in [
        "distilbert-sequence",
        "roberta-sequence",
        "dpr-context",
        "camembert-sequence",
        "mpnet-sequence",
        "electra-sequence",
        "albert-sequence",
        "deberta-sequence",
        "deberta-token",
        "ernie-states",
        "data2vec-mlm",
        "roberta-prelayernorm-sequence",
        "xlm-roberta-xl-token",
        "megatron-bert-sequence",
        "rembert-mlm",
        "roformer-token",
        "nomic-sequence",
        "gte-states",
        "gte-mlm",
        "jina-span",
        "deberta-v1-token",
        "big-bird-mlm",
        "longformer-mlm",
        "longformer-sequence",
        "squeezebert-mlm",
        "mobilebert-mlm",
        "mobilebert-bare",
        "xlnet-states",
        "xlnet-sequence",
        "convbert-mlm",
        "fnet-sequence",
        "nystromformer-span",
        "jina-bert-sequence",
        "jina-xlm-roberta-sequence",
        "new-sequence",
        "nomic-own-states",
        "modernbert-sequence",
        "modernbert-first",
        "t5-encoder",
        "mt5-encoder",
        "umt5-encoder",
        "qwen3-sequence",
        "llama-sequence",
        "falcon-sequence",
        "eurobert-sequence",
        "eurobert-token",
        "gpt2-sequence",
    ] {
        let fixture = Fixture::open(name);
        let weights = fixture.checkpoint.var_map(DType::F32, &device()).unwrap();
        let written = tempfile::TempDir::new().unwrap();
        let tokenizer = Checkpoint::open(&folder("bert-sequence")).unwrap().tokenizer().unwrap();
        save(written.path(), fixture.checkpoint.config(), &weights, &tokenizer, DType::F32).unwrap();
        let again = Checkpoint::open(written.path()).unwrap();
        assert_eq!(again.config(), fixture.checkpoint.config(), "{name}");
        let states = |checkpoint: &Checkpoint| {
            let model = checkpoint.encoder(DType::F32, &device()).unwrap();
            model.body.states(&fixture.batch(0..4)).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap()
        };
        assert_eq!(states(&again), states(&fixture.checkpoint), "{name}");
    }
}

/// A fixture's model over trainable variables, with this dropout rate.
fn trainable(fixture: &Fixture, rate: f64, dtype: DType) -> (VarMap, BertModel) {
    let weights = fixture.checkpoint.var_map(dtype, &device()).unwrap();
    let ModelConfig::Bert(mut config) = fixture.checkpoint.config().clone() else { panic!() };
    config.hidden_dropout_prob = rate;
    config.attention_probs_dropout_prob = rate;
    config.head_dropout = rate;
    let model = BertModel::new(&config, &VarBuilder::from_varmap(&weights, dtype, &device())).unwrap();
    (weights, model)
}

/// A smooth function of all that the model gives at tokens.
fn loss(fixture: &Fixture, model: &BertModel, mode: &mut Mode) -> Tensor {
    let batch = fixture.batch(0..4);
    let states = model.body.forward(&batch, mode).unwrap();
    let mut outputs: Vec<Tensor> =
        outputs(&model.head, &states, &batch, mode).into_iter().map(|(_, tensor)| tensor).collect();
    if outputs.is_empty() {
        outputs.push(states);
    }
    let (size, length) = batch.mask.dims2().unwrap();
    let mask = batch.mask.to_dtype(outputs[0].dtype()).unwrap();
    let parts = outputs.iter().map(|output| {
        let values = output.tanh().unwrap();
        let values = match output.dims() {
            [b, s, _] if (*b, *s) == (size, length) => values.broadcast_mul(&mask.unsqueeze(2).unwrap()),
            [b, s] if (*b, *s) == (size, length) => values * &mask,
            _ => Ok(values),
        };
        values.unwrap().sqr().unwrap().sum_all().unwrap()
    });
    parts.reduce(|a, b| (a + b).unwrap()).unwrap().to_dtype(DType::F64).unwrap()
}

#[test]
fn every_weight_has_the_gradient_that_differences_show() {
    for name in FOLDERS {
        let fixture = Fixture::open(name);
        // In f64, so that differences of the loss show its gradient to many digits.
        let (weights, model) = trainable(&fixture, 0.0, DType::F64);
        let grads = loss(&fixture, &model, &mut Mode::training(0)).backward().unwrap();
        let weights = weights.data().lock().unwrap().clone();
        let mut names: Vec<_> = weights.keys().cloned().collect();
        names.sort();
        for weight in names {
            let var = &weights[&weight];
            let grad = grads.get(var).unwrap_or_else(|| panic!("{name}: {weight} has no gradient"));
            // The derivative along the gradient's own direction is its norm. A bias of keys adds the same to all
            // scores of a query, so softmax takes it out again and its gradient is zero. Not so in DeBERTa, where
            // keys read distances too.
            let norm = grad.sqr().unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap().sqrt();
            // RoFormer turns it by the positions of keys.
            let is_key_bias = !name.starts_with("roformer")
                && ["key.bias", "key_global.bias", "k_lin.bias", ".attn.k.bias", "pos_key_proj.bias"]
                    .iter()
                    .any(|name| weight.ends_with(name));
            assert!(if is_key_bias { norm < 1e-10 } else { norm > 0.0 }, "{name}: {weight}: {norm}");
            if is_key_bias {
                continue;
            }
            let (before, step) = (var.as_tensor().copy().unwrap(), 1e-5);
            let at = |sign: f64| {
                var.set(&(&before + (grad * (sign * step / norm)).unwrap()).unwrap()).unwrap();
                loss(&fixture, &model, &mut Mode::training(0)).to_scalar::<f64>().unwrap()
            };
            let slope = (at(1.0) - at(-1.0)) / (2.0 * step);
            var.set(&before).unwrap();
            assert!((slope - norm).abs() < 1e-5 * norm + 1e-8, "{name}: {weight}: {slope} for {norm}");
        }
    }
}

#[test]
fn dropout_follows_its_seed_and_training_without_it_gives_the_numbers_of_inference() {
    for name in [
        "bert-sequence",
        "roberta-sequence",
        "distilbert-span",
        "mpnet-sequence",
        "electra-sequence",
        "albert-sequence",
        "deberta-sequence",
        "ernie-states",
        "xlm-roberta-xl-sequence",
        "rembert-sequence",
        "nomic-sequence",
        "gte-sequence",
        "jina-span",
        "jina-bert-sequence",
        "new-sequence",
        "deberta-v1-sequence",
        "big-bird-sequence",
        "longformer-sequence",
    ] {
        let fixture = Fixture::open(name);
        let (_weights, model) = trainable(&fixture, 0.2, DType::F32);
        let at = |seed| loss(&fixture, &model, &mut Mode::training(seed)).to_scalar::<f64>().unwrap();
        assert_eq!(at(1), at(1), "{name}");
        assert_ne!(at(1), at(2), "{name}");
        let (_weights, model) = trainable(&fixture, 0.0, DType::F32);
        let of = |mode: &mut Mode| loss(&fixture, &model, mode).to_scalar::<f64>().unwrap();
        let (train, infer) = (of(&mut Mode::training(1)), of(&mut Mode::Inference));
        assert!((train - infer).abs() < 1e-4, "{name}: {train} and {infer}");
    }
}

/// ModernBERT's definition in training, without dropout, gives the numbers of inference, and all weights have gradients.
#[test]
fn modernbert_s_definition_can_be_differentiated() {
    for name in ["modernbert-states", "modernbert-first"] {
        let fixture = Fixture::open(name);
        let ModelConfig::ModernBert(config) = fixture.checkpoint.config() else { panic!() };
        let weights = fixture.checkpoint.var_map(DType::F32, &device()).unwrap();
        let model =
            ModernBert::new(config, &VarBuilder::from_varmap(&weights, DType::F32, &device())).unwrap();
        let batch = fixture.batch(0..4);
        let states = model.forward(&batch, &mut Mode::training(0)).unwrap();
        assert!(difference(&states.detach(), &fixture.tensors["states"], 0..4, &batch.mask) < 2e-5);
        let grads = states.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        for (weight, var) in weights.data().lock().unwrap().iter() {
            let is_head = weight.starts_with("head.") || weight.starts_with("classifier.");
            assert_eq!(grads.get(var).is_none(), is_head, "{name}: {weight}");
        }
    }
}
