//! The stemmer of M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980.
//!
//! Two rules of step 2 follow the author's later programs, as Lucene's `PorterStemFilter` does: `bli` ->
//! `ble` instead of the paper's `abli` -> `able`, and `logi` -> `log`, which the paper lacks. Words of one or
//! two letters are unchanged, as in those programs.

/// Stems a lower-case word (UTF-8) in place. Everything that is not a vowel is a consonant, including digits.
pub(crate) fn stem(word: &mut Vec<u8>) {
    if word.iter().filter(|&&byte| starts_character(byte)).count() < 3 {
        return;
    }
    step_1a(word);
    step_1b(word);
    step_1c(word);
    replace_first(word, STEP_2, 0);
    replace_first(word, STEP_3, 0);
    step_4(word);
    step_5(word);
}

/// Suffixes with their replacements, which apply if the measure before them exceeds a minimum. Longer
/// suffixes come before their own suffixes.
type Rules = &'static [(&'static [u8], &'static [u8])];

const STEP_2: Rules = &[
    (b"ational", b"ate"),
    (b"tional", b"tion"),
    (b"enci", b"ence"),
    (b"anci", b"ance"),
    (b"izer", b"ize"),
    (b"bli", b"ble"),
    (b"alli", b"al"),
    (b"entli", b"ent"),
    (b"eli", b"e"),
    (b"ousli", b"ous"),
    (b"ization", b"ize"),
    (b"ation", b"ate"),
    (b"ator", b"ate"),
    (b"alism", b"al"),
    (b"iveness", b"ive"),
    (b"fulness", b"ful"),
    (b"ousness", b"ous"),
    (b"aliti", b"al"),
    (b"iviti", b"ive"),
    (b"biliti", b"ble"),
    (b"logi", b"log"),
];

const STEP_3: Rules = &[
    (b"icate", b"ic"),
    (b"ative", b""),
    (b"alize", b"al"),
    (b"iciti", b"ic"),
    (b"ical", b"ic"),
    (b"ful", b""),
    (b"ness", b""),
];

const STEP_4: &[&[u8]] = &[
    b"al", b"ance", b"ence", b"er", b"ic", b"able", b"ible", b"ant", b"ement", b"ment", b"ent", b"ion",
    b"ou", b"ism", b"ate", b"iti", b"ous", b"ive", b"ize",
];

/// Letters are bytes here. Bytes of non-ASCII characters are consonants, as the characters are.
fn starts_character(byte: u8) -> bool {
    byte & 0xC0 != 0x80
}

/// Whether the letter at `at` is a consonant: not a vowel, and not a `y` after a consonant.
fn is_consonant(word: &[u8], at: usize) -> bool {
    match word[at] {
        b'a' | b'e' | b'i' | b'o' | b'u' => false,
        b'y' => at == 0 || !is_consonant(word, at - 1),
        _ => true,
    }
}

/// The paper's *m*: how many times a consonant follows a vowel.
fn measure(stem: &[u8]) -> usize {
    (1..stem.len()).filter(|&at| is_consonant(stem, at) && !is_consonant(stem, at - 1)).count()
}

/// The paper's *\*v\**: whether there is a vowel.
fn has_vowel(stem: &[u8]) -> bool {
    (0..stem.len()).any(|at| !is_consonant(stem, at))
}

/// The paper's *\*d*: whether two equal consonants are at the end.
fn ends_in_double_consonant(word: &[u8]) -> bool {
    matches!(word, [.., a, b] if a == b && a.is_ascii()) && is_consonant(word, word.len() - 1)
}

/// The paper's *\*o*: whether consonant, vowel, consonant are at the end, and the last is not `w`, `x` or `y`.
fn ends_in_cvc(word: &[u8]) -> bool {
    let Some(last) = word.iter().rposition(|&byte| starts_character(byte)) else { return false };
    last >= 2
        && is_consonant(word, last)
        && !is_consonant(word, last - 1)
        && is_consonant(word, last - 2)
        && !matches!(word[last], b'w' | b'x' | b'y')
}

/// Plurals.
fn step_1a(word: &mut Vec<u8>) {
    if word.ends_with(b"sses") || word.ends_with(b"ies") {
        word.truncate(word.len() - 2);
    } else if word.ends_with(b"s") && !word.ends_with(b"ss") {
        word.pop();
    }
}

