//! Models whose weights keep the type of their file equal those whose file has the same numbers in f32.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use candle_core::{
    DType, Device, Tensor,
    quantized::{
        GgmlDType, QTensor,
        gguf_file::{self, Content, Value},
    },
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sporran_transformers::{
    Batch, Cache, CausalCache, CausalLm, Checkpoint, DeviceName, Gguf, Precision, Seq2Seq,
};
use tempfile::TempDir;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Copies a fixture twice: with its weights rounded to `dtype`, and with the rounded weights in f32.
fn copies(name: &str, dtype: DType) -> [TempDir; 2] {
    let source = data(name);
    let tensors = candle_core::safetensors::load(source.join("model.safetensors"), &Device::Cpu).unwrap();
    let rounded: HashMap<String, Tensor> =
        tensors.into_iter().map(|(name, tensor)| (name, tensor.to_dtype(dtype).unwrap())).collect();
    let widened =
        rounded.iter().map(|(name, tensor)| (name.clone(), tensor.to_dtype(DType::F32).unwrap())).collect();
    [rounded, widened].map(|tensors: HashMap<String, Tensor>| {
        let folder = TempDir::new().unwrap();
        for file in fs::read_dir(&source).unwrap() {
            let file = file.unwrap();
            if file.path().extension().is_some_and(|extension| extension == "json") {
                fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
            }
        }
        candle_core::safetensors::save(&tensors, folder.path().join("model.safetensors")).unwrap();
        folder
    })
}

fn bits(values: impl IntoIterator<Item = f32>) -> Vec<u32> {
    values.into_iter().map(f32::to_bits).collect()
}

fn flat(tensor: &Tensor) -> Vec<u32> {
    bits(tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap())
}

const ROWS: [&[u32]; 3] = [&[5, 6, 7, 8, 9, 4, 3], &[9, 4], &[7]];

#[test]
fn weights_in_16_bits_are_those_widened_to_f32() {
    for dtype in [DType::F16, DType::BF16] {
        for name in [
            "bert-states",
            "roberta-token",
            "deberta-token",
            "mpnet-states",
            "albert-token",
            "modernbert-states",
        ] {
            let [found, expected] = copies(&format!("encoders/{name}"), dtype).map(|folder| {
                let model = Checkpoint::open(folder.path()).unwrap().fast_encoder(Precision::F32).unwrap();
                let batch = Batch::new(&ROWS, model.body.pad_token(), &Device::Cpu).unwrap();
                flat(&model.body.states(&batch).unwrap())
            });
            assert_eq!(found, expected, "{name} {dtype:?}");
        }
        for name in ["t5-gated", "bart"] {
            let [found, expected] = copies(name, dtype).map(|folder| {
                let model = Checkpoint::open(folder.path()).unwrap().fast(Precision::F32).unwrap();
                let batch = Batch::new(&ROWS, model.special_tokens().pad, &Device::Cpu).unwrap();
                let memory = model.encode(&batch).unwrap();
                bits(model.decode(&[2, 3, 4], 3, &memory, &mut Cache::new()).unwrap())
            });
            assert_eq!(found, expected, "{name} {dtype:?}");
        }
        for name in [
            "llama",
            "decoders/phi3",
            "decoders/gemma3_text",
            "decoders/gemma3n_text",
            "decoders/gemma4_text",
        ] {
            for precision in [Precision::F32, Precision::Int8] {
                let [found, expected] = copies(name, dtype).map(|folder| {
                    let checkpoint = Checkpoint::open(folder.path()).unwrap();
                    bits(logits(&*checkpoint.causal(DeviceName::Cpu, precision).unwrap()))
                });
                assert_eq!(found, expected, "{name} {dtype:?} {precision}");
            }
        }
    }
}

