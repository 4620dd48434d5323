//! Decoder-only models against `transformers`. The fixtures are from `scripts/reference/causal_parity.py`.

mod common;
mod device;

use std::{collections::HashMap, fs, path::Path};

use candle_core::{DType, Device, Tensor};
use common::near;
use device::device;
use serde::Deserialize;
use sporran_transformers::{
    Batch, CausalLm, Checkpoint, DeviceName, Error, GenerationOptions, Gguf, Precision, Tokenizer,
    generate_causal,
};

#[derive(Deserialize)]
struct Expected {
    texts: Vec<String>,
    rows: Vec<Vec<u32>>,
    decoded: Vec<String>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    options: GenerationOptions,
    outputs: Vec<Vec<Output>>,
}

#[derive(Deserialize)]
struct Output {
    tokens: Vec<u32>,
    score: f32,
}

struct Fixture {
    name: &'static str,
    checkpoint: Checkpoint,
    model: Box<dyn CausalLm>,
    expected: Expected,
    tensors: HashMap<String, Tensor>,
}

fn fixtures() -> impl Iterator<Item = Fixture> {
    // The definitions over candle, and the packed models.
    let names = [("gpt2", false), ("llama", false), ("qwen2", false), ("llama", true), ("qwen2", true)];
    names.into_iter().map(|(name, is_packed)| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
        let checkpoint = Checkpoint::open(&folder).unwrap();
        assert!(checkpoint.surplus().is_empty(), "{name}: {:?}", checkpoint.surplus());
        let model = match is_packed {
            true => checkpoint.causal(DeviceName::Cpu, Precision::F32).unwrap(),
            false => checkpoint.causal_model(DType::F32, &device()).unwrap(),
        };
        let expected = fs::read_to_string(folder.join("expected.json")).unwrap();
        let tensors =
            candle_core::safetensors::load(folder.join("expected.safetensors"), &Device::Cpu).unwrap();
        Fixture { name, checkpoint, model, expected: serde_json::from_str(&expected).unwrap(), tensors }
    })
}

/// The batch that is padded on this side.
fn batch(tensors: &HashMap<String, Tensor>, side: &str) -> Batch {
    let ids = tensors[&format!("{side}.ids")].to_dtype(DType::U32).unwrap();
    let [ids, mask] =
        [&ids, &tensors[&format!("{side}.mask")]].map(|tensor| tensor.to_device(&device()).unwrap());
    Batch::from_tensors(ids, &mask).unwrap()
}

/// The logits at tokens, row after row.
fn at_tokens(logits: &Tensor, mask: &Tensor) -> Vec<Vec<f32>> {
    let logits: Vec<Vec<Vec<f32>>> = logits.to_vec3().unwrap();
    let mask: Vec<Vec<f32>> = mask.to_vec2().unwrap();
    let tokens = |(logits, mask): (Vec<Vec<f32>>, Vec<f32>)| {
        logits.into_iter().zip(mask).filter(|(_, mask)| *mask == 1.0).map(|(logits, _)| logits)
    };
    logits.into_iter().zip(mask).flat_map(tokens).collect()
}

#[test]
fn whole_logits_equal_transformers_on_whichever_side_the_padding_is() {
    for Fixture { name, model, tensors, .. } in fixtures() {
        let expected = at_tokens(&tensors["right.logits"], &tensors["right.mask"]);
        for side in ["left", "right"] {
            let mask = &tensors[&format!("{side}.mask")];
            let logits = model.forward(&batch(&tensors, side)).unwrap();
            let found = at_tokens(&logits, mask);
            assert_eq!(found.len(), expected.len());
            let worst = found.iter().flatten().zip(expected.iter().flatten());
            let worst = worst.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            near(name, &format!("logits, padded on the {side}"), worst, 2e-4);
        }
    }
}

#[test]
fn generations_equal_transformers() {
    for Fixture { name, model, expected, .. } in fixtures() {
        for Case { name: case, options, outputs } in &expected.cases {
            let found = generate_causal(&*model, &expected.rows, options).unwrap();
            assert_eq!(found.len(), outputs.len());
            let mut worst: f32 = 0.0;
            for (row, (found, outputs)) in found.iter().zip(outputs).enumerate() {
                assert_eq!(found.len(), outputs.len(), "{name}, {case}, row {row}");
                for (found, output) in found.iter().zip(outputs) {
                    assert_eq!(found.tokens, output.tokens, "{name}, {case}, row {row}");
                    worst = worst.max((found.score - output.score).abs());
                }
            }
            near(name, &format!("{case}: same tokens, scores"), worst, 1e-4);
        }
    }
}

