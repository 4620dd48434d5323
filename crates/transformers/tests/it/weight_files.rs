//! One model in each form in which weights are kept. The fixtures are from `scripts/reference/checkpoint_parity.py`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use candle_core::{DType, Device, Tensor};
use sporran_checkpoint::Error;
use sporran_transformers::{Checkpoint, import};
use tempfile::TempDir;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/weights").join(name)
}

/// A folder with the config and these files, each under its new name.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (from, to) in [("config.json", "config.json")].iter().chain(files) {
        fs::copy(data(from), folder.path().join(to)).unwrap();
    }
    folder
}

fn from_bin(file: &str) -> TempDir {
    folder(&[(file, "pytorch_model.bin")])
}

/// Every tensor of the model, by name.
fn tensors(folder: &Path) -> Vec<(String, Vec<f32>)> {
    let checkpoint = Checkpoint::open(folder).unwrap();
    let read = |name: &str| {
        let tensor = checkpoint.tensor(name, DType::F32, &Device::Cpu).unwrap();
        (name.to_owned(), tensor.flatten_all().unwrap().to_vec1().unwrap())
    };
    checkpoint.parameters().map(|parameter| read(&parameter.name)).collect()
}

/// A tokenizer of `count` words.
fn tokenizer_json(count: u32) -> String {
    let vocab: serde_json::Map<_, _> = (0..count).map(|id| (format!("w{id}"), id.into())).collect();
    let model = serde_json::json!({ "type": "WordLevel", "vocab": vocab, "unk_token": "w0" });
    serde_json::json!({ "version": "1.0", "added_tokens": [], "model": model }).to_string()
}

/// The bytes of a safetensors file, with `prefix` before each tensor's name.
fn prefixed(file: &Path, prefix: &str) -> Vec<u8> {
    let bytes = fs::read(file).unwrap();
    let end = 8 + usize::try_from(u64::from_le_bytes(*bytes.first_chunk().unwrap())).unwrap();
    let header: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&bytes[8..end]).unwrap();
    let rename = |(name, value): (String, _)| match name.as_str() {
        "__metadata__" => (name, value),
        _ => (format!("{prefix}{name}"), value),
    };
    let mut header =
        serde_json::to_vec(&header.into_iter().map(rename).collect::<serde_json::Map<_, _>>()).unwrap();
    header.resize(header.len().next_multiple_of(8), b' ');
    let length = (header.len() as u64).to_le_bytes();
    [&length, header.as_slice(), &bytes[end..]].concat()
}

fn reference() -> Vec<(String, Vec<f32>)> {
    tensors(folder(&[("model.safetensors", "model.safetensors")]).path())
}

#[test]
fn each_form_of_a_model_holds_the_same_tensors() {
    let expected = reference();
    // The archive and the plain file hold a transposed tensor, a part of a longer storage, and a parameter.
    for file in ["archive.bin", "plain.bin"] {
        assert_eq!(tensors(from_bin(file).path()), expected, "{file}");
    }
    let shards = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"];
    let files = [shards[0], shards[1], "pytorch_model.bin.index.json"].map(|file| (file, file));
    assert_eq!(tensors(folder(&files).path()), expected);
}

#[test]
fn half_precision_is_rounded_and_no_more() {
    for (file, bits) in [("float16.bin", 11), ("bfloat16.bin", 8)] {
        for ((name, found), (_, expected)) in tensors(from_bin(file).path()).iter().zip(reference()) {
            for (found, expected) in found.iter().zip(expected) {
                // Half a unit in the last place; f16 runs out of exponents below 2^-14.
                let bound = expected.abs() * 0.5f32.powi(bits) + 0.5f32.powi(25);
                assert!((found - expected).abs() <= bound, "{file} {name}: {found} {expected}");
            }
        }
    }
}

#[test]
fn tied_names_of_one_storage_are_not_surplus() {
    assert!(Checkpoint::open(from_bin("archive.bin").path()).unwrap().surplus().is_empty());
}

#[test]
fn safetensors_come_before_what_pytorch_wrote() {
    let both = folder(&[("model.safetensors", "model.safetensors"), ("calls.bin", "pytorch_model.bin")]);
    assert_eq!(tensors(both.path()), reference());
}

