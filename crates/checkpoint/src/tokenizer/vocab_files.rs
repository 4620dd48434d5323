//! Tokenizers of folders without a `tokenizer.json`: `vocab.txt` as BERT has it, and `vocab.json` with `merges.txt`
//! as GPT-2, RoBERTa and BART have them. The parts are those that `transformers` puts together for these classes.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;
use tokenizers::{
    AddedToken, TokenizerImpl,
    decoders::{byte_level::ByteLevel as ByteLevelDecoder, wordpiece::WordPiece as WordPieceDecoder},
    models::{bpe::BPE, wordpiece::WordPiece},
    normalizers::BertNormalizer,
    pre_tokenizers::{bert::BertPreTokenizer, byte_level::ByteLevel},
    processors::{roberta::RobertaProcessing, template::TemplateProcessing},
};

use crate::{
    architecture::ModelKind,
    error::{Error, Result},
    json::{self, parse},
};

const CONFIG: &str = "tokenizer_config.json";
const SPECIAL_TOKENS: &str = "special_tokens_map.json";
const ADDED_TOKENS: &str = "added_tokens.json";
const WORDS: &str = "vocab.txt";
const PIECES: &str = "vocab.json";
const MERGES: &str = "merges.txt";

/// Whether a folder has the files of a vocabulary.
pub(super) fn are_in(folder: &Path) -> bool {
    folder.join(WORDS).is_file() || [PIECES, MERGES].iter().all(|file| folder.join(file).is_file())
}

/// The text of the `tokenizer.json` that is equivalent to the vocabulary files of `folder`.
///
/// # Errors
/// [`Error::MissingFile`] where the vocabulary is missing, [`Error::Json`], [`Error::Config`] where the folder does
/// not say which kind of tokenizer its files are for, and [`Error::Tokenizer`].
pub(super) fn json(folder: &Path) -> Result<String> {
    let options = Options::read(folder)?;
    // The readers of `tokenizers` do not report the position of invalid text.
    for file in [WORDS, PIECES, MERGES] {
        json::text(&folder.join(file))?;
    }
    if folder.join(WORDS).exists() {
        return word_pieces(folder, &options);
    }
    for file in [PIECES, MERGES] {
        if !folder.join(file).exists() {
            let expected = "tokenizer.json, vocab.txt, or vocab.json with merges.txt";
            return Err(Error::MissingFile { folder: folder.into(), expected });
        }
    }
    match class(folder, &options)?.as_str() {
        "GPT2" => gpt2(folder, &options),
        "Roberta" | "Bart" | "Longformer" => roberta(folder, &options),
        other => Err(Error::Config {
            path: folder.join(CONFIG),
            field: "tokenizer_class".into(),
            expected: "`GPT2Tokenizer`, `RobertaTokenizer` or `BartTokenizer`".into(),
            found: format!("`{other}`"),
        }),
    }
}

/// A special token, as a name or with its flags.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "TokenForm")]
struct Token(AddedToken);

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

/// The fields of `tokenizer_config.json` and `special_tokens_map.json` that these tokenizers have.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Options {
    tokenizer_class: Option<String>,
    do_lower_case: Option<bool>,
    tokenize_chinese_chars: Option<bool>,
    strip_accents: Option<bool>,
    add_prefix_space: Option<bool>,
    trim_offsets: Option<bool>,
    add_bos_token: Option<bool>,
    bos_token: Option<Token>,
    eos_token: Option<Token>,
    unk_token: Option<Token>,
    sep_token: Option<Token>,
    pad_token: Option<Token>,
    cls_token: Option<Token>,
    mask_token: Option<Token>,
    /// Further tokens by their ids, written as text.
    added_tokens_decoder: BTreeMap<String, Token>,
    additional_special_tokens: Option<Vec<Token>>,
    /// Ids of tokens beyond the vocabulary, from `added_tokens.json`.
    #[serde(skip)]
    added: BTreeMap<u32, AddedToken>,
}

impl Options {
    fn read(folder: &Path) -> Result<Self> {
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

    /// The tokens to add: those with ids first, in their order, then the special ones.
    fn tokens(&self, special: &[Option<&AddedToken>]) -> Vec<AddedToken> {
        let mut tokens: Vec<AddedToken> = self.added.values().cloned().collect();
        let further = self.additional_special_tokens.iter().flatten().map(|token| &token.0);
        for token in special.iter().copied().flatten().chain(further) {
            match tokens.iter_mut().find(|known| known.content == token.content) {
                Some(known) => known.special = true,
                None => tokens.push(token.clone().special(true)),
            }
        }
        tokens
    }
}

/// The class of a byte-level tokenizer, without `Tokenizer` and `Fast`.
fn class(folder: &Path, options: &Options) -> Result<String> {
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
        Some("roberta") => "Roberta".into(),
        Some("bart") => "Bart".into(),
        other => other.unwrap_or("none").to_owned(),
    })
}

/// The token of the folder, or the class's own.
fn token(own: &Option<Token>, default: &str) -> AddedToken {
    own.as_ref().map_or_else(|| AddedToken::from(default.to_owned(), true), |token| token.0.clone())
}