#[test]
fn a_prompt_alone_is_continued_as_among_others() {
    for Fixture { name, model, expected, .. } in fixtures() {
        // Greedy search, and beam search.
        for Case { name: case, options, .. } in [&expected.cases[0], &expected.cases[2]] {
            let together = generate_causal(&*model, &expected.rows, options).unwrap();
            for (row, together) in expected.rows.iter().zip(&together) {
                let alone = generate_causal(&*model, std::slice::from_ref(row), options).unwrap();
                let tokens = |all: &[sporran_transformers::Hypothesis]| -> Vec<Vec<u32>> {
                    all.iter().map(|hypothesis| hypothesis.tokens.clone()).collect()
                };
                assert_eq!(tokens(&alone[0]), tokens(together), "{name}, {case}");
            }
        }
    }
}

#[test]
fn texts_go_in_and_come_out_as_in_transformers() {
    for Fixture { name, checkpoint, expected, .. } in fixtures() {
        let tokenizer: Tokenizer = checkpoint.tokenizer().unwrap();
        for (text, row) in expected.texts.iter().zip(&expected.rows) {
            assert_eq!(&tokenizer.encode(text, None).unwrap(), row, "{name}");
        }
        for (output, decoded) in expected.cases[0].outputs.iter().zip(&expected.decoded) {
            assert_eq!(&tokenizer.decode(&output[0].tokens).unwrap(), decoded, "{name}");
        }
    }
}

#[test]
fn a_decoder_alone_is_no_encoder_decoder() {
    for Fixture { checkpoint, .. } in fixtures() {
        let Err(error) = checkpoint.model(DType::F32, &device()) else { panic!("a model") };
        assert!(matches!(&error, Error::Architecture { expected: "an encoder-decoder", .. }), "{error}");
        assert!(error.to_string().contains("config.json"), "{error}");
    }
}

#[test]
fn a_gguf_file_holds_the_same_model_and_tokenizer() {
    let Fixture { model, expected, tensors, .. } = fixtures().nth(1).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/llama/model.gguf");
    let file = Gguf::open(&path).unwrap();
    let again = file.causal_model(DType::F32, &device()).unwrap();
    let batch = batch(&tensors, "right");
    let difference = (again.forward(&batch).unwrap() - model.forward(&batch).unwrap()).unwrap();
    assert_eq!(difference.abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap(), 0.0);
    let tokenizer = file.tokenizer().unwrap();
    for (text, row) in expected.texts.iter().zip(&expected.rows) {
        assert_eq!(&tokenizer.encode(text, None).unwrap(), row);
    }
    assert_eq!(again.special_tokens().eos, [0]);
}

#[test]
fn eight_bits_stay_near_and_a_prompt_ends_as_it_is_read_token_by_token() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/llama/model.gguf");
    let file = Gguf::open(&path).unwrap();
    let exact = file.causal(DeviceName::Cpu, Precision::F32).unwrap();
    let rounded = file.causal(DeviceName::Cpu, Precision::Int8).unwrap();
    let prompt: Vec<u32> = (3..20).collect();
    let whole = |model: &dyn CausalLm| model.decode(&prompt, 1, &mut Default::default()).unwrap();
    let (logits, near) = (whole(&*exact), whole(&*rounded));
    let range = logits.iter().copied().fold(0f32, |most, logit| most.max(logit.abs()));
    let worst = logits.iter().zip(&near).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst > 0.0 && worst < 0.1 * range, "{worst} of {range}");
    let mut cache = Default::default();
    let mut last = Vec::new();
    for token in &prompt {
        last = exact.decode(&[*token], 1, &mut cache).unwrap();
    }
    let worst = logits.iter().zip(&last).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst < 1e-4, "{worst}");
    assert_eq!((cache.rows(), cache.length()), (1, prompt.len()));
}

#[test]
fn a_gguf_file_that_is_damaged_is_an_error() {
    let whole = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/llama/model.gguf")).unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("model.gguf");
    for length in [0, 3, 20, 2000] {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(matches!(Gguf::open(&path), Err(Error::Gguf { .. })), "{length}");
    }
    fs::write(&path, &whole[..whole.len() - 100]).unwrap();
    let error = Gguf::open(&path).unwrap().causal_model(DType::F32, &device()).err().unwrap();
    assert!(matches!(error, Error::Gguf { .. }), "{error}");
}