#[test]
fn a_pickle_that_calls_a_function_is_refused_and_calls_nothing() {
    for file in ["calls.bin", "calls-plain.bin"] {
        let folder = from_bin(file);
        let error = Checkpoint::open(folder.path()).unwrap_err();
        assert!(matches!(error, Error::Pickle { .. }), "{file}: {error:?}");
        // Python pickles `os.system` by the module that it is from.
        let called = ["posix.system", "nt.system"].iter().any(|name| error.to_string().contains(name));
        assert!(called && error.to_string().contains("which is not called"), "{file}: {error}");
    }
    assert!(!Path::new("called-by-pickle").exists());
}

#[test]
fn a_damaged_file_is_an_error_wherever_it_ends() {
    for file in ["archive.bin", "plain.bin"] {
        let whole = fs::read(data(file)).unwrap();
        let folder = from_bin(file);
        for length in (0..whole.len()).step_by(61) {
            fs::write(folder.path().join("pytorch_model.bin"), &whole[..length]).unwrap();
            match Checkpoint::open(folder.path()) {
                Err(Error::Archive { .. } | Error::Pytorch { .. } | Error::Pickle { .. }) => {}
                other => panic!("{file}: {length} of {} bytes: {other:?}", whole.len()),
            }
        }
    }
}

#[test]
fn a_file_that_pytorch_did_not_write_is_refused() {
    let folder = from_bin("model.safetensors");
    let error = Checkpoint::open(folder.path()).unwrap_err().to_string();
    assert!(
        error.ends_with("pytorch_model.bin: expected a file that PyTorch wrote, found another"),
        "{error}"
    );
}

#[test]
fn a_shard_outside_the_folder_is_refused() {
    let folder = folder(&[]);
    let index = r#"{"weight_map": {"shared.weight": "../pytorch_model.bin"}}"#;
    fs::write(folder.path().join("pytorch_model.bin.index.json"), index).unwrap();
    let error = Checkpoint::open(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains("field `weight_map`: expected file names, found `../pytorch_model.bin`"),
        "{error}"
    );
}

#[test]
fn a_tensor_that_the_model_does_not_have_is_named() {
    let folder = from_bin("archive.bin");
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let error = checkpoint.tensor("lm_head.weight", DType::F32, &Device::Cpu).unwrap_err().to_string();
    assert!(
        error.contains("expected the name of one of the model's tensors, found `lm_head.weight`"),
        "{error}"
    );
    // A tensor comes in the requested type.
    let half = checkpoint.tensor("shared.weight", DType::BF16, &Device::Cpu).unwrap();
    assert_eq!((half.dtype(), half.dims()), (DType::BF16, &[24, 8][..]));
}

#[test]
fn an_imported_model_is_safetensors_with_the_same_tensors() {
    let (folder, to) = (from_bin("archive.bin"), TempDir::new().unwrap());
    fs::write(folder.path().join("tokenizer.json"), tokenizer_json(24)).unwrap();
    let from = Checkpoint::open(folder.path()).unwrap();
    let into = to.path().join("models/tiny");
    import(&from, &into).unwrap();
    let again = Checkpoint::open(&into).unwrap();
    assert!(into.join("model.safetensors").exists() && into.join("tokenizer.json").exists());
    assert_eq!((again.config(), again.stored_types()), (from.config(), from.stored_types()));
    assert_eq!(tensors(&into), tensors(folder.path()));
    assert!(matches!(import(&from, &into), Err(Error::Exists { .. })));
    // Nothing is left of the making.
    assert_eq!(fs::read_dir(to.path().join("models")).unwrap().count(), 1);
}

