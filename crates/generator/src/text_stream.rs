//! The text of an answer while its tokens arrive.

use sporran_checkpoint::Tokenizer;

/// Decodes the tokens of an answer one by one. The pieces of text, joined, are the text of all tokens before the first stop.
///
/// Only the last tokens are decoded at each step, together with the token before them, since the blank before a word
/// depends on whether it is the first (as `TextStreamer` of `transformers` does, and text-generation-inference).
#[derive(Debug, Default)]
pub(crate) struct TextStream {
    /// The last tokens.
    tokens: Vec<u32>,
    /// The number of them whose text has been passed on as a whole.
    read: usize,
    /// The bytes of their text that have been passed on.
    done: usize,
    /// Text that may become a stop.
    held: String,
    /// The bytes of all pieces.
    written: usize,
    /// Whether a stop has come.
    is_stopped: bool,
}

impl TextStream {
    /// The text that `token` adds, and that further tokens do not change: without an unfinished character, and without an
    /// end that may become one of `stops`.
    pub(crate) fn push(&mut self, token: u32, tokenizer: &Tokenizer, stops: &[String]) -> String {
        if self.is_stopped {
            return String::new();
        }
        self.tokens.push(token);
        // A run of byte tokens is decoded as a whole: a later byte can make its characters invalid.
        if !is_byte(tokenizer, token) {
            // An error of the tokenizer is reported for the whole answer.
            let text = tokenizer.decode(&self.tokens).unwrap_or_default();
            let whole = text.trim_end_matches('\u{fffd}');
            if let Some(new) = whole.get(self.done..).filter(|new| !new.is_empty()) {
                self.held.push_str(new);
                self.done = whole.len();
                if whole.len() == text.len() {
                    self.tokens.drain(..self.read);
                    self.read = self.tokens.len();
                    self.done = tokenizer.decode(&self.tokens).unwrap_or_default().len();
                }
            }
        }
        let (ready, is_stopped) = ready(&self.held, stops);
        self.is_stopped = is_stopped;
        self.written += ready;
        let rest = self.held.split_off(ready);
        std::mem::replace(&mut self.held, rest)
    }

    /// What is left of `text`, the text of all tokens.
    pub(crate) fn rest<'t>(&self, text: &'t str) -> &'t str {
        text.get(self.written..).unwrap_or_default()
    }
}

/// Whether a token is a byte of a character that the vocabulary lacks, such as `<0xE2>`.
fn is_byte(tokenizer: &Tokenizer, token: u32) -> bool {
    let word = tokenizer.inner().id_to_token(token).unwrap_or_default();
    word.len() == 6 && word.starts_with("<0x") && word.ends_with('>')
}

