//! What the class of a folder's tokenizer does to texts in place of its `tokenizer.json`.
//!
//! `transformers` 5 takes the vocabulary of the file alone for most classes: how texts are normalised and split follows from the options
//! in `tokenizer_config.json` and from the class's default values. The file rules for other classes, and in folders without a
//! `tokenizer_config.json`: their class would follow from the model's type alone, which says nothing about a vocabulary of a folder's own.

use std::path::Path;

use serde::Deserialize;
use tokenizers::{
    NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior,
    normalizers::{
        BertNormalizer, Lowercase, NFC, NFKD, Precompiled, Replace, Sequence as Normalizers, Strip,
        StripAccents, replace::ReplacePattern,
    },
    pre_tokenizers::{
        bert::BertPreTokenizer,
        byte_level::ByteLevel,
        metaspace::{Metaspace, PrependScheme},
        punctuation::Punctuation,
        sequence::Sequence,
        whitespace::WhitespaceSplit,
    },
};

use super::{Tokenizer, bounds, options::CONFIG};
use crate::{
    error::Result,
    json::{self, parse},
};

/// The options of `tokenizer_config.json` that decide.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Options {
    tokenizer_class: Option<String>,
    do_lower_case: Option<bool>,
    keep_accents: Option<bool>,
    strip_accents: Option<bool>,
    tokenize_chinese_chars: Option<bool>,
    add_prefix_space: Option<bool>,
    split_by_punct: Option<bool>,
}

/// The fields of `config.json` that name the class.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Model {
    model_type: Option<String>,
    tokenizer_class: Option<String>,
}

/// How the classes read texts.
#[derive(Clone, Copy)]
enum Reading {
    /// As BERT does. Texts are lowercased by default.
    Words,
    /// The same, always lowercased: the classes do not pass `do_lower_case` on to BERT's.
    LowerWords,
    /// As the bytes of GPT-2. The value is the default of `add_prefix_space`.
    Bytes(bool),
    /// As XLM-RoBERTa does.
    Pieces,
    Albert,
    RemBert,
    DebertaV2,
    BigBird,
}

/// The classes, without `Tokenizer` and `Fast`. Those that inherit one of these without options of their own, such as ConvBERT's, read the
/// file.
const CLASSES: [(&str, Reading); 26] = [
    ("Bert", Reading::Words),
    ("DistilBert", Reading::Words),
    ("Electra", Reading::Words),
    ("MobileBert", Reading::Words),
    ("SqueezeBert", Reading::Words),
    ("LayoutLM", Reading::Words),
    ("Lxmert", Reading::Words),
    ("DPRQuestionEncoder", Reading::LowerWords),
    ("DPRContextEncoder", Reading::LowerWords),
    ("DPRReader", Reading::LowerWords),
    ("MPNet", Reading::Words),
    ("Roberta", Reading::Bytes(false)),
    ("Bart", Reading::Bytes(false)),
    ("Longformer", Reading::Bytes(false)),
    ("LED", Reading::Bytes(false)),
    ("Mvp", Reading::Bytes(false)),
    ("GPT2", Reading::Bytes(false)),
    ("CodeGen", Reading::Bytes(false)),
    ("Deberta", Reading::Bytes(false)),
    ("Blenderbot", Reading::Bytes(true)),
    ("XLMRoberta", Reading::Pieces),
    ("Camembert", Reading::Pieces),
    ("Albert", Reading::Albert),
    ("RemBert", Reading::RemBert),
    ("DebertaV2", Reading::DebertaV2),
    ("BigBird", Reading::BigBird),
];