/// The logits after a batch of prompts, and after another token of each.
fn logits(model: &dyn CausalLm) -> Vec<f32> {
    let batch = Batch::new(&ROWS, 0, &Device::Cpu).unwrap();
    let mut cache = CausalCache::new();
    let mut logits = model.begin(&batch, &mut cache).unwrap();
    logits.extend(model.decode(&[3, 4, 5], 3, &mut cache).unwrap());
    logits
}

/// Writes a small LLaMA, each of whose weights has another of llama.cpp's types, and a file with the same numbers in f32.
fn quantised(folder: &Path, is_tied: bool) -> [PathBuf; 2] {
    let content = Content::read(&mut fs::File::open(data("llama/model.gguf")).unwrap()).unwrap();
    let mut fields = content.metadata;
    for (name, value) in [
        ("llama.embedding_length", 256),
        ("llama.feed_forward_length", 512),
        ("llama.attention.head_count", 4),
        ("llama.attention.head_count_kv", 2),
        ("llama.attention.key_length", 64),
        ("llama.attention.value_length", 64),
        ("llama.rope.dimension_count", 64),
        ("llama.block_count", 1),
    ] {
        fields.insert(name.into(), Value::U32(value));
    }
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut random = |shape: &[usize]| {
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| rng.random_range(-0.2f32..0.2)).collect();
        Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
    };
    let mut tensors: Vec<(&str, QTensor)> = [
        ("token_embd.weight", &[401, 256][..], GgmlDType::Q4_0),
        ("output.weight", &[401, 256], GgmlDType::Q6K),
        ("output_norm.weight", &[256], GgmlDType::F32),
        ("blk.0.attn_norm.weight", &[256], GgmlDType::F32),
        ("blk.0.ffn_norm.weight", &[256], GgmlDType::F32),
        ("blk.0.attn_q.weight", &[256, 256], GgmlDType::Q4K),
        ("blk.0.attn_k.weight", &[128, 256], GgmlDType::Q5_1),
        ("blk.0.attn_v.weight", &[128, 256], GgmlDType::Q5_0),
        ("blk.0.attn_output.weight", &[256, 256], GgmlDType::Q8_0),
        ("blk.0.ffn_gate.weight", &[512, 256], GgmlDType::Q5K),
        ("blk.0.ffn_up.weight", &[512, 256], GgmlDType::Q3K),
        ("blk.0.ffn_down.weight", &[256, 512], GgmlDType::Q2K),
    ]
    .into_iter()
    .map(|(name, shape, kind)| (name, QTensor::quantize(&random(shape), kind).unwrap()))
    .collect();
    if is_tied {
        tensors.retain(|(name, _)| *name != "output.weight");
    }
    let plain: Vec<(&str, QTensor)> = tensors
        .iter()
        .map(|(name, tensor)| {
            let values = tensor.dequantize(&Device::Cpu).unwrap();
            (*name, QTensor::quantize(&values, GgmlDType::F32).unwrap())
        })
        .collect();
    let fields: Vec<(&str, &Value)> = fields.iter().map(|(name, value)| (name.as_str(), value)).collect();
    [("quantised.gguf", tensors), ("plain.gguf", plain)].map(|(file, tensors)| {
        let path = folder.join(file);
        let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(name, tensor)| (*name, tensor)).collect();
        gguf_file::write(&mut fs::File::create(&path).unwrap(), &fields, &tensors).unwrap();
        path
    })
}

#[test]
fn quantised_weights_are_those_widened_to_f32() {
    let folder = TempDir::new().unwrap();
    for is_tied in [false, true] {
        for precision in [Precision::F32, Precision::Int8] {
            let [found, expected] = quantised(folder.path(), is_tied).map(|path| {
                let file = Gguf::open(&path).unwrap();
                bits(logits(&*file.causal(DeviceName::Cpu, precision).unwrap()))
            });
            assert!(found.len() == 6 * 401 && found.iter().any(|bits| *bits != 0));
            assert_eq!(found, expected, "tied {is_tied}, {precision}");
        }
    }
}