#[test]
fn an_import_keeps_the_tensors_that_only_a_trained_head_reads() {
    let (folder, to) = (folder(&[]), TempDir::new().unwrap());
    fs::write(folder.path().join("tokenizer.json"), tokenizer_json(24)).unwrap();
    let mut tensors = candle_core::safetensors::load(data("model.safetensors"), &Device::Cpu).unwrap();
    let pooler = Tensor::new(&[[0.5f32, -1.0], [2.0, 4.0]], &Device::Cpu).unwrap();
    tensors.insert("pooler.dense.weight".into(), pooler);
    candle_core::safetensors::save(&tensors, folder.path().join("model.safetensors")).unwrap();
    let into = to.path().join("tiny");
    import(&Checkpoint::open(folder.path()).unwrap(), &into).unwrap();
    let again = candle_core::safetensors::load(into.join("model.safetensors"), &Device::Cpu).unwrap();
    let kept = again["pooler.dense.weight"].to_vec2::<f32>().unwrap();
    assert_eq!(kept, [[0.5, -1.0], [2.0, 4.0]]);
    assert_eq!(Checkpoint::open(&into).unwrap().surplus(), ["pooler.dense.weight"]);
}

#[test]
fn a_prefix_that_all_names_share_is_taken_off() {
    let expected = reference();
    for prefix in ["module.", "module.model.", "a.b.c."] {
        let folder = folder(&[]);
        let bytes = prefixed(&data("model.safetensors"), prefix);
        fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        assert_eq!(checkpoint.stored().prefix(), prefix);
        assert!(checkpoint.surplus().is_empty(), "{prefix}");
        assert_eq!(tensors(folder.path()), expected, "{prefix}");
    }
    let plain = folder(&[("model.safetensors", "model.safetensors")]);
    assert_eq!(Checkpoint::open(plain.path()).unwrap().stored().prefix(), "");
}

#[test]
fn a_missing_shard_is_named_with_the_number_of_its_tensors() {
    let (shard, index) = ("pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json");
    let folder = folder(&[(shard, shard), (index, index)]);
    let error = Checkpoint::open(folder.path()).unwrap_err();
    assert!(matches!(error, Error::MissingShard { .. }), "{error:?}");
    let map: serde_json::Value = serde_json::from_slice(&fs::read(data(index)).unwrap()).unwrap();
    let map = map["weight_map"].as_object().unwrap();
    let missing = map.values().filter(|file| *file != shard).count();
    let expected = format!(
        "{index}: expected the shard `pytorch_model-00002-of-00002.bin`, which holds {missing} of the {} tensors",
        map.len()
    );
    assert!(error.to_string().contains(&expected), "{error}");
}

#[test]
fn a_pointer_of_git_lfs_is_told_from_a_damaged_file() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n";
    for name in ["model.safetensors", "pytorch_model.bin"] {
        let folder = folder(&[]);
        fs::write(folder.path().join(name), pointer).unwrap();
        let error = Checkpoint::open(folder.path()).unwrap_err();
        assert!(matches!(error, Error::Pointer { size: Some(123), .. }), "{error:?}");
        assert!(error.to_string().contains(name), "{error}");
    }
    let folder = folder(&[("model.safetensors", "model.safetensors")]);
    fs::write(folder.path().join("tokenizer.json"), pointer).unwrap();
    let error = Checkpoint::open(folder.path()).unwrap().tokenizer().unwrap_err();
    assert!(matches!(error, Error::Pointer { .. }), "{error:?}");
}

#[test]
fn a_token_needs_a_row_in_the_embedding_table() {
    let folder = folder(&[("model.safetensors", "model.safetensors")]);
    let path = folder.path().join("tokenizer.json");
    let tokenizer = || Checkpoint::open(folder.path()).unwrap().tokenizer();
    fs::write(&path, tokenizer_json(24)).unwrap();
    assert!(tokenizer().is_ok());
    fs::write(&path, tokenizer_json(26)).unwrap();
    let error = tokenizer().unwrap_err();
    assert!(matches!(error, Error::TokenBeyondRows { rows: 24, id: 24, .. }), "{error:?}");
    assert!(error.to_string().contains("found 24 for `w24`"), "{error}");
    // The mask token of some released models has no row, and no text is read into it.
    let mask = r#""added_tokens":[{"id":24,"content":"<mask>","single_word":false,"lstrip":false,"rstrip":false,
        "normalized":false,"special":true}]"#;
    fs::write(&path, tokenizer_json(24).replace(r#""added_tokens":[]"#, mask)).unwrap();
    assert_eq!(tokenizer().unwrap().vocab_size(), 25);
}