/// Past tenses and participles.
fn step_1b(word: &mut Vec<u8>) {
    if let Some(stem) = word.strip_suffix(b"eed") {
        if measure(stem) > 0 {
            word.pop();
        }
        return;
    }
    let Some(stem) = word.strip_suffix(b"ed").or_else(|| word.strip_suffix(b"ing")) else { return };
    if !has_vowel(stem) {
        return;
    }
    word.truncate(stem.len());
    if word.ends_with(b"at") || word.ends_with(b"bl") || word.ends_with(b"iz") {
        word.push(b'e');
    } else if ends_in_double_consonant(word) {
        if !matches!(word.last(), Some(b'l' | b's' | b'z')) {
            word.pop();
        }
    } else if measure(word) == 1 && ends_in_cvc(word) {
        word.push(b'e');
    }
}

/// A final `y` after a vowel somewhere.
fn step_1c(word: &mut [u8]) {
    if let [stem @ .., last @ b'y'] = word
        && has_vowel(stem)
    {
        *last = b'i';
    }
}

/// The first rule with a matching suffix decides, whether its condition holds or not.
fn replace_first(word: &mut Vec<u8>, rules: Rules, least: usize) {
    for (suffix, replacement) in rules {
        if let Some(stem) = word.strip_suffix(*suffix) {
            if measure(stem) > least {
                word.truncate(stem.len());
                word.extend_from_slice(replacement);
            }
            return;
        }
    }
}

/// Drops a remaining suffix from a long stem.
fn step_4(word: &mut Vec<u8>) {
    for suffix in STEP_4 {
        if let Some(stem) = word.strip_suffix(*suffix) {
            let fits = *suffix != b"ion" || matches!(stem.last(), Some(b's' | b't'));
            if fits && measure(stem) > 1 {
                word.truncate(stem.len());
            }
            return;
        }
    }
}

/// A final `e`, and `ll`.
fn step_5(word: &mut Vec<u8>) {
    if let Some(stem) = word.strip_suffix(b"e") {
        let m = measure(stem);
        if m > 1 || (m == 1 && !ends_in_cvc(stem)) {
            word.pop();
        }
    }
    if word.ends_with(b"ll") && measure(word) > 1 {
        word.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stemmed(word: &str) -> String {
        let mut bytes = word.as_bytes().to_vec();
        stem(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn the_papers_examples_come_out() {
        // Each pair is an example from the paper, traced through all later steps by hand.
        for (word, expected) in [
            ("caresses", "caress"),
            ("ponies", "poni"),
            ("caress", "caress"),
            ("cats", "cat"),
            ("feed", "feed"),
            ("agreed", "agre"),
            ("plastered", "plaster"),
            ("bled", "bled"),
            ("motoring", "motor"),
            ("sing", "sing"),
            ("conflated", "conflat"),
            ("troubled", "troubl"),
            ("sized", "size"),
            ("hopping", "hop"),
            ("tanned", "tan"),
            ("falling", "fall"),
            ("hissing", "hiss"),
            ("fizzed", "fizz"),
            ("failing", "fail"),
            ("filing", "file"),
            ("happy", "happi"),
            ("sky", "sky"),
            ("relational", "relat"),
            ("conditional", "condit"),
            ("valenci", "valenc"),
            ("digitizer", "digit"),
            ("conformabli", "conform"),
            ("radicalli", "radic"),
            ("vietnamization", "vietnam"),
            ("operator", "oper"),
            ("hopefulness", "hope"),
            ("sensibiliti", "sensibl"),
            ("triplicate", "triplic"),
            ("formative", "form"),
            ("electriciti", "electr"),
            ("goodness", "good"),
            ("revival", "reviv"),
            ("allowance", "allow"),
            ("gyroscopic", "gyroscop"),
            ("adjustable", "adjust"),
            ("replacement", "replac"),
            ("adoption", "adopt"),
            ("communism", "commun"),
            ("angulariti", "angular"),
            ("bowdlerize", "bowdler"),
            ("probate", "probat"),
            ("rate", "rate"),
            ("cease", "ceas"),
            ("controll", "control"),
            ("roll", "roll"),
            ("generalizations", "gener"),
            ("oscillators", "oscil"),
        ] {
            assert_eq!(stemmed(word), expected, "{word}");
        }
    }

    #[test]
    fn the_later_programs_two_rules_are_followed() {
        assert_eq!(stemmed("possibly"), "possibl"); // bli -> ble, then the final e goes
        assert_eq!(stemmed("archaeology"), "archaeolog"); // logi -> log
    }

    #[test]
    fn short_words_stay_and_other_characters_are_consonants() {
        for word in ["", "a", "is", "és"] {
            assert_eq!(stemmed(word), word);
        }
        assert_eq!(stemmed("1990s"), "1990");
        // "mał" is consonant, vowel, consonant, so the e stays.
        assert_eq!(stemmed("małe"), "małe");
    }
}
