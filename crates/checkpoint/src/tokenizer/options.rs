//! The settings of tokenizers without a `tokenizer.json`: `tokenizer_config.json` and its older companions.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;
use tokenizers::AddedToken;

use crate::{
    architecture::ModelKind,
    error::{Error, Result},
    json::{self, parse},
};

/// The file that names the class.
pub(super) const CONFIG: &str = "tokenizer_config.json";
const SPECIAL_TOKENS: &str = "special_tokens_map.json";
const ADDED_TOKENS: &str = "added_tokens.json";

/// A special token, as a name or with its flags.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "TokenForm")]
pub(super) struct Token(pub(super) AddedToken);

// Foreign files write a token in either way.
#[derive(Deserialize)]
#[serde(untagged)]
enum TokenForm {
    Name(String),
    Flags {
        content: String,
        #[serde(default)]
        lstrip: bool,
        #[serde(default)]
        rstrip: bool,
        #[serde(default)]
        single_word: bool,
        normalized: Option<bool>,
        special: Option<bool>,
    },
}

impl From<TokenForm> for Token {
    fn from(form: TokenForm) -> Self {
        match form {
            TokenForm::Name(content) => Self(AddedToken::from(content, true)),
            TokenForm::Flags { content, lstrip, rstrip, single_word, normalized, special } => {
                let special = special.unwrap_or(true);
                let token = AddedToken::from(content, special).lstrip(lstrip).rstrip(rstrip);
                let normalized = normalized.unwrap_or(!special);
                Self(token.single_word(single_word).normalized(normalized))
            }
        }
    }
}

/// Special tokens without a role: a list, or with names of their own.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Extra {
    List(Vec<Token>),
    Named(BTreeMap<String, Token>),
}

/// The fields of `tokenizer_config.json` and `special_tokens_map.json` that these tokenizers have.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Options {
    pub(super) tokenizer_class: Option<String>,
    pub(super) do_lower_case: Option<bool>,
    pub(super) tokenize_chinese_chars: Option<bool>,
    pub(super) strip_accents: Option<bool>,
    pub(super) add_prefix_space: Option<bool>,
    pub(super) trim_offsets: Option<bool>,
    pub(super) add_bos_token: Option<bool>,
    pub(super) add_eos_token: Option<bool>,
    /// LLaMA: whether the mark of a word's beginning stands before each text between special tokens, and not only before
    /// the first.
    pub(super) legacy: Option<bool>,
    /// T5: the number of sentinels.
    pub(super) extra_ids: Option<u32>,
    /// Pegasus: the number of tokens before the vocabulary's own, besides two.
    pub(super) offset: Option<u32>,
    /// Pegasus: the mask of a sentence.
    pub(super) mask_token_sent: Option<Token>,
    /// mBART and M2M100: the code of the language of inputs.
    pub(super) src_lang: Option<String>,
    /// M2M100: which languages there are.
    pub(super) language_codes: Option<String>,
    /// Marian: whether inputs and outputs have vocabularies of their own.
    pub(super) separate_vocabs: Option<bool>,
    pub(super) bos_token: Option<Token>,
    pub(super) eos_token: Option<Token>,
    pub(super) unk_token: Option<Token>,
    pub(super) sep_token: Option<Token>,
    pub(super) pad_token: Option<Token>,
    pub(super) cls_token: Option<Token>,
    pub(super) mask_token: Option<Token>,
    /// Further tokens by their ids, written as text.
    added_tokens_decoder: BTreeMap<String, Token>,
    additional_special_tokens: Option<Vec<Token>>,
    /// The same, as `transformers` 5 writes them.
    extra_special_tokens: Option<Extra>,
    /// Ids of tokens beyond the vocabulary, from `added_tokens.json`.
    #[serde(skip)]
    pub(super) added: BTreeMap<u32, AddedToken>,
}