type Tokenizer<M, N, P, S, D> = TokenizerImpl<M, N, P, S, D>;
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn word_pieces(folder: &Path, options: &Options) -> Result<String> {
    let path = folder.join(WORDS);
    let build = || -> std::result::Result<String, Failure> {
        let names = [
            token(&options.unk_token, "[UNK]"),
            token(&options.sep_token, "[SEP]"),
            token(&options.pad_token, "[PAD]"),
            token(&options.cls_token, "[CLS]"),
            token(&options.mask_token, "[MASK]"),
        ];
        let [unknown, separator, padding, class, mask] = &names;
        let vocabulary = WordPiece::read_file(&path.to_string_lossy())?;
        let model = WordPiece::builder().vocab(vocabulary).unk_token(unknown.content.clone()).build()?;
        let mut tokenizer: Tokenizer<
            _,
            BertNormalizer,
            BertPreTokenizer,
            TemplateProcessing,
            WordPieceDecoder,
        > = Tokenizer::new(model);
        tokenizer.with_normalizer(Some(BertNormalizer::new(
            true,
            options.tokenize_chinese_chars.unwrap_or(true),
            options.strip_accents,
            options.do_lower_case.unwrap_or(true),
        )))?;
        tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
        tokenizer.with_decoder(Some(WordPieceDecoder::new("##".into(), true)));
        let (bos, eos) = (options.bos_token.as_ref(), options.eos_token.as_ref());
        let special = [
            bos.map(|token| &token.0),
            eos.map(|token| &token.0),
            Some(unknown),
            Some(separator),
            Some(padding),
            Some(class),
            Some(mask),
        ];
        tokenizer.add_tokens(options.tokens(&special))?;
        let id = |token: &AddedToken| {
            let id = tokenizer.token_to_id(&token.content);
            id.ok_or_else(|| Failure::from(format!("the vocabulary lacks `{}`", token.content)))
        };
        let (cls, sep) = (class.content.clone(), separator.content.clone());
        let processor = TemplateProcessing::builder()
            .try_single(format!("{cls}:0 $A:0 {sep}:0"))?
            .try_pair(format!("{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1"))?
            .special_tokens(vec![(cls.clone(), id(class)?), (sep.clone(), id(separator)?)])
            .build()?;
        tokenizer.with_post_processor(Some(processor));
        tokenizer.to_string(false)
    };
    build().map_err(|source| Error::Tokenizer { path: path.clone(), source })
}

fn byte_pairs(folder: &Path) -> std::result::Result<BPE, Failure> {
    let (pieces, merges) = (folder.join(PIECES), folder.join(MERGES));
    let (vocabulary, merges) = BPE::read_file(&pieces.to_string_lossy(), &merges.to_string_lossy())?;
    let bpe = BPE::builder().vocab_and_merges(vocabulary, merges);
    bpe.continuing_subword_prefix(String::new()).end_of_word_suffix(String::new()).build()
}

fn roberta(folder: &Path, options: &Options) -> Result<String> {
    let build = || -> std::result::Result<String, Failure> {
        let names = [
            token(&options.bos_token, "<s>"),
            token(&options.eos_token, "</s>"),
            token(&options.unk_token, "<unk>"),
            token(&options.sep_token, "</s>"),
            token(&options.pad_token, "<pad>"),
            token(&options.cls_token, "<s>"),
            token(&options.mask_token, "<mask>"),
        ];
        let prefix = options.add_prefix_space.unwrap_or(false);
        let mut tokenizer: Tokenizer<_, BertNormalizer, ByteLevel, RobertaProcessing, ByteLevelDecoder> =
            Tokenizer::new(byte_pairs(folder)?);
        tokenizer.with_pre_tokenizer(Some(ByteLevel::new(prefix, true, true)));
        tokenizer.with_decoder(Some(ByteLevelDecoder::default()));
        tokenizer.add_tokens(options.tokens(&names.each_ref().map(Some)))?;
        let pair = |token: &AddedToken| {
            let id = tokenizer.token_to_id(&token.content);
            let id = id.ok_or_else(|| Failure::from(format!("the vocabulary lacks `{}`", token.content)))?;
            Ok::<_, Failure>((token.content.clone(), id))
        };
        let processor = RobertaProcessing::new(pair(&names[3])?, pair(&names[5])?);
        let processor = processor.trim_offsets(options.trim_offsets.unwrap_or(true)).add_prefix_space(prefix);
        tokenizer.with_post_processor(Some(processor));
        tokenizer.to_string(false)
    };
    build().map_err(|source| Error::Tokenizer { path: folder.join(PIECES), source })
}

fn gpt2(folder: &Path, options: &Options) -> Result<String> {
    const END: &str = "<|endoftext|>";
    let build = || -> std::result::Result<String, Failure> {
        let bos = token(&options.bos_token, END);
        let (eos, unknown) = (token(&options.eos_token, END), token(&options.unk_token, END));
        let mut tokenizer: Tokenizer<_, BertNormalizer, ByteLevel, TemplateProcessing, ByteLevelDecoder> =
            Tokenizer::new(byte_pairs(folder)?);
        let prefix = options.add_prefix_space.unwrap_or(false);
        tokenizer.with_pre_tokenizer(Some(ByteLevel::new(prefix, true, true)));
        tokenizer.with_decoder(Some(ByteLevelDecoder::default()));
        let others = [&options.sep_token, &options.pad_token, &options.cls_token, &options.mask_token];
        let others = others.map(|token| token.as_ref().map(|token| &token.0));
        let special: Vec<_> = [Some(&bos), Some(&eos), Some(&unknown)].into_iter().chain(others).collect();
        tokenizer.add_tokens(options.tokens(&special))?;
        if options.add_bos_token == Some(true) {
            let id = tokenizer.token_to_id(&bos.content);
            let id = id.ok_or_else(|| Failure::from(format!("the vocabulary lacks `{}`", bos.content)))?;
            let processor = TemplateProcessing::builder()
                .try_single(format!("{}:0 $A:0", bos.content))?
                .try_pair(format!("{0}:0 $A:0 {0}:1 $B:1", bos.content))?
                .special_tokens(vec![(bos.content.clone(), id)])
                .build()?;
            tokenizer.with_post_processor(Some(processor));
        }
        tokenizer.to_string(false)
    };
    build().map_err(|source| Error::Tokenizer { path: folder.join(PIECES), source })
}
