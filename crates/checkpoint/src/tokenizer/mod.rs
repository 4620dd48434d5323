//! Text to token ids and back, by a folder's tokenizer files.

mod blenderbot_small;
mod bounds;
mod class_options;
mod languages;
mod options;
mod sentence_piece;
mod tiktoken;
mod types;
mod vocab_files;

use std::path::{Path, PathBuf};

use serde::Deserialize;
use tokenizers::{
    NormalizerWrapper, PostProcessorWrapper, TruncationDirection,
    normalizers::{Lowercase, Sequence},
};

use crate::{
    adapter::Adapter,
    error::{Error, Result},
    json,
};

/// The files of byte pairs.
const PIECES: &str = "vocab.json";
const MERGES: &str = "merges.txt";

/// The files that a folder's tokenizer and its chat template may have.
pub(crate) const FILES: [&str; 15] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
    "tiktoken.model",
    "source.spm",
    "target.spm",
    "chat_template.jinja",
    "chat_template.json",
];

/// A tokenizer and the file that it came from.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    path: PathBuf,
    json: String,
    side: Option<TruncationSide>,
    gives_types: bool,
    unknown: Option<Unknown>,
}

/// The end of words of a vocabulary that texts are not split into. No text has this character.
const FOREIGN: &str = "\u{ffff}";

/// The unknown token of a model whose tokenizer has more words.
#[derive(Debug, Clone, Copy)]
struct Unknown {
    /// The first id that the model does not have. The unknown token stands for it and those after it.
    first: u32,
    id: u32,
}

/// A vocabulary as a `tokenizer.json`.
struct Converted {
    json: String,
    unknown: Option<Unknown>,
}

impl From<String> for Converted {
    fn from(json: String) -> Self {
        Self { json, unknown: None }
    }
}

/// A word's contractions, and runs of letters, of digits, of other signs and of spaces, as LLaMA 3, Qwen 2 and tiktoken split.
/// `digits` matches a run of digits.
pub(crate) fn byte_pattern(digits: &str) -> String {
    let words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|";
    let rest = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    format!("{words}{digits}{rest}")
}

/// The end at which a text that is too long is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TruncationSide {
    /// It loses its beginning.
    Left,
    /// It loses its end.
    Right,
}

/// The truncation settings of a folder's `tokenizer_config.json`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Cutting {
    truncation_side: Option<TruncationSide>,
}