impl Options {
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let read = |name: &str| -> Result<Self> {
            let path = folder.join(name);
            json::text(&path)?.map_or(Ok(Self::default()), |text| parse(&path, &text))
        };
        let (mut options, map) = (read(CONFIG)?, read(SPECIAL_TOKENS)?);
        let path = folder.join(CONFIG);
        for (id, token) in std::mem::take(&mut options.added_tokens_decoder) {
            let number = id.parse().map_err(|_| Error::Config {
                path: path.clone(),
                field: "added_tokens_decoder".into(),
                expected: "token ids".into(),
                found: format!("`{id}`"),
            })?;
            options.added.insert(number, token.0);
        }
        if options.added.is_empty() {
            // Older folders store these separately.
            let path = folder.join(ADDED_TOKENS);
            if let Some(text) = json::text(&path)? {
                let ids: BTreeMap<String, u32> = parse(&path, &text)?;
                let plain = ids.into_iter().map(|(token, id)| (id, AddedToken::from(token, false)));
                options.added = plain.collect();
            }
            for (own, other) in [
                (&mut options.bos_token, map.bos_token),
                (&mut options.eos_token, map.eos_token),
                (&mut options.unk_token, map.unk_token),
                (&mut options.sep_token, map.sep_token),
                (&mut options.pad_token, map.pad_token),
                (&mut options.cls_token, map.cls_token),
                (&mut options.mask_token, map.mask_token),
            ] {
                *own = other.or(own.take());
            }
            options.additional_special_tokens =
                map.additional_special_tokens.or(options.additional_special_tokens);
        }
        Ok(options)
    }

    /// The special tokens without a role.
    pub(super) fn further(&self) -> impl Iterator<Item = &AddedToken> {
        let list = match &self.extra_special_tokens {
            Some(Extra::List(tokens)) => tokens.as_slice(),
            _ => &[],
        };
        let named = match &self.extra_special_tokens {
            Some(Extra::Named(tokens)) => Some(tokens.values()),
            _ => None,
        };
        let older = self.additional_special_tokens.iter().flatten();
        older.chain(list).chain(named.into_iter().flatten()).map(|token| &token.0)
    }

    /// Whether the folder lists such tokens, in place of those that its vocabulary has, even if there are none.
    pub(super) fn lists_further(&self) -> bool {
        self.additional_special_tokens.is_some() || self.extra_special_tokens.is_some()
    }

    /// The tokens to add: those with ids first, in their order, then the special ones.
    pub(super) fn tokens(&self, special: &[Option<&AddedToken>]) -> Vec<AddedToken> {
        let mut tokens: Vec<AddedToken> = self.added.values().cloned().collect();
        for token in special.iter().copied().flatten().chain(self.further()) {
            match tokens.iter_mut().find(|known| known.content == token.content) {
                Some(known) => known.special = true,
                None => tokens.push(token.clone().special(true)),
            }
        }
        tokens
    }
}

/// The class of a folder's tokenizer, without `Tokenizer` and `Fast`: the one that `tokenizer_config.json` names, or the one
/// that the model's type has in `transformers`. It is the type itself for other types, and `none` where there is none.
pub(super) fn class(folder: &Path, options: &Options) -> Result<String> {
    if let Some(class) = &options.tokenizer_class {
        let class = class.strip_suffix("Fast").unwrap_or(class);
        return Ok(class.strip_suffix("Tokenizer").unwrap_or(class).to_owned());
    }
    let path = folder.join("config.json");
    let kind = match json::text(&path)? {
        Some(text) => parse::<ModelKind>(&path, &text)?,
        None => ModelKind::default(),
    };
    Ok(match kind.model_type.as_deref() {
        Some("gpt2") => "GPT2".into(),
        Some("roberta" | "data2vec-text" | "roberta-prelayernorm" | "longformer" | "ibert" | "luke") => {
            "Roberta".into()
        }
        Some("bart" | "led" | "mvp") => "Bart".into(),
        Some("qwen2") => "Qwen2".into(),
        Some("t5" | "mt5" | "umt5" | "longt5" | "switch_transformers") => "T5".into(),
        Some("xlm-roberta" | "xlm-roberta-xl" | "xmod") => "XLMRoberta".into(),
        Some("mbart") => "MBart".into(),
        Some("pegasus") => "Pegasus".into(),
        Some("marian") => "Marian".into(),
        Some("m2m_100") => "M2M100".into(),
        Some("blenderbot") => "Blenderbot".into(),
        Some("blenderbot-small") => "BlenderbotSmall".into(),
        other => other.unwrap_or("none").to_owned(),
    })
}

/// The error for a tokenizer of a class that this crate does not build from the folder's files.
pub(super) fn other_class(folder: &Path, expected: &str, class: &str) -> Error {
    let needs = match class {
        "BertJapanese" => ", which splits words with MeCab or SudachiPy, so that its files are not enough",
        "Nllb" => ", whose languages have ids in a tokenizer.json alone",
        _ => "",
    };
    Error::Config {
        path: folder.join(CONFIG),
        field: "tokenizer_class".into(),
        expected: format!("{expected}, or a tokenizer.json in the folder"),
        found: format!("`{class}`{needs}"),
    }
}

/// The token of the folder, or the class's own.
pub(super) fn token(own: &Option<Token>, default: &str) -> AddedToken {
    own.as_ref().map_or_else(|| AddedToken::from(default.to_owned(), true), |token| token.0.clone())
}
