//! Whole tensors and whole generations against the `transformers` library, on seeded tiny checkpoints that
//! `scripts/reference/transformers_parity.py` and `seq2seq_families.py` make.

use std::path::{Path, PathBuf};

use crate::{common::near, device::device};
use candle_core::{DType, Device, Tensor};
use serde::Deserialize;
use sporran_checkpoint::Tokenizer;
use sporran_transformers::{
    Batch, Cache, Checkpoint, GenerationOptions, Hypothesis, Mode, PackedSeq2Seq, Precision, Seq2Seq,
    Trainable, generate,
};

const FOLDERS: [&str; 18] = [
    "t5-relu",
    "t5-gated",
    "bart",
    "mt5",
    "umt5",
    "mbart",
    "pegasus",
    "marian",
    "m2m100",
    "blenderbot",
    "blenderbot-small",
    "plbart",
    "mvp",
    "bigbird_pegasus",
    "led",
    "longt5",
    "longt5-local",
    "switch",
];

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
    /// The end tokens, where they are not the folder's.
    ends: Option<Vec<u32>>,
    options: GenerationOptions,
    outputs: Vec<Vec<Output>>,
}

#[derive(Deserialize)]
struct Output {
    tokens: Vec<u32>,
    score: f32,
}

struct Fixture {
    folder: PathBuf,
    model: Box<dyn Trainable>,
    fast: PackedSeq2Seq,
    tokenizer: Tokenizer,
    expected: Expected,
    tensors: std::collections::HashMap<String, Tensor>,
}

impl Fixture {
    fn open(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
        let checkpoint = Checkpoint::open(&folder).unwrap();
        let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
        let tensors =
            candle_core::safetensors::load(folder.join("expected.safetensors"), &Device::Cpu).unwrap();
        Self {
            model: checkpoint.model(DType::F32, &device()).unwrap(),
            fast: checkpoint.fast(Precision::F32).unwrap(),
            tokenizer: checkpoint.tokenizer().unwrap(),
            expected: serde_json::from_str(&text).unwrap(),
            tensors,
            folder,
        }
    }

    /// The model over candle and the packed one.
    fn models(&self) -> [&dyn Seq2Seq; 2] {
        [&*self.model, &self.fast]
    }

