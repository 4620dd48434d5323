//! A vocabulary learned from texts: byte-level byte-pair encoding (Sennrich et al. 2016; Radford et al. 2019) with
//! the special tokens of T5.
//!
//! Bytes make every text representable, so case, digits, punctuation, line ends and unknown scripts survive a round
//! trip, and merges make frequent words and names single tokens, so a small model learns fastest to copy names out of
//! passages. A word in the middle of a text and the same word at its start get the same token.

use sporran_checkpoint::{Error, Result};
use tokenizers::decoders::{byte_level::ByteLevel as ByteLevelDecoder, sequence::Sequence, strip::Strip};
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{AddedToken, Tokenizer};

/// The padding token; its id is 0.
pub const PAD: &str = "<pad>";
/// The end-of-sequence token; its id is 1.
pub const END: &str = "</s>";
/// The unknown token; its id is 2. Byte-level texts never need it; it is there because T5 configs name one.
pub const UNKNOWN: &str = "<unk>";

/// The options of a vocabulary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VocabularyOptions {
    /// The number of tokens, including special tokens and the 256 bytes; fewer if the texts do not yield enough.
    pub size: usize,
    /// How often a pair of pieces must occur to be merged.
    pub min_frequency: u64,
    /// Marks that stay one token wherever they occur and are kept when decoding, such as `[START_ENT]`.
    pub marks: Vec<String>,
}

/// Learns a vocabulary from `texts`. The same texts in the same order give the same tokenizer.
///
/// # Errors
/// [`Error::Options`] where the size has no room for the special tokens, the marks and the bytes; an
/// [`Error::Callback`] where the tokenizers library fails.
pub fn train_vocabulary<S: AsRef<str> + Send>(
    texts: impl Iterator<Item = S> + Send,
    options: &VocabularyOptions,
) -> Result<Tokenizer> {
    let fixed = 3 + options.marks.len() + 256;
    if options.size < fixed {
        return Err(Error::Options {
            option: "size",
            expected: format!("at least {fixed} (special tokens, marks and bytes)"),
            found: options.size.to_string(),
        });
    }
    let library = |source| Error::Callback { what: "the tokenizers library", source };
    let mut tokenizer = Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(ByteLevel::new(true, false, true)));
    let decoders = vec![ByteLevelDecoder::new(true, false, true).into(), Strip::new(' ', 1, 0).into()];
    tokenizer.with_decoder(Some(Sequence::new(decoders)));

    let special = [PAD, END, UNKNOWN].map(|token| AddedToken::from(token, true));
    let marks = options.marks.iter().map(|mark| AddedToken::from(mark.as_str(), false));
    let mut trainer: TrainerWrapper = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(options.size)
        .min_frequency(options.min_frequency)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(special.into_iter().chain(marks).collect())
        .build()
        .into();
    tokenizer.train(&mut trainer, texts).map_err(library)?;

    let processor = TemplateProcessing::builder()
        .try_single(format!("$A {END}"))
        .and_then(|builder| builder.try_pair(format!("$A {END} $B {END}")))
        .map_err(|message| library(message.into()))?
        .special_tokens(vec![(END, 1u32)])
        .build()
        .map_err(|error| library(error.into()))?;
    tokenizer.with_post_processor(Some(processor));
    Ok(tokenizer)
}

/// The files that make a learned tokenizer loadable from a model folder, as names with their bytes:
/// `tokenizer.json`, and `tokenizer_config.json`, which marks special tokens for `transformers`.
///
/// # Errors
/// [`Error::Callback`] where the tokenizer cannot be written as JSON.
pub fn tokenizer_files(tokenizer: &Tokenizer) -> Result<Vec<(String, Vec<u8>)>> {
    let mut json = tokenizer
        .to_string(true)
        .map_err(|source| Error::Callback { what: "the tokenizers library", source })?;
    json.push('\n');
    let config = serde_json::json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": PAD,
        "eos_token": END,
        "unk_token": UNKNOWN,
        "clean_up_tokenization_spaces": false,
    });
    Ok(vec![
        ("tokenizer.json".into(), json.into_bytes()),
        ("tokenizer_config.json".into(), format!("{config:#}\n").into_bytes()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [&str; 4] = [
        "Ada Lovelace was born in London on 10 December 1815.",
        "London is the capital of England; Ada lived in London.",
        "\"What?\" asked Ada. It's 12:30 in London,\nand 1815 is long ago.",
        "Who was born in London? [SEP] Ada Lovelace",
    ];

    fn trained(size: usize) -> Tokenizer {
        let options = VocabularyOptions { size, min_frequency: 2, marks: vec!["[SEP]".into()] };
        train_vocabulary(TEXTS.iter(), &options).unwrap()
    }

    #[test]
    fn special_tokens_come_first_and_every_text_ends_with_the_end_token() {
        let tokenizer = trained(400);
        let ids = [PAD, END, UNKNOWN, "[SEP]"].map(|token| tokenizer.token_to_id(token));
        assert_eq!(ids, [Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!(tokenizer.encode("Ada", true).unwrap().get_ids().last(), Some(&1));
    }

    #[test]
    fn a_frequent_name_is_one_token_at_the_start_and_in_the_middle() {
        let tokenizer = trained(400);
        let first = tokenizer.encode("London", false).unwrap();
        assert_eq!(first.len(), 1);
        let middle = tokenizer.encode("in London", false).unwrap();
        assert_eq!(middle.get_ids().last(), first.get_ids().last());
    }

    #[test]
    fn texts_survive_a_round_trip() {
        let tokenizer = trained(330);
        let unseen = ["Ünïcödé 東京 and 😀", "a  b\tc\n\nd", "I'm NOT (really) 3.14%!", "x [SEP] y"];
        for text in TEXTS.iter().chain(&unseen) {
            let ids = tokenizer.encode(*text, true).unwrap().get_ids().to_vec();
            assert_eq!(tokenizer.decode(&ids, true).unwrap(), *text);
        }
    }

    #[test]
    fn the_same_texts_give_the_same_bytes() {
        assert_eq!(tokenizer_files(&trained(380)).unwrap(), tokenizer_files(&trained(380)).unwrap());
    }

    #[test]
    fn the_written_file_is_the_same_tokenizer() {
        let tokenizer = trained(400);
        let files = tokenizer_files(&tokenizer).unwrap();
        let again = Tokenizer::from_bytes(&files[0].1).unwrap();
        let ids = |t: &Tokenizer| t.encode(TEXTS[2], true).unwrap().get_ids().to_vec();
        assert_eq!(ids(&again), ids(&tokenizer));
        assert_eq!(again.decode(&ids(&again), true).unwrap(), TEXTS[2]);
    }

    #[test]
    fn a_size_without_room_for_the_bytes_is_an_error() {
        let options = VocabularyOptions { size: 258, min_frequency: 1, marks: vec![] };
        let message = train_vocabulary(TEXTS.iter(), &options).unwrap_err().to_string();
        assert!(message.contains("259") && message.contains("258"), "{message}");
    }
}