/// The class of each type of model whose `tokenizer_config.json` names none. The file rules for other types.
const TYPES: [(&[&str], &str); 14] = [
    (
        &[
            "bert",
            "convbert",
            "distilbert",
            "electra",
            "ernie",
            "megatron-bert",
            "mobilebert",
            "nomic_bert",
            "squeezebert",
        ],
        "Bert",
    ),
    (&["dpr"], "DPRQuestionEncoder"),
    (&["mpnet"], "MPNet"),
    (&["bart", "data2vec-text", "led", "longformer", "roberta", "roberta-prelayernorm"], "Roberta"),
    (&["codegen", "gpt2", "gpt_neo", "gptj", "opt", "phi", "starcoder2"], "GPT2"),
    (&["deberta"], "Deberta"),
    (&["blenderbot"], "Blenderbot"),
    (&["gte", "jina_embeddings_v3", "xlm-roberta"], "XLMRoberta"),
    (&["camembert"], "Camembert"),
    (&["albert"], "Albert"),
    (&["rembert"], "RemBert"),
    (&["deberta-v2"], "DebertaV2"),
    (&["big_bird"], "BigBird"),
    (&["mvp"], "Mvp"),
];

/// The types of models for which the file rules whatever class their folder names: those without a class of their own, and those whose
/// folders are known to name a wrong one.
const BY_FILE: [&str; 29] = [
    "bigbird_pegasus",
    "ernie4_5",
    "ernie4_5_moe",
    "glm",
    "glm4",
    "glm4_moe",
    "gpt_bigcode",
    "granite",
    "granitemoe",
    "granitemoehybrid",
    "granitemoeshared",
    "minicpm3",
    "ministral",
    "ministral3",
    "mistral",
    "mistral3",
    "mixtral",
    "modernbert",
    "nemotron",
    "nystromformer",
    "olmo2",
    "olmo3",
    "persimmon",
    "phi3",
    "phimoe",
    "qwen2",
    "stablelm",
    "umt5",
    "xlm-roberta-xl",
];

/// The tokenizer of a folder's `tokenizer.json`, which reads texts as its class does.
///
/// # Errors
/// [`Error::Json`](crate::Error::Json), and [`Error::Tokenizer`](crate::Error::Tokenizer) for a class that cannot read texts as the file's
/// vocabulary needs.
pub(super) fn applied(mut tokenizer: Tokenizer, folder: &Path) -> Result<Tokenizer> {
    let path = folder.join(CONFIG);
    let Some(text) = json::text(&path)? else { return Ok(tokenizer) };
    let options: Options = parse(&path, &text)?;
    let path = folder.join("config.json");
    let model = json::text(&path)?.map(|text| parse::<Model>(&path, &text)).transpose()?.unwrap_or_default();
    let Some(reading) = reading(&options, &model) else { return Ok(tokenizer) };
    let charsmap = tokenizer.inner.get_normalizer().and_then(charsmap).cloned();
    let (normalizer, splitter) =
        reading.parts(&options, charsmap).map_err(|source| tokenizer.wrong(source))?;
    if same(tokenizer.inner.get_normalizer(), normalizer.as_ref())
        && same(tokenizer.inner.get_pre_tokenizer(), Some(&splitter))
    {
        return Ok(tokenizer);
    }
    let result = tokenizer.inner.with_normalizer(normalizer).map(|_| ());
    result.map_err(|source| tokenizer.wrong(source))?;
    tokenizer.inner.with_pre_tokenizer(Some(splitter));
    tokenizer.json = bounds::text(&tokenizer.inner).map_err(|source| tokenizer.wrong(source))?;
    Ok(tokenizer)
}

/// How the folder's class reads texts; none where the file rules.
fn reading(options: &Options, model: &Model) -> Option<Reading> {
    let kind = model.model_type.as_deref().unwrap_or_default();
    if BY_FILE.contains(&kind) {
        return None;
    }
    let named = options.tokenizer_class.as_deref().or(model.tokenizer_class.as_deref());
    let class = match named {
        Some(class) => {
            let class = class.strip_suffix("Fast").unwrap_or(class);
            class.strip_suffix("Tokenizer")?
        }
        None => TYPES.iter().find(|(kinds, _)| kinds.contains(&kind))?.1,
    };
    CLASSES.iter().find(|(name, _)| *name == class).map(|(_, reading)| *reading)
}

/// Whether two parts of tokenizers are written in the same way.
fn same<T: serde::Serialize>(a: Option<&T>, b: Option<&T>) -> bool {
    serde_json::to_value(a).ok() == serde_json::to_value(b).ok()
}

