//! Checkpoints as their authors released them: two models in one, or other names than those of `transformers`.

use std::{collections::HashMap, fs, path::Path};

use candle_core::{DType, Device, Tensor};
use serde_json::{Value, json};
use sporran_checkpoint::{Error, Part};
use sporran_transformers::{
    Checkpoint, DeviceName, PairClassifier, PairOptions, Precision, Truncation, import_part,
};
use tempfile::TempDir;

fn data(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn stored(name: &str) -> HashMap<String, Tensor> {
    candle_core::safetensors::load(data(name).join("model.safetensors"), &Device::Cpu).unwrap()
}

fn tensors(checkpoint: &Checkpoint) -> Vec<Vec<f32>> {
    let read = |name: &str| checkpoint.tensor(name, DType::F32, &Device::Cpu).unwrap();
    let flat = |tensor: Tensor| tensor.flatten_all().unwrap().to_vec1().unwrap();
    checkpoint.parameters().map(|parameter| flat(read(&parameter.name))).collect()
}

/// The names of `FiDT5`, whose encoder and its blocks are wrapped.
#[test]
fn fusion_in_decoder_is_the_t5_that_it_wraps() {
    let folder = TempDir::new().unwrap();
    fs::copy(data("t5-relu").join("config.json"), folder.path().join("config.json")).unwrap();
    let wrapped = |name: &str| match name.strip_prefix("encoder.") {
        Some(inner) => match inner.split('.').collect::<Vec<_>>()[..] {
            ["block", at, ref rest @ ..] => format!("encoder.encoder.block.{at}.module.{}", rest.join(".")),
            _ => format!("encoder.encoder.{inner}"),
        },
        None => name.to_owned(),
    };
    let renamed: HashMap<String, Tensor> =
        stored("t5-relu").into_iter().map(|(name, tensor)| (wrapped(&name), tensor)).collect();
    assert!(renamed.contains_key("encoder.encoder.block.0.module.layer.0.SelfAttention.q.weight"));
    candle_core::safetensors::save(&renamed, folder.path().join("model.safetensors")).unwrap();
    let released = Checkpoint::open(folder.path()).unwrap();
    assert!(released.surplus().is_empty(), "{:?}", released.surplus());
    assert_eq!(tensors(&released), tensors(&Checkpoint::open(&data("t5-relu")).unwrap()));
}

/// The names of BLINK's `BiEncoderModule`, with the config and the vocabulary of the BERT that it started from.
fn blink(vocabulary: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let config = fs::read_to_string(data("encoders/bert-states").join("config.json")).unwrap();
    let config = config.replace("\"BertModel\"", "\"BertForMaskedLM\"");
    fs::write(folder.path().join("config.json"), config).unwrap();
    fs::write(folder.path().join("vocab.txt"), vocabulary).unwrap();
    let mut both = HashMap::new();
    for (name, tensor) in stored("encoders/bert-states") {
        both.insert(format!("cand_encoder.bert_model.{name}"), (&tensor * 2.0).unwrap());
        both.insert(format!("context_encoder.bert_model.{name}"), tensor);
    }
    candle_core::safetensors::save(&both, folder.path().join("model.safetensors")).unwrap();
    folder
}

const VOCABULARY: &str = "[PAD]\n[unused0]\n[unused1]\n[unused2]\n[UNK]\n[CLS]\n[SEP]\nmay\nsaid\n";

#[test]
fn each_of_blinks_encoders_is_a_bert_with_marks() {
    let folder = blink(VOCABULARY);
    let alone = tensors(&Checkpoint::open(&data("encoders/bert-states")).unwrap());
    let twice: Vec<Vec<f32>> =
        alone.iter().map(|row| row.iter().map(|value| value * 2.0).collect()).collect();
    for (part, expected) in [(Part::MentionEncoder, alone), (Part::EntityEncoder, twice)] {
        let into = folder.path().join("imported");
        let opened = import_part(folder.path(), part, &into).unwrap();
        assert!(opened.surplus().is_empty(), "{:?}", opened.surplus());
        let imported = Checkpoint::open(&into).unwrap();
        for checkpoint in [&opened, &imported] {
            assert_eq!(tensors(checkpoint), expected);
            assert_eq!(checkpoint.architectures(), ["BertModel"]);
            let tokens =
                checkpoint.tokenizer().unwrap().encode("[unused0] May [unused1] said", None).unwrap();
            assert_eq!(tokens, [5, 1, 7, 2, 8, 6]);
        }
        fs::remove_dir_all(into).unwrap();
    }
}

/// The names of BLINK's `CrossEncoderModule`. The expected scores are those of `transformers`' BERT with these weights, a
/// linear layer over its pooled output, and inputs as BLINK makes them: contexts of 12 tokens around the mention, padded,
/// entities of 9 after them without their first token, types of 1 there, padding hidden.
#[test]
fn blinks_cross_encoder_scores_as_its_own_code_does() {
    let folder = TempDir::new().unwrap();
    let config = fs::read_to_string(data("encoders/bert-sequence").join("config.json")).unwrap();
    let config = config
        .replace("\"BertForSequenceClassification\"", "\"BertForMaskedLM\"")
        .replace("id2label", "other");
    fs::write(folder.path().join("config.json"), config).unwrap();
    let vocabulary =
        "[PAD] [UNK] [CLS] [SEP] [unused0] [unused1] [unused2] may said in the".replace(' ', "\n");
    fs::write(folder.path().join("vocab.txt"), vocabulary + "\n").unwrap();
    let renamed = |name: &str| match name.strip_prefix("classifier.") {
        Some(rest) => format!("encoder.additional_linear.{rest}"),
        None => format!("encoder.bert_model.{}", name.strip_prefix("bert.").unwrap()),
    };
    let tensors: HashMap<String, Tensor> =
        stored("encoders/bert-sequence").into_iter().map(|(name, tensor)| (renamed(&name), tensor)).collect();
    candle_core::safetensors::save(&tensors, folder.path().join("model.safetensors")).unwrap();
    let into = folder.path().join("imported");
    import_part(folder.path(), Part::CrossEncoder, &into).unwrap();
    let options = PairOptions {
        max_tokens: Some(20),
        truncation: Truncation::AroundMention,
        first_room: Some(12),
        precision: Precision::F32,
        device: DeviceName::Cpu,
        batch_tokens: 64,
    };
    let classifier = PairClassifier::load(&into, &options).unwrap();
    let pairs = [
        ("said in may [unused0] the may [unused1] in", "may the [unused2] said in"),
        (
            "said in may the in may said [unused0] the may [unused1] in said may the may in",
            "may [unused2] said in the in may said the",
        ),
    ];
    let logits = classifier.logits(&pairs).unwrap();
    for (found, expected) in logits.iter().zip([-0.475_733_64, -0.470_107_38]) {
        assert!((found[0] - expected).abs() < 1e-5, "{found:?} for {expected}");
    }
}

/// The names of `BiEncoder` or `Reader` in DPR's code, with the config of the BERT that they started from. `renamed` has DPR's
/// prefixes and those of the hub. `other` is the prefix of the other encoder.
fn dpr(model: &str, renamed: &[(&str, &str)], other: Option<&str>) -> TempDir {
    let folder = TempDir::new().unwrap();
    let config = fs::read_to_string(data(model).join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["model_type"] = json!("bert");
    config["architectures"] = json!(["BertForMaskedLM"]);
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    fs::write(folder.path().join("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\nmay\nsaid\n").unwrap();
    let mut all = HashMap::new();
    for (name, tensor) in stored(model) {
        let own = renamed.iter().find_map(|(theirs, hub)| Some((theirs, name.strip_prefix(hub)?)));
        let (theirs, rest) = own.unwrap_or_else(|| panic!("{name}"));
        if let Some(other) = other {
            all.insert(format!("{other}{rest}"), (&tensor * 2.0).unwrap());
        }
        all.insert(format!("{theirs}{rest}"), tensor);
    }
    candle_core::safetensors::save(&all, folder.path().join("model.safetensors")).unwrap();
    folder
}

#[test]
fn the_models_of_dprs_own_code_are_those_of_the_hub() {
    let question = [("question_model.", "question_encoder.bert_model.")];
    // This one has a projection.
    let context =
        [("ctx_model.", "ctx_encoder.bert_model."), ("ctx_model.encode_proj.", "ctx_encoder.encode_proj.")];
    let reader = [("encoder.", "span_predictor.encoder.bert_model."), ("", "span_predictor.")];
    for (part, model, class, folder) in [
        (
            Part::DprQuestionEncoder,
            "encoders/dpr-question",
            "DPRQuestionEncoder",
            dpr("encoders/dpr-question", &question, Some("ctx_model.")),
        ),
        (
            Part::DprPassageEncoder,
            "encoders/dpr-context",
            "DPRContextEncoder",
            dpr("encoders/dpr-context", &context, Some("question_model.")),
        ),
        (Part::DprReader, "encoders/dpr-reader", "DPRReader", dpr("encoders/dpr-reader", &reader, None)),
    ] {
        let into = folder.path().join("imported");
        import_part(folder.path(), part, &into).unwrap();
        let imported = Checkpoint::open(&into).unwrap();
        assert_eq!(imported.architectures(), [class]);
        assert_eq!(tensors(&imported), tensors(&Checkpoint::open(&data(model)).unwrap()));
        assert_eq!(imported.tokenizer().unwrap().encode("may said", None).unwrap(), [2, 4, 5, 3]);
    }
    let other = Checkpoint::open_part(&data("bart"), Part::DprReader).unwrap_err().to_string();
    assert!(other.ends_with("expected a BERT, which DPR's models are, found `bart`"), "{other}");
}

#[test]
fn what_is_no_part_of_blink_is_refused() {
    let plain = Checkpoint::open_part(&data("bart"), Part::MentionEncoder).unwrap_err();
    assert!(
        plain.to_string().ends_with("expected a BERT, which BLINK's encoders are, found `bart`"),
        "{plain}"
    );
    let missing = Checkpoint::open_part(&data("encoders/bert-states"), Part::EntityEncoder).unwrap_err();
    assert!(matches!(missing, Error::MissingTensor { .. }), "{missing}");
    let folder = blink(&VOCABULARY.replace("[unused2]", "other"));
    let unmarked = Checkpoint::open_part(folder.path(), Part::EntityEncoder).unwrap();
    let error = unmarked.tokenizer().unwrap_err();
    assert!(format!("{error:?}").contains("no `[unused2]`"), "{error:?}");
}

/// A RAG folder around the BART of the fixtures, with `prefix` before its tensor names. The names are those of
/// `RagTokenForGeneration`.
fn rag(prefix: &str) -> TempDir {
    let bart = data("bart");
    let folder = TempDir::new().unwrap();
    let generator: Value =
        serde_json::from_str(&fs::read_to_string(bart.join("config.json")).unwrap()).unwrap();
    let config =
        json!({ "model_type": "rag", "generator": generator, "question_encoder": { "model_type": "dpr" } });
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let tensors = candle_core::safetensors::load(bart.join("model.safetensors"), &Device::Cpu).unwrap();
    let mut tensors: HashMap<String, Tensor> =
        tensors.into_iter().map(|(name, tensor)| (format!("{prefix}generator.{name}"), tensor)).collect();
    let other = "question_encoder.question_encoder.bert_model.embeddings.LayerNorm.weight";
    let vector = Tensor::zeros(24, DType::F32, &Device::Cpu).unwrap();
    tensors.insert(format!("{prefix}{other}"), vector);
    candle_core::safetensors::save(&tensors, folder.path().join("model.safetensors")).unwrap();
    let tokenizer = folder.path().join("generator_tokenizer");
    fs::create_dir(&tokenizer).unwrap();
    fs::copy(bart.join("tokenizer.json"), tokenizer.join("tokenizer.json")).unwrap();
    folder
}

#[test]
fn the_generator_is_the_model_that_it_would_be_alone() {
    let alone = Checkpoint::open(&data("bart")).unwrap();
    for prefix in ["rag.", ""] {
        let folder = rag(prefix);
        let part = Checkpoint::open_part(folder.path(), Part::Generator).unwrap();
        assert_eq!(tensors(&part), tensors(&alone));
        // The tensors of the other part are no surplus of this one.
        assert!(part.surplus().is_empty(), "{:?}", part.surplus());
        let text = "which band wrote the song?";
        let tokens = |checkpoint: &Checkpoint| checkpoint.tokenizer().unwrap().encode(text, None).unwrap();
        assert_eq!(tokens(&part), tokens(&alone));
        part.model(DType::F32, &Device::Cpu).unwrap();
    }
}

#[test]
fn a_rag_folder_needs_a_part_and_other_folders_have_none() {
    let folder = rag("rag.");
    let error = Checkpoint::open(folder.path()).unwrap_err().to_string();
    assert!(error.ends_with("found `rag`, whose parts are opened one by one"), "{error}");
    let bart = data("bart");
    let error = Checkpoint::open_part(&bart, Part::Generator).unwrap_err();
    assert!(matches!(&error, Error::Architecture { expected: "a RAG model", .. }), "{error}");
    assert!(error.to_string().ends_with("found `bart`"), "{error}");
}

#[test]
fn a_part_is_imported_as_a_model_of_its_own() {
    let folder = rag("rag.");
    let into = folder.path().join("generator");
    let part = import_part(folder.path(), Part::Generator, &into).unwrap();
    let alone = Checkpoint::open(&into).unwrap();
    assert_eq!(tensors(&part), tensors(&alone));
    assert_eq!(alone.config().model_type(), "bart");
    assert_eq!(alone.tokenizer().unwrap().json(), part.tokenizer().unwrap().json());
}
