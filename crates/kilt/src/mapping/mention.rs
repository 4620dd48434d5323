//! Inputs of entity linking: a text in which one mention is tagged (Petroni et al. 2021, section 3.2).

/// The most tokens of an input, which are separated by white space. The two tags count.
const TOKENS: usize = 256;

/// The text with the mention between `[START_ENT]` and `[END_ENT]`. Both sides get the same number of tokens; what
/// one side lacks goes to the other.
pub(super) fn tagged(before: &str, mention: &str, after: &str) -> String {
    let [before, mention, after] =
        [before, mention, after].map(|text| text.split_whitespace().collect::<Vec<_>>());
    let room = (TOKENS - 2).saturating_sub(mention.len());
    let left = before.len().min((room / 2).max(room.saturating_sub(after.len())));
    let right = after.len().min(room - left);
    let parts: [&[&str]; 5] =
        [&before[before.len() - left..], &["[START_ENT]"], &mention, &["[END_ENT]"], &after[..right]];
    parts.concat().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_text_is_whole() {
        assert_eq!(
            tagged("He saw\nthe ", "Red  River", ", then left."),
            "He saw the [START_ENT] Red River [END_ENT] , then left."
        );
        assert_eq!(tagged("", "Oslo", ""), "[START_ENT] Oslo [END_ENT]");
    }

    #[test]
    fn a_long_text_has_256_tokens_around_the_mention() {
        let words = |prefix: &str, count: usize| {
            (0..count).map(|at| format!("{prefix}{at}")).collect::<Vec<_>>().join(" ")
        };
        let sides = |before: usize, after: usize| {
            let text = tagged(&words("b", before), "a mention", &words("a", after));
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
        let long = tagged("before", &words("m", 300), "after");
        assert_eq!(long.split(' ').count(), 302);
    }
}
