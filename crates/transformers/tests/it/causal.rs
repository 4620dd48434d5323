//! Decoder-only models against `transformers`. The fixtures are from `scripts/reference/causal_parity.py`.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use crate::{common::near, device::device};
use candle_core::{
    DType, Device, Tensor,
    quantized::{
        QTensor,
        gguf_file::{self, Content, Value},
    },
};
use serde::Deserialize;
use sporran_checkpoint::{ChatMessage, ChatTemplate, Error, Tokenizer};
use sporran_transformers::{
    Batch, CausalLm, Checkpoint, DeviceName, GenerationOptions, Gguf, Precision, generate_causal,
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
    // A type that cannot be read, of the token embeddings.
    let mut other = whole.clone();
    let name = b"token_embd.weight";
    let after = name.len() + other.windows(name.len()).position(|bytes| bytes == name).unwrap();
    let kind = after + 4 + 8 * usize::from(other[after]);
    other[kind..kind + 4].copy_from_slice(&20u32.to_le_bytes());
    fs::write(&path, &other).unwrap();
    let error = Gguf::open(&path).unwrap_err().to_string();
    assert!(error.contains("field `token_embd.weight.type`: expected F32, F16,"), "{error}");
    assert!(error.ends_with("found IQ4_NL"), "{error}");
    fs::write(&path, &whole[..whole.len() - 100]).unwrap();
    let error = Gguf::open(&path).unwrap().causal_model(DType::F32, &device()).err().unwrap();
    assert!(matches!(error, Error::Gguf { .. }), "{error}");
}

/// The fixture's GGUF file with these fields replaced.
fn changed_gguf(folder: &Path, fields: &[(&str, Value)]) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/llama/model.gguf");
    let mut file = fs::File::open(&path).unwrap();
    let content = Content::read(&mut file).unwrap();
    let mut metadata = content.metadata.clone();
    metadata.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(name, value)| (name.as_str(), value)).collect();
    let names: Vec<&String> = content.tensor_infos.keys().collect();
    let tensors: Vec<QTensor> =
        names.iter().map(|name| content.tensor(&mut file, name, &Device::Cpu).unwrap()).collect();
    let tensors: Vec<(&str, &QTensor)> = names.iter().map(|name| name.as_str()).zip(&tensors).collect();
    let changed = folder.join("changed.gguf");
    gguf_file::write(&mut fs::File::create(&changed).unwrap(), &metadata, &tensors).unwrap();
    changed
}

#[test]
fn a_gguf_file_provides_the_chat_template_and_end_tokens() {
    let folder = tempfile::TempDir::new().unwrap();
    let template =
        "{{ bos_token }}{% for message in messages %}{{ message.content }}{% endfor %}{{ eos_token }}";
    let path = changed_gguf(
        folder.path(),
        &[
            ("tokenizer.chat_template", Value::String(template.into())),
            ("tokenizer.ggml.eot_token_id", Value::U32(7)),
            // No token has these.
            ("tokenizer.ggml.eom_token_id", Value::I32(-1)),
            ("tokenizer.ggml.padding_token_id", Value::U32(u32::MAX)),
        ],
    );
    let file = Gguf::open(&path).unwrap();
    let model = file.causal(DeviceName::Cpu, Precision::F32).unwrap();
    let tokens = model.special_tokens();
    assert_eq!((tokens.eos.as_slice(), tokens.pad), (&[0, 7][..], 0));
    let chat = ChatTemplate::open(&path).unwrap().unwrap();
    let text = chat.render(&[ChatMessage::new("user", "hi")], true).unwrap();
    assert_eq!(text, "<|endoftext|>hi<|endoftext|>");
    let row = file.tokenizer().unwrap().encode_plain(&text).unwrap();
    assert_eq!((row.first(), row.last()), (Some(&0), Some(&0)));
    let plain = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/llama/model.gguf");
    assert!(ChatTemplate::open(&plain).unwrap().is_none());
}

#[test]
fn numbers_of_a_gguf_file_that_cannot_be_are_refused_by_name() {
    let folder = tempfile::TempDir::new().unwrap();
    for (field, value, expected) in [
        ("general.alignment", Value::U32(0), "expected at least 1, found 0"),
        ("llama.block_count", Value::U32(i32::MAX as u32), "no more layers than the weights have tensors"),
        ("llama.feed_forward_length", Value::U32(u32::MAX), "expected at most 2147483647, found 4294967295"),
        ("llama.attention.key_length", Value::U64(1 << 62), "the width of a head"),
        ("llama.rope.dimension_count", Value::U32(3), "expected the width of a head, 4, found 3"),
        ("llama.block_count", Value::I32(-1), "expected a size, found -1"),
        ("llama.context_length", Value::String("64".into()), "expected a size, found a text"),
        ("general.architecture", Value::U32(7), "expected a text, found 7"),
        ("tokenizer.ggml.tokens", Value::Bool(true), "expected a list, found true"),
    ] {
        let error = Gguf::open(&changed_gguf(folder.path(), &[(field, value)])).unwrap_err();
        assert!(matches!(&error, Error::Config { .. }), "{field}: {error}");
        assert!(error.to_string().contains(expected), "{field}: {error}");
    }
    // Positions cost nothing.
    let many = changed_gguf(folder.path(), &[("llama.context_length", Value::U32(i32::MAX as u32))]);
    let model = Gguf::open(&many).unwrap().causal(DeviceName::Cpu, Precision::F32).unwrap();
    assert_eq!(model.max_length(), i32::MAX as usize);
}

#[test]
fn rotary_positions_go_on_and_learned_ones_end() {
    for Fixture { name, model, .. } in fixtures() {
        // 64 positions, of which the last new token needs none.
        let options =
            GenerationOptions { min_new_tokens: Some(30), max_new_tokens: Some(30), ..Default::default() };
        let prompts: Vec<Vec<u32>> = [40u32, 50].map(|length| (3..3 + length).collect()).into();
        let found = generate_causal(&*model, &prompts, &options).unwrap();
        let lengths: Vec<usize> = found.iter().map(|found| found[0].tokens.len()).collect();
        assert_eq!(lengths, if name == "gpt2" { [25, 15] } else { [30, 30] }, "{name}");
        let beams = GenerationOptions { num_beams: Some(3), ..options.clone() };
        let found = generate_causal(&*model, &prompts, &beams).unwrap();
        assert_eq!(found.iter().map(|found| found[0].tokens.len()).collect::<Vec<_>>(), lengths, "{name}");
        let long: Vec<u32> = (3..103).collect();
        match generate_causal(&*model, std::slice::from_ref(&long), &options) {
            Ok(found) => assert_eq!((name != "gpt2", found[0][0].tokens.len()), (true, 30)),
            Err(error) => {
                assert!(name == "gpt2" && error.to_string().contains("positions"), "{name}: {error}")
            }
        }
    }
}

#[test]
fn the_length_limit_counts_each_prompt_separately() {
    let Fixture { model, .. } = fixtures().nth(1).unwrap();
    let options = GenerationOptions { max_length: Some(20), min_length: Some(20), ..Default::default() };
    let prompts = [vec![3, 4, 5], vec![6; 12]];
    let together = generate_causal(&*model, &prompts, &options).unwrap();
    assert_eq!(together.iter().map(|found| found[0].tokens.len()).collect::<Vec<_>>(), [17, 8]);
    for (prompt, together) in prompts.iter().zip(&together) {
        let alone = generate_causal(&*model, std::slice::from_ref(prompt), &options).unwrap();
        assert_eq!(alone[0][0].tokens, together[0].tokens);
    }
}