    /// The same with their names.
    fn named(&self) -> [(&'static str, &dyn Seq2Seq); 2] {
        let [candle, packed] = self.models();
        [("candle", candle), ("packed", packed)]
    }

    /// The models for a case: with the case's end tokens where it has some.
    fn models_for(&self, case: &Case) -> Option<(Box<dyn Trainable>, PackedSeq2Seq)> {
        let ends = case.ends.as_ref()?;
        let folder = tempfile::TempDir::new().unwrap();
        for file in ["config.json", "model.safetensors"] {
            std::fs::copy(self.folder.join(file), folder.path().join(file)).unwrap();
        }
        let text = std::fs::read_to_string(self.folder.join("generation_config.json")).unwrap();
        let mut generation: serde_json::Value = serde_json::from_str(&text).unwrap();
        generation["eos_token_id"] = serde_json::json!(ends);
        std::fs::write(folder.path().join("generation_config.json"), generation.to_string()).unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        Some((checkpoint.model(DType::F32, &device()).unwrap(), checkpoint.fast(Precision::F32).unwrap()))
    }

    fn tensor(&self, name: &str) -> Tensor {
        let tensor = &self.tensors[name];
        let dtype = if tensor.dtype() == DType::F32 { DType::F32 } else { DType::U32 };
        tensor.to_dtype(dtype).unwrap().to_device(&device()).unwrap()
    }

    /// All rows, where `model` computes.
    fn batch(&self, model: &dyn Seq2Seq) -> Batch {
        Batch::new(&self.expected.rows, model.special_tokens().pad, model.device()).unwrap()
    }

    fn single(&self, model: &dyn Seq2Seq, row: usize) -> Batch {
        Batch::new(&self.expected.rows[row..=row], model.special_tokens().pad, model.device()).unwrap()
    }
}

/// The greatest difference where `mask` (b, s) is 1; `a` and `b` are (b, s, ..).
fn difference(a: &Tensor, b: &Tensor, mask: &Tensor) -> f32 {
    assert_eq!(a.dims(), b.dims());
    let [a, b, mask] = [a, b, mask].map(|tensor| tensor.to_device(&Device::Cpu).unwrap());
    let difference = (a - b).unwrap().abs().unwrap().broadcast_mul(&mask.unsqueeze(2).unwrap()).unwrap();
    difference.max_all().unwrap().to_scalar().unwrap()
}

/// Requires the same tokens, and scores that differ by less than the rounding of their sums; returns the worst difference as
/// a share of the limit.
fn same(name: &str, found: &[Vec<Hypothesis>], expected: &[Vec<Output>]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let mut worst: f32 = 0.0;
    for (i, (found, expected)) in std::iter::zip(found, expected).enumerate() {
        assert_eq!(found.len(), expected.len(), "{name}, input {i}");
        for (rank, (found, expected)) in std::iter::zip(found, expected).enumerate() {
            assert_eq!(found.tokens, expected.tokens, "{name}, input {i}, rank {rank}");
            // A negative length penalty gives scores of some tens, whose sums are rounded accordingly.
            let scale = 1.0_f32.max(0.05 * expected.score.abs());
            worst = worst.max((found.score - expected.score).abs() / scale);
        }
    }
    worst
}

#[test]
fn texts_are_tokenized_and_decoded_alike() {
    for name in FOLDERS {
        let fixture = Fixture::open(name);
        let texts: Vec<&str> = fixture.expected.texts.iter().map(String::as_str).collect();
        assert_eq!(fixture.tokenizer.encode_batch(&texts, None).unwrap(), fixture.expected.rows, "{name}");
        for (text, output) in std::iter::zip(&fixture.expected.decoded, &fixture.expected.cases[0].outputs) {
            assert_eq!(&fixture.tokenizer.decode(&output[0].tokens).unwrap(), text, "{name}");
        }
    }
}

#[test]
fn batches_are_padded_and_masked_alike() {
    for name in FOLDERS {
        let fixture = Fixture::open(name);
        let batch = fixture.batch(&*fixture.model);
        let ids = fixture.tensor("input_ids").to_vec2::<u32>().unwrap();
        assert_eq!(batch.ids.to_vec2::<u32>().unwrap(), ids, "{name}");
        let mask = fixture.tensor("attention_mask").to_vec2::<f32>().unwrap();
        assert_eq!(batch.mask.to_vec2::<f32>().unwrap(), mask, "{name}");
    }
}

/// The greatest difference of states and logits. Marian's fixture magnifies rounding: the states of `transformers` in f32 differ by
/// 4.8e-5 from those in f64, which are the expected ones; its logits are up to 29.
fn limit(name: &str) -> f32 {
    if name == "marian" { 1.5e-4 } else { 5e-5 }
}

#[test]
fn encoder_states_agree() {
    for name in FOLDERS {
        let fixture = Fixture::open(name);
        let expected = fixture.tensor("encoder_last_hidden_state");
        for (kind, model) in fixture.named() {
            let memory = model.encode(&fixture.batch(model)).unwrap();
            let worst = difference(memory.hidden(), &expected, memory.mask());
            near(&format!("{name}, {kind}"), "encoder's states, padded batch", worst, limit(name));
        }
    }
}

#[test]
fn logits_of_whole_sequences_agree() {
    for name in FOLDERS {
        let fixture = Fixture::open(name);
        let (ids, mask) = (fixture.tensor("decoder_input_ids"), fixture.tensor("decoder_attention_mask"));
        let logits = fixture
            .model
            .forward(&fixture.batch(&*fixture.model), &ids, &mask, &mut Mode::Inference)
            .unwrap();
        let worst = difference(&logits, &fixture.tensor("logits"), &mask);
        near(&format!("{name}, candle"), "logits, teacher forcing", worst, limit(name));
    }
}

#[test]
fn decoding_step_by_step_gives_the_logits_of_the_whole_sequence() {
    for name in FOLDERS {
        let fixture = Fixture::open(name);
        // Rows 0, 2 and 4 have no decoder padding.
        let rows = Tensor::new(&[0u32, 2, 4], &device()).unwrap();
        let ids = fixture.tensor("decoder_input_ids").index_select(&rows, 0).unwrap();
        let expected = fixture.tensor("logits").index_select(&rows, 0).unwrap();
        for (kind, model) in fixture.named() {
            let mut most: f32 = 0.0;
            let memory = model.encode(&fixture.batch(model)).unwrap().select(&[0, 2, 4]).unwrap();
            // Steps of 1, 3, 1, 4 tokens.
            let (mut cache, mut at) = (Cache::new(), 0);
            for count in [1, 3, 1, 4] {
                let step = ids.narrow(1, at, count).unwrap().flatten_all().unwrap().to_vec1::<u32>().unwrap();
                let logits = model.decode(&step, 3, &memory, &mut cache).unwrap();
                let logits = Tensor::from_vec(logits, (3, 1, model.vocab_size()), &device()).unwrap();
                at += count;
                assert_eq!(cache.length(), at);
                let expected = expected.narrow(1, at - 1, 1).unwrap();
                let mask = Tensor::ones((3, 1), DType::F32, &device()).unwrap();
                most = most.max(difference(&logits, &expected, &mask));
            }
            near(&format!("{name}, {kind}"), "logits, step by step", most, limit(name));
        }
    }
}

#[test]
fn generations_agree_token_by_token() {
    for name in FOLDERS {
        let fixture = Fixture::open(name);
        for case in &fixture.expected.cases {
            let others = fixture.models_for(case);
            let models = others.as_ref().map_or(fixture.models(), |(model, fast)| [&**model, fast]);
            for (kind, model) in ["candle", "packed"].into_iter().zip(models) {
                let found = generate(model, &fixture.batch(model), &case.options).unwrap();
                let named = format!("{name}, {kind}");
                let worst = same(&named, &found, &case.outputs);
                near(&named, &format!("{}: same tokens, scores", case.name), worst, 1e-4);
            }
        }
    }
}

#[test]
fn a_batch_gives_what_its_members_give_alone() {
    for name in FOLDERS {
        let fixture = Fixture::open(name);
        for case in &fixture.expected.cases {
            let others = fixture.models_for(case);
            let models = others.as_ref().map_or(fixture.models(), |(model, fast)| [&**model, fast]);
            for (model, row) in
                models.iter().flat_map(|model| (0..fixture.expected.rows.len()).map(move |row| (model, row)))
            {
                let found = generate(*model, &fixture.single(*model, row), &case.options).unwrap();
                let worst = same(&format!("{name}, {}, alone", case.name), &found, &case.outputs[row..=row]);
                assert!(worst < 1e-4, "{name}, {}, alone: {worst}", case.name);
            }
        }
    }
}

/// Its place is that of no token, and those after it go on as if it were not there.
#[test]
fn a_padding_token_inside_an_input_of_an_m2m100_is_not_counted() {
    let fixture = Fixture::open("m2m100");
    let (pad, tokens) = (1, [40u32, 41, 1, 42, 2]);
    let encode = |model: &dyn Seq2Seq, row: &[u32]| {
        let batch = Batch::new(&[row], pad, model.device()).unwrap();
        let ones = Tensor::ones(batch.ids.shape(), DType::U32, model.device()).unwrap();
        let batch = Batch::from_tensors(batch.ids.clone(), &ones).unwrap();
        model.encode(&batch).unwrap().hidden().to_device(&Device::Cpu).unwrap()
    };
    let [candle, packed] = fixture.models().map(|model| encode(model, &tokens));
    let mask = Tensor::ones((1, tokens.len()), DType::F32, &Device::Cpu).unwrap();
    assert!(difference(&packed, &candle, &mask) < 5e-5);
    // The first three values of each state by `transformers` in f64.
    let expected = [
        [-0.150_152_3f32, 0.039_590_5, 1.993_201],
        [0.417_674_3, 1.316_996_3, -0.327_577_9],
        [0.137_021_2, 0.646_579_1, -0.231_566_1],
        [-0.649_974_5, -0.150_613_6, 0.853_18],
        [-0.402_916_1, 0.935_222, -0.625_467_2],
    ];
    let expected = Tensor::new(&expected, &Device::Cpu).unwrap().unsqueeze(0).unwrap();
    let found = candle.narrow(2, 0, 3).unwrap();
    near("m2m100, candle", "states around padding", difference(&found, &expected, &mask), 5e-5);
}