/// The length of the text that does not belong to a stop and cannot become one, and whether a whole stop follows it.
pub(crate) fn ready(text: &str, stops: &[String]) -> (usize, bool) {
    let stop = stops.iter().filter_map(|stop| text.find(stop)).min();
    let may_become = |start: usize| stops.iter().any(|stop| stop.starts_with(&text[start..]));
    let open = text.char_indices().map(|(start, _)| start).find(|&start| may_become(start));
    match stop {
        // A stop that begins earlier, if it becomes whole, takes the place of this one.
        Some(stop) if open.is_none_or(|open| open >= stop) => (stop, true),
        _ => (open.unwrap_or(text.len()), false),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use serde_json::json;

    use super::*;

    fn tokenizer(json: &serde_json::Value) -> Tokenizer {
        Tokenizer::from_json(Path::new("tokenizer.json"), json.to_string()).unwrap()
    }

    /// GPT-2's sign for a byte: itself where it can be printed, and otherwise one from U+0100 on.
    fn sign(byte: u8) -> char {
        let is_plain = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        if is_plain(byte) {
            return char::from(byte);
        }
        let before = (0..byte).filter(|byte| !is_plain(*byte)).count() as u32;
        char::from_u32(0x100 + before).unwrap()
    }

    /// A vocabulary of the 256 bytes, whose ids are the bytes, and of some longer tokens after them; the last is special.
    fn byte_level(longer: &[&[u8]]) -> Tokenizer {
        let word = |bytes: &[u8]| bytes.iter().map(|byte| sign(*byte)).collect::<String>();
        let bytes = (0..=255u8).map(|byte| word(&[byte]));
        let words = bytes.chain(longer.iter().map(|bytes| word(bytes)));
        let mut vocab: serde_json::Map<String, serde_json::Value> =
            words.zip(0u32..).map(|(word, id)| (word, id.into())).collect();
        let special = vocab.len();
        vocab.insert("<end>".into(), special.into());
        tokenizer(&json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
            "added_tokens": [{ "id": special, "content": "<end>", "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true }],
            "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true },
            "decoder": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true },
            "model": { "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": [] },
        }))
    }

    /// SentencePiece's words with byte fallback, as LLaMA 2 has them. Ids from 3 on are the 256 bytes.
    fn with_fallback() -> Tokenizer {
        let bytes = (0..=255u8).map(|byte| format!("<0x{byte:02X}>"));
        let words = ["<unk>", "▁the", "▁"].map(str::to_owned).into_iter().chain(bytes);
        let words = words.chain(["▁cat", "s", "€"].map(str::to_owned));
        let vocab: serde_json::Map<String, serde_json::Value> =
            words.zip(0u32..).map(|(word, id)| (word, id.into())).collect();
        tokenizer(&json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
            "added_tokens": [], "pre_tokenizer": null,
            "decoder": { "type": "Sequence", "decoders": [
                { "type": "Replace", "pattern": { "String": "▁" }, "content": " " },
                { "type": "ByteFallback" }, { "type": "Fuse" },
                { "type": "Strip", "content": " ", "start": 1, "stop": 0 },
            ] },
            "model": { "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "vocab": vocab, "merges": [] },
        }))
    }

    /// The piece that each token adds, and then the rest of the whole text.
    fn pieces(tokenizer: &Tokenizer, tokens: &[u32], stops: &[String]) -> Vec<String> {
        let mut stream = TextStream::default();
        let mut pieces: Vec<String> =
            tokens.iter().map(|token| stream.push(*token, tokenizer, stops)).collect();
        pieces.push(stream.rest(&whole(tokenizer, tokens, stops)).to_owned());
        pieces
    }

    fn whole(tokenizer: &Tokenizer, tokens: &[u32], stops: &[String]) -> String {
        let mut text = tokenizer.decode(tokens).unwrap();
        let end = stops.iter().filter_map(|stop| text.find(stop)).min();
        text.truncate(end.unwrap_or(text.len()));
        text
    }

    #[test]
    fn a_character_comes_with_its_last_byte() {
        let tokenizer = byte_level(&["né ".as_bytes(), &[b'x', 0xe2, 0x82]]);
        // é is C3 A9 and € is E2 82 AC; 256 is "né ", 257 is "x" with two bytes of €.
        let tokens = [0xc3, 0xa9, u32::from(b'a'), 256, 257, 0xac, 258, u32::from(b'!')];
        assert_eq!(pieces(&tokenizer, &tokens, &[]), ["", "é", "a", "né ", "x", "€", "", "!", ""]);
        // The text ends in the middle of a character.
        assert_eq!(pieces(&tokenizer, &[u32::from(b'a'), 0xe2], &[]), ["a", "", "\u{fffd}"]);
        // A byte that no character has.
        assert_eq!(
            pieces(&tokenizer, &[0xff, u32::from(b'a'), 0xc3], &[]),
            ["", "\u{fffd}a", "", "\u{fffd}"]
        );
    }

    #[test]
    fn a_run_of_byte_tokens_comes_as_a_whole() {
        let tokenizer = with_fallback();
        let byte = |byte: u32| 3 + byte;
        let (the, space, cat, s) = (1, 2, 259, 260);
        // The first blank is stripped.
        let tokens = [the, cat, s, byte(0xe2), byte(0x82), byte(0xac), cat];
        assert_eq!(pieces(&tokenizer, &tokens, &[]), ["the", " cat", "s", "", "", "", "€ cat", ""]);
        // The last byte makes the whole run invalid.
        let tokens = [cat, byte(0xe2), byte(0x82), byte(0xac), byte(0xff), s];
        let end = "\u{fffd}\u{fffd}\u{fffd}\u{fffd}s";
        assert_eq!(pieces(&tokenizer, &tokens, &[]), ["cat", "", "", "", "", end, ""]);
        assert_eq!(pieces(&tokenizer, &[space, the, space, cat], &[]).concat(), " the  cat");
    }

    #[test]
    fn stops_and_what_may_become_one_are_held_back() {
        let stops = ["\n\n".to_owned(), "END".to_owned()];
        let tokenizer = byte_level(&[b"ND of"]);
        let read = |text: &str| {
            let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
            pieces(&tokenizer, &tokens, &stops)
        };
        assert_eq!(read("a b"), ["a", " ", "b", ""]);
        assert_eq!(read("a\nb"), ["a", "", "\nb", ""]);
        assert_eq!(read("a\n\nb"), ["a", "", "", "", ""]);
        assert_eq!(read("aENT"), ["a", "", "", "ENT", ""]);
        // The text ends with the beginning of a stop.
        assert_eq!(read("aEN"), ["a", "", "", "EN"]);
        // The whole text ends before the stop that begins first.
        let overlapping = ["xyz".to_owned(), "y".to_owned()];
        let read = |text: &str| {
            let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
            pieces(&tokenizer, &tokens, &overlapping).concat()
        };
        assert_eq!((read("axyz"), read("axyb"), read("ay")), ("a".into(), "ax".into(), "a".into()));
        // A stop begins in one token and ends within another.
        let tokens = [u32::from(b'a'), u32::from(b'E'), 256, u32::from(b'b')];
        assert_eq!(pieces(&tokenizer, &tokens, &stops), ["a", "", "", "", ""]);
    }

    #[test]
    fn pieces_of_any_tokens_are_the_whole_text() {
        let longer: [&[u8]; 6] =
            [b" the", "é".as_bytes(), &[b'a', 0xc3], &[0xa9, b' '], &[0xf0, 0x9f], &[0x98, 0x80]];
        let words = byte_level(&longer);
        let stops = [vec![], vec!["the".to_owned(), " a".to_owned()]];
        for seed in 0..400 {
            let rng = &mut ChaCha8Rng::seed_from_u64(seed);
            let stops = &stops[rng.random_range(0..2)];
            for (tokenizer, count) in [(&words, 263), (&with_fallback(), 262)] {
                let length = rng.random_range(0..24);
                let tokens: Vec<u32> = (0..length)
                    .map(|_| {
                        // Mostly the longer tokens and the bytes that begin and go on with characters.
                        let first = if rng.random_bool(0.6) { count - 7 } else { 0 };
                        rng.random_range(first..count)
                    })
                    .collect();
                let found = pieces(tokenizer, &tokens, stops).concat();
                assert_eq!(found, whole(tokenizer, &tokens, stops), "{tokens:?}, {stops:?}");
            }
        }
    }
}