/// A token of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedToken {
    /// Its id.
    pub id: u32,
    /// Its characters in the text, counted as Unicode scalar values; none for a special token that the tokenizer adds.
    pub place: Option<std::ops::Range<usize>>,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`. Truncation and padding that the file asks for are switched off, as they are the
    /// caller's to choose. It cuts texts at the left if the file does.
    ///
    /// # Errors
    /// [`Error::MissingFile`] where there is no such file, [`Error::Tokenizer`] where it is not a tokenizer.
    pub fn open(path: &Path) -> Result<Self> {
        let json = json::text(path)?.ok_or_else(|| Error::MissingFile {
            folder: path.parent().unwrap_or(Path::new("")).into(),
            expected: "tokenizer.json",
        })?;
        Self::from_json(path, json)
    }

    /// The tokenizer of a model folder: `tokenizer.json`, or else the one that the class in `tokenizer_config.json` makes of
    /// the folder's vocabulary, as in `transformers` 5: `vocab.txt` (WordPiece, as BERT has it), `vocab.json` and `merges.txt`
    /// (byte-level BPE, as GPT-2, RoBERTa, BART and Qwen 2 have it), SentencePiece's `spiece.model`,
    /// `sentencepiece.bpe.model` or `tokenizer.model` (T5, XLM-RoBERTa, LLaMA), with `vocab.json` for M2M100, `source.spm` with
    /// `vocab.json` (Marian), or a file of tiktoken. Options and special tokens are those of `tokenizer_config.json` and its
    /// older companions. The class decides with them how texts are normalised and split also where there is a `tokenizer.json`, except for
    /// `PreTrainedTokenizerFast`, `TokenizersBackend` and other classes that read this file. The language of inputs of mBART and NLLB is
    /// always that of `tokenizer_config.json`. Its `truncation_side` says how long texts are
    /// cut. An adapter without a tokenizer has that of its base model.
    ///
    /// # Errors
    /// [`Error::MissingFile`] where the folder has none of these, [`Error::Json`], [`Error::Config`] where it does
    /// not say which model its vocabulary is for, and [`Error::Tokenizer`].
    pub fn from_folder(folder: &Path) -> Result<Self> {
        let folder = &Self::folder_of(folder)?;
        let path = folder.join("tokenizer.json");
        let tokenizer = match json::text(&path)? {
            Some(json) => {
                let tokenizer = class_options::applied(Self::from_json(&path, json)?, folder)?;
                languages::with_source(tokenizer, folder)?
            }
            None => {
                let Converted { json, unknown } = vocab_files::json(folder)?;
                Self { unknown, ..Self::from_json(&path, json)? }
            }
        };
        let path = folder.join("tokenizer_config.json");
        let cutting = json::text(&path)?.map(|text| json::parse::<Cutting>(&path, &text)).transpose()?;
        let side = cutting.unwrap_or_default().truncation_side.or(tokenizer.side);
        Ok(Self { side, gives_types: types::are_given(folder)?, ..tokenizer })
    }

    /// The end at which long texts are cut, if the folder sets it.
    #[must_use]
    pub fn truncation_side(&self) -> Option<TruncationSide> {
        self.side
    }

    /// The same tokenizer, which cuts long texts at that end.
    #[must_use]
    pub fn with_truncation_side(self, side: TruncationSide) -> Self {
        Self { side: Some(side), ..self }
    }

    /// The same tokenizer over lowercased texts. Added tokens are matched before lowercasing, in the case of the
    /// vocabulary.
    ///
    /// # Errors
    /// [`Error::Tokenizer`].
    pub fn lowercased(mut self) -> Result<Self> {
        let mut steps = vec![NormalizerWrapper::Lowercase(Lowercase)];
        steps.extend(self.inner.get_normalizer().cloned());
        let result = self.inner.with_normalizer(Some(Sequence::new(steps))).map(|_| ());
        result.map_err(|source| self.wrong(source))?;
        Ok(self)
    }

    /// The same tokenizer, which puts no special tokens around texts.
    #[must_use]
    pub fn without_special_tokens(mut self) -> Self {
        self.inner.with_post_processor(None::<PostProcessorWrapper>);
        self
    }

    /// Whether a model gets token types in addition to ids. They distinguish the second text of a pair from the first.
    /// Other models get 0 for every token.
    #[must_use]
    pub fn gives_types(&self) -> bool {
        self.gives_types
    }

    /// Whether a folder has the files that [`from_folder`](Self::from_folder) reads.
    #[must_use]
    pub fn is_in(folder: &Path) -> bool {
        Self::folder_of(folder).is_ok_and(|folder| Self::has_files(&folder))
    }

    /// The folder of a model's tokenizer and chat template: for an adapter without a tokenizer its base model's, and
    /// `folder` itself otherwise.
    pub(crate) fn folder_of(folder: &Path) -> Result<PathBuf> {
        if Adapter::is_alone_in(folder) && !Self::has_files(folder) {
            return Adapter::open(folder)?.local_base();
        }
        Ok(folder.to_owned())
    }

    /// Whether the folder itself has the files.
    pub(crate) fn has_files(folder: &Path) -> bool {
        folder.join("tokenizer.json").is_file() || vocab_files::are_in(folder)
    }

    /// A tokenizer from the text of a `tokenizer.json`; `path` names it in errors.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] where the text is not a tokenizer.
    pub fn from_json(path: &Path, json: String) -> Result<Self> {
        let wrong = |source| Error::Tokenizer { path: path.into(), source };
        bounds::check(&json).map_err(wrong)?;
        let mut inner: tokenizers::Tokenizer = json.parse().map_err(wrong)?;
        let left = inner.get_truncation().filter(|own| own.direction == TruncationDirection::Left);
        let side = left.map(|_| TruncationSide::Left);
        inner.with_truncation(None).map_err(wrong)?;
        inner.with_padding(None);
        Ok(Self { inner, path: path.into(), json, side, gives_types: true, unknown: None })
    }

    /// The same tokenizer, with these words of its vocabulary as added tokens.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] for a word that the vocabulary lacks.
    pub(crate) fn with_marks(mut self, marks: &[&str]) -> Result<Self> {
        for &mark in marks {
            if self.inner.token_to_id(mark).is_none() {
                return Err(self.wrong(format!("its vocabulary has no `{mark}`").into()));
            }
        }
        let tokens = marks.iter().map(|&mark| tokenizers::AddedToken::from(mark, true));
        self.inner.add_special_tokens(tokens).map_err(|source| self.wrong(source))?;
        self.json = bounds::text(&self.inner).map_err(|source| self.wrong(source))?;
        Ok(self)
    }

    /// The same tokenizer with more special tokens. New ones get the ids after those of the vocabulary.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] for a blank token.
    pub fn with_added<S: AsRef<str>>(mut self, tokens: &[S]) -> Result<Self> {
        if tokens.iter().any(|token| token.as_ref().trim().is_empty()) {
            return Err(self.wrong("expected a token to add that is not blank".into()));
        }
        let tokens = tokens.iter().map(|token| tokenizers::AddedToken::from(token.as_ref(), true));
        self.inner.add_special_tokens(tokens).map_err(|source| self.wrong(source))?;
        self.json = bounds::text(&self.inner).map_err(|source| self.wrong(source))?;
        Ok(self)
    }

    /// The token ids of `text`, with the special tokens that the tokenizer puts around a text. A text of more than
    /// `max_length` tokens is cut inside those: at its end, or at its beginning where the
    /// [side](Self::truncation_side) is the left.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] where the text cannot be tokenized; [`Error::Options`] where `max_length` is 0.
    pub fn encode(&self, text: &str, max_length: Option<usize>) -> Result<Vec<u32>> {
        let encoding = self.encoding(text, true)?;
        self.cut(&encoding, max_length)
    }

    /// The token ids of `text` alone, without special tokens around it.
    ///
    /// # Errors
    /// As for `encode`.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.encoding(text, false)?;
        Ok(self.ids(&encoding))
    }

    /// The special tokens that the tokenizer puts before a text, such as BART's `<s>`. A decoder that generates whole
    /// texts begins with them.
    ///
    /// # Errors
    /// As for `encode`.
    pub fn beginning(&self) -> Result<Vec<u32>> {
        let (mut whole, plain) = (self.encode("a", None)?, self.encode_plain("a")?);
        let before = whole.windows(plain.len().max(1)).position(|part| part == plain).unwrap_or(0);
        whole.truncate(before);
        Ok(whole)
    }

    /// The tokens of `text` with the special tokens around it, and the range of each.
    ///
    /// # Errors
    /// As for `encode`.
    pub fn encode_places(&self, text: &str) -> Result<Vec<PlacedToken>> {
        let encoding = self.inner.encode_char_offsets(text, true).map_err(|source| self.wrong(source))?;
        let places = encoding.get_offsets().iter().zip(encoding.get_special_tokens_mask());
        let token = |(id, (&(start, end), &special)): (&u32, (&(usize, usize), &u32))| PlacedToken {
            id: *id,
            place: (special == 0).then_some(start..end),
        };
        Ok(self.ids(&encoding).iter().zip(places).map(token).collect())
    }

    /// [`encode`](Self::encode) for many texts at once; answer i belongs to text i.
    ///
    /// # Errors
    /// As for `encode`.
    pub fn encode_batch(&self, texts: &[&str], max_length: Option<usize>) -> Result<Vec<Vec<u32>>> {
        let encodings = match self.unknown {
            Some(_) => self.inner.encode_batch(texts.to_vec(), true),
            None => self.inner.encode_batch_fast(texts.to_vec(), true),
        };
        let encodings = encodings.map_err(|source| self.wrong(source))?;
        encodings.iter().map(|encoding| self.cut(encoding, max_length)).collect()
    }

    /// The text of `ids`, special tokens left out. Spaces before punctuation stay as they are.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] where the ids cannot be decoded.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.inner.decode(ids, true).map_err(|source| self.wrong(source))
    }

    /// The id of a token, given as it is in the vocabulary.
    #[must_use]
    pub fn token_id(&self, token: &str) -> Option<u32> {
        let id = self.inner.token_to_id(token);
        match self.unknown {
            None => id,
            Some(unknown) => id.filter(|id| *id < unknown.first).or_else(|| self.foreign(token)),
        }
    }

    /// The texts of the special tokens, longest first: a text that has one in it is not read as its characters.
    #[must_use]
    pub fn special_texts(&self) -> Vec<String> {
        let added = self.inner.get_added_tokens_decoder();
        let mut texts: Vec<String> =
            added.into_values().filter(|token| token.special).map(|token| token.content).collect();
        texts.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        texts
    }

    /// The number of tokens, added ones included.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        let all = self.inner.get_vocab_size(true);
        self.unknown.map_or(all, |unknown| unknown.first as usize)
    }

    /// The file that it was read from.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A token whose id is not below `rows`, if there is one, and whether it is special: one that is not special before
    /// those that are, and the lowest id first.
    pub(crate) fn beyond(&self, rows: usize) -> Option<(String, u32, bool)> {
        let special = self.inner.get_added_tokens_decoder();
        let is_special = |id: &u32| special.get(id).is_some_and(|token| token.special);
        let vocabulary = self.inner.get_vocab(true).into_iter();
        let vocabulary = vocabulary.filter(|(_, id)| self.unknown.is_none_or(|unknown| *id < unknown.first));
        let beyond = vocabulary.filter(|(_, id)| usize::try_from(*id).is_ok_and(|id| id >= rows));
        beyond
            .map(|(token, id)| (is_special(&id), id, token))
            .min()
            .map(|(special, id, token)| (token, id, special))
    }

    /// How texts are split into tokens: `BPE`, `WordPiece`, `WordLevel` or `Unigram`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.inner.get_model() {
            tokenizers::ModelWrapper::BPE(_) => "BPE",
            tokenizers::ModelWrapper::WordPiece(_) => "WordPiece",
            tokenizers::ModelWrapper::WordLevel(_) => "WordLevel",
            tokenizers::ModelWrapper::Unigram(_) => "Unigram",
        }
    }

    /// The text of the `tokenizer.json`.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The id of a word that texts are not split into.
    fn foreign(&self, word: &str) -> Option<u32> {
        self.inner.token_to_id(&format!("{word}{FOREIGN}"))
    }

    /// The tokens of a text; with their words only where [`ids`](Self::ids) needs these.
    fn encoding(&self, text: &str, with_special: bool) -> Result<tokenizers::Encoding> {
        let encoding = match self.unknown {
            Some(_) => self.inner.encode(text, with_special),
            None => self.inner.encode_fast(text, with_special),
        };
        encoding.map_err(|source| self.wrong(source))
    }

    /// The ids by which the model knows the tokens.
    fn ids(&self, encoding: &tokenizers::Encoding) -> Vec<u32> {
        let ids = encoding.get_ids();
        let Some(unknown) = self.unknown else { return ids.to_vec() };
        let known = |(&id, word): (&u32, &String)| match id {
            id if id >= unknown.first => unknown.id,
            id if id == unknown.id => self.foreign(word).unwrap_or(id),
            id => id,
        };
        ids.iter().zip(encoding.get_tokens()).map(known).collect()
    }

    fn cut(&self, encoding: &tokenizers::Encoding, max_length: Option<usize>) -> Result<Vec<u32>> {
        let mut ids = self.ids(encoding);
        match max_length {
            Some(0) => {
                Err(Error::Options { option: "max-length", expected: "at least 1".into(), found: "0".into() })
            }
            Some(max) if ids.len() > max && self.side == Some(TruncationSide::Left) => {
                let special = encoding.get_special_tokens_mask();
                let first = special.iter().take_while(|special| **special == 1).count().min(max);
                ids.drain(first..ids.len() - (max - first));
                Ok(ids)
            }
            Some(max) if ids.len() > max => {
                // Only a special token ends an input; a tokenizer that adds none is cut plainly.
                let at_end = ids.len() - 1;
                if encoding.get_special_tokens_mask()[at_end] == 1 {
                    ids[max - 1] = ids[at_end];
                }
                ids.truncate(max);
                Ok(ids)
            }
            _ => Ok(ids),
        }
    }

    /// The tokenizer of the `tokenizers` crate.
    #[must_use]
    pub fn inner(&self) -> &tokenizers::Tokenizer {
        &self.inner
    }

    /// Wraps an error of the `tokenizers` crate.
    #[must_use]
    pub fn wrong(&self, source: tokenizers::Error) -> Error {
        Error::Tokenizer { path: self.path.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Tokenizer, TruncationSide};
    use crate::Error;

    /// Words to ids, with `</s>` put at the end.
    fn tokenizer_json() -> String {
        r#"{
            "version": "1.0", "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst",
            "stride": 0}, "padding": null, "normalizer": null, "decoder": null,
            "added_tokens": [{"id": 1, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
                              "normalized": false, "special": true}],
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": {"type": "TemplateProcessing",
                "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}},
            "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "</s>": 1, "a": 2, "b": 3, "c": 4},
                      "unk_token": "<unk>"}}"#
            .into()
    }

    fn tokenizer() -> Tokenizer {
        Tokenizer::from_json(Path::new("tokenizer.json"), tokenizer_json()).unwrap()
    }

    #[test]
    fn a_long_text_is_cut_before_its_end_token() {
        let tokenizer = tokenizer();
        assert_eq!(tokenizer.encode("a b c", None).unwrap(), [2, 3, 4, 1]);
        assert_eq!(tokenizer.encode("a b c", Some(4)).unwrap(), [2, 3, 4, 1]);
        assert_eq!(tokenizer.encode("a b c", Some(3)).unwrap(), [2, 3, 1]);
        assert_eq!(tokenizer.encode("a b c", Some(1)).unwrap(), [1]);
        assert!(matches!(tokenizer.encode("a", Some(0)), Err(Error::Options { .. })));
    }

    #[test]
    fn a_text_that_is_cut_on_the_left_keeps_its_end_and_the_tokens_around_it() {
        let bos = tokenizer_json().replace(
            r#"[{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken""#,
            r#"[{"SpecialToken": {"id": "</s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken""#,
        );
        let tokenizer = |json| {
            let read = Tokenizer::from_json(Path::new("tokenizer.json"), json).unwrap();
            read.with_truncation_side(TruncationSide::Left)
        };
        let plain = tokenizer(tokenizer_json());
        assert_eq!(plain.encode("a b c", Some(3)).unwrap(), [3, 4, 1]);
        assert_eq!(plain.encode("a b c", Some(4)).unwrap(), [2, 3, 4, 1]);
        let both = tokenizer(bos);
        assert_eq!(both.encode("a b c", None).unwrap(), [1, 2, 3, 4, 1]);
        assert_eq!(both.encode("a b c", Some(3)).unwrap(), [1, 4, 1]);
        assert_eq!(both.encode("a b c", Some(1)).unwrap(), [1]);
    }

    #[test]
    fn the_side_of_cutting_is_the_folders() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("tokenizer.json", &tokenizer_json());
        let side = || Tokenizer::from_folder(folder.path()).map(|tokenizer| tokenizer.truncation_side());
        assert_eq!(side().unwrap(), None);
        write("tokenizer_config.json", r#"{"truncation_side": "left"}"#);
        assert_eq!(side().unwrap(), Some(TruncationSide::Left));
        write("tokenizer_config.json", "{}");
        write(
            "tokenizer.json",
            &tokenizer_json().replace(r#""direction": "Right""#, r#""direction": "Left""#),
        );
        assert_eq!(side().unwrap(), Some(TruncationSide::Left));
        write("tokenizer_config.json", r#"{"truncation_side": "up"}"#);
        assert!(side().unwrap_err().to_string().ends_with("field `truncation_side`"));
    }

    #[test]
    fn token_offsets_count_characters() {
        let tokens = tokenizer().encode_places("é b").unwrap();
        let places: Vec<_> = tokens.iter().map(|token| token.place.clone()).collect();
        // `é` is two bytes and one character; the end token has an empty range.
        assert_eq!(places, [Some(0..1), Some(2..3), None]);
        assert_eq!(tokens[1].id, 3);
    }

    #[test]
    fn a_batch_is_its_single_members() {
        let tokenizer = tokenizer();
        let batch = tokenizer.encode_batch(&["a", "c b zzz a"], Some(3)).unwrap();
        assert_eq!(
            batch,
            [tokenizer.encode("a", Some(3)).unwrap(), tokenizer.encode("c b zzz a", Some(3)).unwrap()]
        );
    }

    #[test]
    fn decoding_leaves_special_tokens_out() {
        assert_eq!(tokenizer().decode(&[2, 4, 1]).unwrap(), "a c");
    }

    #[test]
    fn a_file_that_is_no_tokenizer_is_named() {
        let error = Tokenizer::from_json(Path::new("x/tokenizer.json"), "{}".into()).unwrap_err();
        assert_eq!(error.to_string(), "x/tokenizer.json: tokenizer");
        assert!(matches!(Tokenizer::open(Path::new("no/tokenizer.json")), Err(Error::MissingFile { .. })));
    }
}
