//! ParlAI's words, and the tokenizer that they make with subword-nmt's merges (Sennrich et al. 2016).

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use tokenizers::{
    AddedToken, DecoderWrapper, NormalizerWrapper, SplitDelimiterBehavior, TokenizerImpl,
    decoders::{bpe::BPEDecoder, sequence::Sequence as Decoders},
    models::bpe::{BPE, Vocab},
    normalizers::{Lowercase, Replace, Sequence as Normalizers, replace::ReplacePattern},
    pre_tokenizers::split::{Split, SplitPattern},
    processors::template::TemplateProcessing,
};

use crate::{
    error::{Error, Result},
    json,
    tokenizer::Tokenizer,
};

const WORDS: &str = "model.dict";
const MERGES: &str = "model.dict.codecs";

/// The special words, which are the first four of every vocabulary.
const SPECIAL: [&str; 4] = ["__null__", "__start__", "__end__", "__unk__"];
pub(super) const NULL: u32 = 0;
pub(super) const START: u32 = 1;
pub(super) const END: u32 = 2;
const UNKNOWN: u32 = 3;

/// The suffix that subword-nmt adds to a piece that does not end its word, and the suffix in its merges of a piece that does.
const CONTINUES: &str = "@@";
const ENDS: &str = "</w>";

/// The word that a line break is to ParlAI.
const LINE_BREAK: &str = "__newln__";

/// Runs of characters of Python's `\w`, and single characters that are neither that nor blank.
const PIECES: &str = r"[\p{L}\p{N}_]+|[^\p{L}\p{N}_\s]";

/// ParlAI's words and the merges that make them.
pub(super) struct Vocabulary {
    path: PathBuf,
    /// Symbols as merges have them, by id.
    words: Vec<String>,
    merges: Vec<(String, String)>,
    /// Symbols that merges make or read and that are no words, in their order.
    others: Vec<String>,
    /// The words that ParlAI takes these for.
    further: Vec<u32>,
}

impl Vocabulary {
    /// Reads the two files of a folder.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let open = |name: &'static str| -> Result<(PathBuf, String)> {
            let path = folder.join(name);
            let text = json::text(&path)?;
            let text = text.ok_or_else(|| Error::MissingFile { folder: folder.into(), expected: name })?;
            Ok((path, text))
        };
        let (path, text) = open(WORDS)?;
        let mut words: Vec<String> = SPECIAL.map(str::to_owned).into();
        let mut known: HashSet<String> = words.iter().cloned().collect();
        for line in text.lines() {
            let word = line.split('\t').next().unwrap_or_default();
            if SPECIAL.contains(&word) {
                continue;
            }
            let word = word.replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r");
            let symbol = match word.strip_suffix(CONTINUES) {
                Some(start) => start.to_owned(),
                None => word + ENDS,
            };
            // ParlAI, too, counts a repeated word once.
            if known.insert(symbol.clone()) {
                words.push(symbol);
            }
        }
        let (merges_path, text) = open(MERGES)?;
        let (mut merges, mut others, mut further) = (Vec::new(), Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for (at, line) in text.lines().enumerate() {
            let wrong = |expected: &str| Error::Config {
                path: merges_path.clone(),
                field: format!("line {}", at + 1),
                expected: expected.into(),
                found: format!("`{line}`"),
            };
            if at == 0 {
                // Before 0.2, the end of a word was a separate symbol.
                if line.trim() != "#version: 0.2" {
                    return Err(wrong("`#version: 0.2`"));
                }
                continue;
            }
            let parts: Vec<&str> = line.trim_matches([' ', '\r']).split(' ').collect();
            let [left, right] = parts[..] else { return Err(wrong("two symbols with a blank between")) };
            for symbol in [left.to_owned(), right.to_owned(), format!("{left}{right}")] {
                if known.insert(symbol.clone()) {
                    let special = SPECIAL.iter().position(|word| symbol.strip_suffix(ENDS) == Some(*word));
                    further.push(special.map_or(UNKNOWN, |id| id as u32));
                    others.push(symbol);
                }
            }
            if seen.insert((left, right)) {
                merges.push((left.to_owned(), right.to_owned()));
            }
        }
        Ok(Self { path, words, merges, others, further })
    }

    /// The number of ParlAI's words.
    pub(super) fn words(&self) -> usize {
        self.words.len()
    }

    /// The words to which ParlAI maps the symbols whose ids follow those of the words.
    pub(super) fn further(&self) -> &[u32] {
        &self.further
    }

    /// The tokenizer, whose symbols beyond the words begin at the id `rows`. It appends the end token to a text.
    pub(super) fn tokenizer(&self, rows: usize, lower: bool) -> Result<Tokenizer> {
        let symbols = self.words.iter().zip(0..).chain(self.others.iter().zip(rows as u32..));
        let vocabulary: Vocab = symbols.map(|(symbol, id)| (symbol.clone(), id)).collect();
        let build = || -> tokenizers::Result<String> {
            let model = BPE::builder()
                .vocab_and_merges(vocabulary, self.merges.clone())
                .unk_token(SPECIAL[UNKNOWN as usize].into())
                .end_of_word_suffix(ENDS.into())
                .build()?;
            let mut tokenizer: TokenizerImpl<_, Normalizers, Split, TemplateProcessing, Decoders> =
                TokenizerImpl::new(model);
            let line_break = Replace::new(ReplacePattern::String("\n".into()), format!(" {LINE_BREAK} "))?;
            let mut normalizers: Vec<NormalizerWrapper> = Vec::new();
            if lower {
                normalizers.push(Lowercase.into());
            }
            normalizers.push(line_break.into());
            tokenizer.with_normalizer(Some(Normalizers::new(normalizers)))?;
            let split = Split::new(
                SplitPattern::Regex(PIECES.into()),
                SplitDelimiterBehavior::Removed,
                // Text that does not match is removed.
                true,
            )?;
            tokenizer.with_pre_tokenizer(Some(split));
            let back = Replace::new(ReplacePattern::String(LINE_BREAK.into()), "\n")?;
            let decoders: Vec<DecoderWrapper> = vec![BPEDecoder::new(ENDS.into()).into(), back.into()];
            tokenizer.with_decoder(Some(Decoders::new(decoders)));
            tokenizer.add_special_tokens(SPECIAL.map(|word| AddedToken::from(word, true)))?;
            let end = SPECIAL[END as usize];
            let processor = TemplateProcessing::builder()
                .try_single(format!("$A:0 {end}:0"))?
                .try_pair(format!("$A:0 {end}:0 $B:1 {end}:1"))?
                .special_tokens(vec![(end, END)])
                .build()?;
            tokenizer.with_post_processor(Some(processor));
            tokenizer.to_string(false)
        };
        let json = build().map_err(|source| Error::Tokenizer { path: self.path.clone(), source })?;
        Tokenizer::from_json(&self.path, json)
    }
}
