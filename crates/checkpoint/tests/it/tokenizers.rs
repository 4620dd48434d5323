//! Tokenizers from vocabulary files, against `transformers`. The fixtures are from
//! `scripts/reference/checkpoint_parity.py`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use sporran_checkpoint::{Error, Tokenizer};
use tempfile::TempDir;

#[derive(Deserialize)]
struct Expected {
    vocabulary: usize,
    last: (String, u32),
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
    decoded: String,
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokenizers").join(name)
}

fn expected(name: &str) -> Expected {
    serde_json::from_str(&fs::read_to_string(data(name).join("expected.json")).unwrap()).unwrap()
}

#[test]
fn sentences_in_many_languages_have_the_ids_of_transformers() {
    for name in ["bert-uncased", "bert-cased", "roberta", "bart", "gpt2"] {
        let (expected, tokenizer) = (expected(name), Tokenizer::from_folder(&data(name)).unwrap());
        assert_eq!(tokenizer.vocab_size(), expected.vocabulary, "{name}");
        assert_eq!(tokenizer.token_id(&expected.last.0), Some(expected.last.1), "{name}");
        for Case { text, ids, decoded } in &expected.cases {
            assert_eq!(&tokenizer.encode(text, None).unwrap(), ids, "{name}: {text}");
            let plain = tokenizer.encode_plain(text).unwrap();
            assert_eq!(&tokenizer.decode(&plain).unwrap(), decoded, "{name}: {text}");
        }
    }
}

#[derive(Deserialize)]
struct WithOptions {
    texts: Vec<String>,
    tokenizers: BTreeMap<String, serde_json::Value>,
    cases: Vec<OptionsCase>,
}

#[derive(Deserialize)]
struct OptionsCase {
    tokenizer: String,
    config: serde_json::Value,
    model_type: Option<String>,
    ids: Vec<Vec<u32>>,
}

/// The fixture is from `scripts/reference/tokenizer_options.py`.
#[test]
fn the_class_decides_how_texts_are_read_over_the_file() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokenizer-options.json");
    let all: WithOptions = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    for case in all.cases {
        let folder = TempDir::new().unwrap();
        let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
        write("tokenizer.json", all.tokenizers[&case.tokenizer].to_string());
        write("tokenizer_config.json", case.config.to_string());
        if let Some(kind) = &case.model_type {
            write("config.json", serde_json::json!({"model_type": kind}).to_string());
        }
        let name = format!("{} {} {:?}", case.tokenizer, case.config, case.model_type);
        let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
        for (text, ids) in all.texts.iter().zip(&case.ids) {
            assert_eq!(&tokenizer.encode(text, None).unwrap(), ids, "{name}: {text:?}");
        }
        // What is written reads texts in the same way.
        let written = Tokenizer::from_json(Path::new("written"), tokenizer.json().into()).unwrap();
        assert_eq!(written.encode(&all.texts[0], None).unwrap(), case.ids[0], "{name}");
    }
    // Without a `tokenizer_config.json` the file rules.
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("config.json"), r#"{"model_type": "bert"}"#).unwrap();
    let text = all.tokenizers["bert-cased"].to_string();
    fs::write(folder.path().join("tokenizer.json"), &text).unwrap();
    assert_eq!(Tokenizer::from_folder(folder.path()).unwrap().json(), text);
}

/// The folders of `scripts/reference/sentence_piece.py`.
const SENTENCE_PIECE: [&str; 26] = [
    "t5",
    "t5-few",
    "xlm-roberta",
    "mt5",
    "mbart",
    "mbart-bare",
    "mbart50",
    "mbart-json",
    "nllb",
    "nllb-legacy",
    "m2m100",
    "m2m100-wmt21",
    "blenderbot",
    "blenderbot-ends",
    "blenderbot-small",
    "pegasus",
    "pegasus-few",
    "marian",
    "marian-codes",
    "llama",
    "llama-legacy",
    "llama-bare",
    "plain-bpe",
    "plain-unigram",
    "tiktoken",
    "qwen2",
];