/// The first table of SentencePiece in a normaliser.
fn charsmap(normalizer: &NormalizerWrapper) -> Option<&Precompiled> {
    match normalizer {
        NormalizerWrapper::Precompiled(table) => Some(table),
        NormalizerWrapper::Sequence(parts) => parts.as_ref().iter().find_map(charsmap),
        _ => None,
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn replace(pattern: ReplacePattern, by: &str) -> std::result::Result<NormalizerWrapper, Failure> {
    Ok(Replace::new(pattern, by)?.into())
}

impl Reading {
    /// The normaliser and the splitter of texts.
    fn parts(
        self,
        options: &Options,
        charsmap: Option<Precompiled>,
    ) -> std::result::Result<(Option<NormalizerWrapper>, PreTokenizerWrapper), Failure> {
        let text = |text: &str| ReplacePattern::String(text.into());
        let regex = |regex: &str| ReplacePattern::Regex(regex.into());
        let charsmap = charsmap.map(NormalizerWrapper::from);
        let begins = options.add_prefix_space.unwrap_or(true);
        let marked = |other: PrependScheme| {
            Metaspace::new('▁', if begins { PrependScheme::Always } else { other }, true)
        };
        let folded = |keeps: bool, lowers: bool| -> Vec<NormalizerWrapper> {
            let accents: [Option<NormalizerWrapper>; 2] =
                if keeps { [None, None] } else { [Some(NFKD.into()), Some(StripAccents.into())] };
            accents.into_iter().chain([lowers.then(|| Lowercase.into())]).flatten().collect()
        };
        let quotes = || Ok::<_, Failure>([replace(text("``"), "\"")?, replace(text("''"), "\"")?]);
        let sequence = |parts: Vec<NormalizerWrapper>| Some(NormalizerWrapper::from(Normalizers::new(parts)));
        let by_spaces = || Sequence::new(vec![WhitespaceSplit.into(), marked(PrependScheme::Never).into()]);
        Ok(match self {
            Self::Words | Self::LowerWords => {
                let lowers = options.do_lower_case.filter(|_| matches!(self, Self::Words));
                let normalizer = BertNormalizer::new(
                    true,
                    options.tokenize_chinese_chars.unwrap_or(true),
                    options.strip_accents,
                    lowers.unwrap_or(true),
                );
                (Some(normalizer.into()), BertPreTokenizer.into())
            }
            Self::Bytes(prefix) => {
                let prefix = options.add_prefix_space.unwrap_or(prefix);
                (None, ByteLevel::new(prefix, true, true).into())
            }
            Self::Pieces => (charsmap, by_spaces().into()),
            Self::Albert => {
                let keeps = options.keep_accents.unwrap_or(false);
                let folded = folded(keeps, options.do_lower_case.unwrap_or(true));
                (sequence(quotes()?.into_iter().chain(folded).chain(charsmap).collect()), by_spaces().into())
            }
            Self::RemBert => {
                let keeps = options.keep_accents.unwrap_or(true);
                let folded = folded(keeps, options.do_lower_case.unwrap_or(false));
                let spaces = [replace(regex(" {2,}"), " ")?];
                let parts = quotes()?.into_iter().chain(spaces).chain(folded).chain(charsmap);
                (sequence(parts.collect()), marked(PrependScheme::Never).into())
            }
            Self::DebertaV2 => {
                let lower = options.do_lower_case.unwrap_or(false).then(|| Lowercase.into());
                let rest: [NormalizerWrapper; 3] =
                    [replace(regex(r"\s{2,}|[\n\r\t]"), " ")?, NFC.into(), Strip::new(false, true).into()];
                let splits = options.split_by_punct.unwrap_or(false);
                let splits = splits.then(|| Punctuation::new(SplitDelimiterBehavior::Isolated).into());
                let marked = marked(PrependScheme::First).into();
                let splitter = Sequence::new(splits.into_iter().chain([marked]).collect());
                (sequence(lower.into_iter().chain(rest).collect()), splitter.into())
            }
            Self::BigBird => {
                let parts = vec![Strip::new(false, false).into(), replace(regex(" {2,}"), "▁")?];
                (sequence(parts), marked(PrependScheme::Never).into())
            }
        })
    }
}
