//! Inputs of entity linking: a text in which one mention is tagged (Petroni et al. 2021, section 3.2).

use serde_json::{Value, json};

/// The most tokens of an input, which are separated by white space. The two tags count.
const TOKENS: usize = 256;

/// A mention with the text around it, with single blanks between tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tagged {
    left: String,
    mention: String,
    right: String,
}

impl Tagged {
    /// Cuts the text around a mention. Both sides get the same number of tokens; what one side lacks goes to the other.
    pub(super) fn new(before: &str, mention: &str, after: &str) -> Self {
        let [before, mention, after] =
            [before, mention, after].map(|text| text.split_whitespace().collect::<Vec<_>>());
        let room = (TOKENS - 2).saturating_sub(mention.len());
        let left = before.len().min((room / 2).max(room.saturating_sub(after.len())));
        let right = after.len().min(room - left);
        Self {
            left: before[before.len() - left..].join(" "),
            mention: mention.join(" "),
            right: after[..right].join(" "),
        }
    }

    /// The text with the mention between `[START_ENT]` and `[END_ENT]`.
    pub(super) fn input(&self) -> String {
        let Self { left, mention, right } = self;
        format!("{left} [START_ENT] {mention} [END_ENT] {right}").trim().to_owned()
    }

    /// The field `meta` of KILT's records.
    pub(super) fn meta(&self) -> Value {
        let Self { left, mention, right } = self;
        json!({ "left_context": left, "mention": mention, "right_context": right })
    }

    /// The mention of an input.
    #[cfg(test)]
    pub(super) fn of_input(input: &str) -> Self {
        let (left, rest) = input.split_once("[START_ENT]").unwrap();
        let (mention, right) = rest.split_once("[END_ENT]").unwrap();
        Self::new(left, mention, right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_text_is_whole() {
        assert_eq!(
            Tagged::new("He saw\nthe ", "Red  River", ", then left.").input(),
            "He saw the [START_ENT] Red River [END_ENT] , then left."
        );
        assert_eq!(Tagged::new("", "Oslo", "").input(), "[START_ENT] Oslo [END_ENT]");
    }

    #[test]
    fn a_long_text_has_256_tokens_around_the_mention() {
        let words = |prefix: &str, count: usize| {
            (0..count).map(|at| format!("{prefix}{at}")).collect::<Vec<_>>().join(" ")
        };
        let sides = |before: usize, after: usize| {
            let text = Tagged::new(&words("b", before), "a mention", &words("a", after)).input();
            let tokens: Vec<&str> = text.split(' ').collect();
            let start = tokens.iter().position(|&token| token == "[START_ENT]").unwrap();
            assert!(tokens.len() <= 256);
            // The tokens next to the mention are kept.
            if before > 0 {
                assert_eq!(tokens[start - 1], format!("b{}", before - 1));
            }
            if after > 0 {
                assert_eq!(tokens[start + 4], "a0");
            }
            (start, tokens.len() - start - 4)
        };
        assert_eq!(sides(500, 500), (126, 126));
        assert_eq!(sides(10, 500), (10, 242));
        assert_eq!(sides(500, 10), (242, 10));
        assert_eq!(sides(126, 126), (126, 126));
        let long = Tagged::new("before", &words("m", 300), "after").input();
        assert_eq!(long.split(' ').count(), 302);
    }
}