#[test]
fn files_of_sentencepiece_and_tiktoken_have_the_ids_of_transformers() {
    for name in SENTENCE_PIECE {
        let name = format!("../sentence-piece/{name}");
        let (expected, tokenizer) = (expected(&name), Tokenizer::from_folder(&data(&name)).unwrap());
        assert!(Tokenizer::is_in(&data(&name)), "{name}");
        for Case { text, ids, decoded } in &expected.cases {
            assert_eq!(&tokenizer.encode(text, None).unwrap(), ids, "{name}: {text:?}");
            let plain = tokenizer.encode_plain(text).unwrap();
            assert_eq!(&tokenizer.decode(&plain).unwrap(), decoded, "{name}: {text:?}");
        }
        assert_eq!(tokenizer.vocab_size(), expected.vocabulary, "{name}");
        assert_eq!(tokenizer.token_id(&expected.last.0), Some(expected.last.1), "{name}");
        let again = Tokenizer::from_json(Path::new("tokenizer.json"), tokenizer.json().to_owned()).unwrap();
        assert_eq!(again.encode("a <sep> b", None).unwrap(), tokenizer.encode("a <sep> b", None).unwrap());
    }
}

#[test]
fn a_class_that_needs_more_than_its_files_is_refused_by_name() {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let message = || Tokenizer::from_folder(folder.path()).unwrap_err().to_string();
    write("tokenizer_config.json", r#"{"tokenizer_class": "BertJapaneseTokenizer"}"#);
    write("vocab.txt", "[UNK]\n[SEP]\n[PAD]\n[CLS]\n[MASK]\na\n");
    let found = "found `BertJapanese`, which splits words with MeCab";
    assert!(message().contains("field `tokenizer_class`") && message().contains(found), "{}", message());
    fs::remove_file(folder.path().join("vocab.txt")).unwrap();
    for class in ["CamembertTokenizer", "AlbertTokenizer"] {
        write("tokenizer_config.json", &format!(r#"{{"tokenizer_class": "{class}"}}"#));
        fs::copy(data("../sentence-piece/t5/spiece.model"), folder.path().join("spiece.model")).unwrap();
        let class = class.strip_suffix("Tokenizer").unwrap();
        assert!(message().contains(&format!("found `{class}`")), "{}", message());
    }
    // A model of another type than its class has.
    write("tokenizer_config.json", r#"{"tokenizer_class": "LlamaTokenizer"}"#);
    let error = Tokenizer::from_folder(folder.path()).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "expected a Bpe model for `LlamaTokenizer`, found Unigram");
}

#[test]
fn a_damaged_file_of_sentencepiece_or_tiktoken_is_named() {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    let open = || Tokenizer::from_folder(folder.path()).unwrap_err();
    write("spiece.model", b"version https://git-lfs.github.com/spec/v1\nsize 791656\n");
    assert!(matches!(open(), Error::Pointer { size: Some(791_656), .. }), "{:?}", open());
    write("spiece.model", b"\x0a\x7f");
    assert!(matches!(open(), Error::Tokenizer { .. }), "{:?}", open());
    assert!(open().to_string().contains("spiece.model"));
    fs::remove_file(folder.path().join("spiece.model")).unwrap();
    write("tokenizer.model", b"IQ== 0\nIg== 1\n?? 2\n");
    let expected = "tokenizer.model: line 3: expected a token in base64, a space and a rank";
    assert!(open().to_string().ends_with(expected), "{}", open());
}

#[test]
fn a_tokenizer_written_as_json_is_the_same() {
    for name in ["bert-uncased", "roberta", "gpt2"] {
        let (expected, original) = (expected(name), Tokenizer::from_folder(&data(name)).unwrap());
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("tokenizer.json"), original.json()).unwrap();
        let again = Tokenizer::from_folder(folder.path()).unwrap();
        for Case { text, ids, .. } in &expected.cases {
            assert_eq!(&again.encode(text, None).unwrap(), ids, "{name}: {text}");
        }
    }
}

#[test]
fn the_models_of_roberta_s_vocabulary_read_it_without_a_tokenizer_config() {
    let expected = expected("bart");
    for (model, class) in [("longformer", None), ("led", None), ("led", Some("LEDTokenizer"))] {
        let folder = TempDir::new().unwrap();
        let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
        for file in ["vocab.json", "merges.txt"] {
            fs::copy(data("bart").join(file), folder.path().join(file)).unwrap();
        }
        write("config.json", format!(r#"{{"model_type": "{model}"}}"#));
        if let Some(class) = class {
            write("tokenizer_config.json", format!(r#"{{"tokenizer_class": "{class}"}}"#));
        }
        let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
        for Case { text, ids, .. } in &expected.cases {
            assert_eq!(&tokenizer.encode(text, None).unwrap(), ids, "{model}: {text}");
        }
    }
}

#[test]
fn a_folder_that_does_not_say_what_its_vocabulary_is_for_is_refused() {
    let folder = TempDir::new().unwrap();
    for file in ["vocab.json", "merges.txt"] {
        fs::copy(data("gpt2").join(file), folder.path().join(file)).unwrap();
    }
    let message = || Tokenizer::from_folder(folder.path()).unwrap_err().to_string();
    assert!(message().contains("field `tokenizer_class`: expected `GPT2Tokenizer`"), "{}", message());
    fs::write(folder.path().join("config.json"), r#"{"model_type": "gpt2"}"#).unwrap();
    assert!(Tokenizer::from_folder(folder.path()).is_ok());
    fs::remove_file(folder.path().join("merges.txt")).unwrap();
    let error = Tokenizer::from_folder(folder.path()).unwrap_err();
    assert!(matches!(error, Error::MissingFile { .. }), "{error}");
    assert!(message().contains("tokenizer.json, vocab.txt, or vocab.json with merges.txt"), "{}", message());
}

#[test]
fn a_vocabulary_without_its_special_tokens_gets_them_at_the_end() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("vocab.txt"), "[UNK]\na\n##b\n").unwrap();
    let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
    // In the order of transformers: [SEP] 3, [PAD] 4, [CLS] 5, [MASK] 6.
    assert_eq!(tokenizer.encode("ab c", None).unwrap(), [5, 1, 2, 0, 3]);
    assert_eq!((tokenizer.token_id("[PAD]"), tokenizer.token_id("[MASK]")), (Some(4), Some(6)));
}

#[test]
fn a_language_that_an_mbart_lacks_is_named() {
    let folder = TempDir::new().unwrap();
    fs::copy(
        data("../sentence-piece/mbart/sentencepiece.bpe.model"),
        folder.path().join("sentencepiece.bpe.model"),
    )
    .unwrap();
    let config = r#"{"tokenizer_class": "MBartTokenizer", "src_lang": "xx_XX"}"#;
    fs::write(folder.path().join("tokenizer_config.json"), config).unwrap();
    let error = Tokenizer::from_folder(folder.path()).unwrap_err().to_string();
    assert!(error.contains("field `src_lang`: expected one of the codes ar_AR, "), "{error}");
    assert!(error.ends_with("found `xx_XX`"), "{error}");
}

#[test]
fn a_language_that_an_nllb_or_an_m2m100_lacks_is_named() {
    for (from, file, class, expected) in [
        ("nllb", "tokenizer.json", "NllbTokenizer", "the code of a language in tokenizer.json"),
        ("m2m100", "sentencepiece.bpe.model", "M2M100Tokenizer", "one of af, am, ar, "),
    ] {
        let folder = TempDir::new().unwrap();
        let copy =
            |name: &str| fs::copy(data("../sentence-piece").join(from).join(name), folder.path().join(name));
        copy(file).unwrap();
        let _ = copy("vocab.json");
        let config = format!(r#"{{"tokenizer_class": "{class}", "src_lang": "xx"}}"#);
        fs::write(folder.path().join("tokenizer_config.json"), config).unwrap();
        let error = Tokenizer::from_folder(folder.path()).unwrap_err().to_string();
        assert!(error.contains("field `src_lang`: ") && error.contains("found `xx`"), "{error}");
        assert!(error.contains(&format!("expected {expected}")), "{error}");
    }
}

#[test]
fn a_small_blenderbot_s_text_may_end_inside_a_word() {
    let tokenizer = Tokenizer::from_folder(&data("../sentence-piece/blenderbot-small")).unwrap();
    let ids = tokenizer.encode_plain("where rivers").unwrap();
    assert_eq!(tokenizer.decode(&ids[..2]).unwrap(), "where ri@@");
    assert_eq!(tokenizer.decode(&ids[..ids.len() - 1]).unwrap(), "where river@@");
    assert_eq!(tokenizer.decode(&ids).unwrap(), "where rivers");
}

#[test]
fn an_nllb_without_a_tokenizer_json_is_refused_by_name() {
    let folder = TempDir::new().unwrap();
    for file in ["sentencepiece.bpe.model", "vocab.json"] {
        fs::copy(data("../sentence-piece/m2m100").join(file), folder.path().join(file)).unwrap();
    }
    let config = r#"{"tokenizer_class": "NllbTokenizer"}"#;
    fs::write(folder.path().join("tokenizer_config.json"), config).unwrap();
    let error = Tokenizer::from_folder(folder.path()).unwrap_err().to_string();
    let expected = "`Nllb`, whose languages have ids in a tokenizer.json alone";
    assert!(error.contains("field `tokenizer_class`") && error.ends_with(expected), "{error}");
}

#[test]
fn a_marian_without_what_its_vocabulary_needs_is_told_by_name() {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let from = data("../sentence-piece/marian");
    fs::copy(from.join("source.spm"), folder.path().join("source.spm")).unwrap();
    write("config.json", r#"{"model_type": "marian"}"#);
    let open = || Tokenizer::from_folder(folder.path()).unwrap_err();
    assert!(open().to_string().contains("vocab.json"), "{}", open());
    assert!(!Tokenizer::is_in(folder.path()));
    let cause = || std::error::Error::source(&open()).unwrap().to_string();
    write("vocab.json", r#"{"</s>": 0, "<unk>": 1, "<pad>": 3}"#);
    assert_eq!(cause(), "expected the id 2 once, found `<pad>` with the id 3");
    write("vocab.json", r#"{"</s>": 0, "<unk>": 1, "a": 2}"#);
    assert_eq!(cause(), "expected the special token `<pad>`, found none");
    write("tokenizer_config.json", r#"{"separate_vocabs": true}"#);
    let expected = "tokenizer_config.json: field `separate_vocabs`: expected false, found true";
    assert!(open().to_string().ends_with(expected), "{}", open());
}

#[test]
fn a_piece_that_one_of_a_marians_files_lacks_is_unknown_or_no_part_of_a_text() {
    let tokenizer = Tokenizer::from_folder(&data("../sentence-piece/marian")).unwrap();
    let unknown = tokenizer.token_id("<unk>");
    assert_eq!(unknown, Some(1));
    // The source's file has it, and `vocab.json` does not.
    assert_eq!(tokenizer.token_id("re"), None);
    assert_eq!(tokenizer.encode_plain("where").unwrap(), [1, 1]);
    // The target's file alone has it.
    let text = fs::read_to_string(data("../sentence-piece/marian/vocab.json")).unwrap();
    let ids: std::collections::BTreeMap<String, u32> = serde_json::from_str(&text).unwrap();
    let word = "\u{2581}alte";
    assert!(ids.contains_key(word) && tokenizer.token_id(word) == Some(ids[word]));
    assert_eq!(tokenizer.decode(&[ids[word]]).unwrap(), "alte");
}
