//! Words of any script.
//!
//! A word is a run of letters, digits, underscores and the marks on them. Scripts that are written without blanks between
//! words (Chinese, Japanese, Thai, Lao, Khmer, Burmese) and Korean, whose words end in particles, give their characters
//! instead, each with its marks. Pairs of neighbouring characters stand for their words, as in Lucene's `CJKAnalyzer`.

use std::sync::LazyLock;

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use super::char_set::CharSet;

static WORD: LazyLock<CharSet> = LazyLock::new(|| CharSet::of_class(r"[\p{L}\p{N}\p{M}_]"));
static MARK: LazyLock<CharSet> = LazyLock::new(|| CharSet::of_class(r"[\p{M}]"));
/// With the signs that lengthen or voice a Japanese syllable, which belong to no script.
static UNSPACED: LazyLock<CharSet> = LazyLock::new(|| {
    CharSet::of_class(
        r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\x{30FC}\x{FF70}\x{FF9E}\x{FF9F}&&[\p{L}\p{M}\p{Nl}]]",
    )
});
/// Accents and points that may be left out in writing, and the line that stretches an Arabic word.
static ACCENT: LazyLock<CharSet> = LazyLock::new(|| {
    CharSet::of_class(
        r"[\x{300}-\x{36F}\x{1AB0}-\x{1AFF}\x{1DC0}-\x{1DFF}\x{591}-\x{5BD}\x{5BF}\x{5C1}\x{5C2}\x{5C4}\x{5C5}\x{5C7}\x{610}-\x{61A}\x{640}\x{64B}-\x{65F}\x{670}\x{6D6}-\x{6DC}\x{6DF}-\x{6E4}\x{6E7}\x{6E8}\x{6EA}-\x{6ED}]",
    )
});

/// A part of a text that is searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit<'t> {
    /// A word.
    Word(&'t str),
    /// A character with its marks, and whether it follows the one before without a gap.
    Character(&'t str, bool),
}

/// Whether a character belongs to a script without blanks between words.
pub(crate) fn is_unspaced(c: char) -> bool {
    !c.is_ascii() && UNSPACED.contains(c)
}

/// Whether a character is a letter, a digit or a mark.
pub(crate) fn is_letter(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_alphanumeric() } else { WORD.contains(c) }
}

/// Calls `each` with the units of a text, in order.
pub(crate) fn units<'t>(text: &'t str, mut each: impl FnMut(Unit<'t>)) {
    let mut word: Option<usize> = None;
    let mut character: Option<(usize, bool)> = None;
    let mut follows = false;
    for (at, c) in text.char_indices() {
        let is_word = is_letter(c) || c == '_';
        // A mark belongs to the character before.
        let is_mark = is_word && !c.is_ascii() && MARK.contains(c);
        if is_mark && (word.is_some() || character.is_some()) {
            continue;
        }
        let is_character = is_word && is_unspaced(c);
        if (!is_word || is_character)
            && let Some(start) = word.take()
        {
            each(Unit::Word(&text[start..at]));
            follows = false;
        }
        if let Some((start, after)) = character.take() {
            each(Unit::Character(&text[start..at], after));
            follows = true;
        }
        if is_character {
            character = Some((at, follows));
        } else {
            follows = false;
            if is_word {
                word.get_or_insert(at);
            }
        }
    }
    if let Some(start) = word {
        each(Unit::Word(&text[start..]));
    }
    if let Some((start, after)) = character {
        each(Unit::Character(&text[start..], after));
    }
}

/// Calls `each` with the words of a text, in order: a run of characters of a script without blanks gives its pairs, or the
/// one that it has.
pub(crate) fn words(text: &str, mut each: impl FnMut(&str)) {
    // The last character: its place, and whether it is in a pair.
    let mut last: Option<(usize, usize, bool)> = None;
    let place = |part: &str| part.as_ptr() as usize - text.as_ptr() as usize;
    units(text, |unit| match unit {
        Unit::Character(part, true) => {
            let (start, end) = (place(part), place(part) + part.len());
            if let Some((before, ..)) = last {
                each(&text[before..end]);
            }
            last = Some((start, end, true));
        }
        other => {
            if let Some((start, end, false)) = last.take() {
                each(&text[start..end]);
            }
            match other {
                Unit::Word(word) => each(word),
                Unit::Character(part, _) => last = Some((place(part), place(part) + part.len(), false)),
            }
        }
    });
    if let Some((start, end, false)) = last {
        each(&text[start..end]);
    }
}

/// Appends a text in normal form C, without characters that only change how it is displayed: soft hyphens, joiners and
/// byte order marks.
pub(crate) fn normalise(text: &str, to: &mut String) {
    let is_shown = |c: &char| !matches!(c, '\u{AD}' | '\u{200C}' | '\u{200D}' | '\u{FEFF}');
    if is_nfc_quick(text.chars()) == IsNormalized::Yes {
        to.extend(text.chars().filter(is_shown));
    } else {
        to.extend(text.chars().filter(is_shown).nfc());
    }
}

/// Appends a text in normal form C without accents: letters of Latin, Greek and Cyrillic script without the marks on them,
/// Arabic and Hebrew without points, and `ae` for `æ`, `o` for `ø`, `ss` for `ß` and their kin. Marks of other scripts,
/// such as vowels of Hindi and Thai, stay.
pub(crate) fn fold(text: &str, to: &mut String) {
    let letters = text.nfd().filter(|c| c.is_ascii() || !ACCENT.contains(*c));
    to.extend(letters.flat_map(spelled).nfc());
}

/// The letters of ASCII for a letter of Latin script that has no decomposition; any other character is itself.
fn spelled(c: char) -> impl Iterator<Item = char> {
    let pair = match c {
        'æ' => ['a', 'e'],
        'Æ' => ['A', 'E'],
        'œ' => ['o', 'e'],
        'Œ' => ['O', 'E'],
        'ß' => ['s', 's'],
        'ẞ' => ['S', 'S'],
        'þ' => ['t', 'h'],
        'Þ' => ['T', 'H'],
        'ø' => ['o', '\0'],
        'Ø' => ['O', '\0'],
        'ł' => ['l', '\0'],
        'Ł' => ['L', '\0'],
        'đ' | 'ð' => ['d', '\0'],
        'Đ' | 'Ð' => ['D', '\0'],
        'ħ' => ['h', '\0'],
        'Ħ' => ['H', '\0'],
        'ŧ' => ['t', '\0'],
        'Ŧ' => ['T', '\0'],
        'ı' => ['i', '\0'],
        other => [other, '\0'],
    };
    // A null character of the text itself separates words, as any other control character does.
    let first = if pair[0] == '\0' { ' ' } else { pair[0] };
    std::iter::once(first).chain(Some(pair[1]).filter(|c| *c != '\0'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(text: &str) -> Vec<String> {
        let mut normal = String::new();
        normalise(text, &mut normal);
        let mut found = Vec::new();
        words(&normal, |word| found.push(word.to_owned()));
        found
    }

    fn folded(text: &str) -> String {
        let mut folded = String::new();
        fold(text, &mut folded);
        folded
    }

    #[test]
    fn marks_belong_to_words() {
        assert_eq!(found("भारत में हिन्दी।"), ["भारत", "में", "हिन्दी"]);
        assert_eq!(found("cafe\u{301} e\u{301}te\u{301} a 3.5"), ["café", "été", "a", "3", "5"]);
        assert_eq!(found("שָׁלוֹם, اَلسَّلَامُ"), ["שָׁלוֹם", "اَلسَّلَامُ"]);
        // A joiner only changes the form of letters.
        assert_eq!(found("می\u{200C}خواهم"), ["میخواهم"]);
        // A mark without a letter before it.
        assert_eq!(found("\u{301}x"), ["\u{301}x"]);
    }

    #[test]
    fn scripts_without_blanks_give_pairs() {
        assert_eq!(found("北京大学"), ["北京", "京大", "大学"]);
        assert_eq!(
            found("東京タワーは高い。塔"),
            ["東京", "京タ", "タワ", "ワー", "ーは", "は高", "高い", "塔"]
        );
        assert_eq!(found("在2024年Rust语言 好"), ["在", "2024", "年", "Rust", "语言", "好"]);
        assert_eq!(found("서울은 a"), ["서울", "울은", "a"]);
        // Thai vowels and tones above or below stand with their consonant.
        assert_eq!(found("ดีมี"), ["ดีมี"]);
        assert_eq!(found("น้ำดี"), ["น้\u{e33}", "\u{e33}ดี"]);
        assert_eq!(found("ที่นี่"), ["ที่นี่"]);
    }

    #[test]
    fn accents_are_folded_and_vowels_of_other_scripts_stay() {
        assert_eq!(
            folded("Éléphant Ångström Straße Łódź cœur Ærø ñ"),
            "Elephant Angstrom Strasse Lodz coeur AEro n"
        );
        assert_eq!(folded("ἄνθρωπος ёж й"), "ανθρωπος еж и");
        assert_eq!(folded("اَلسَّلَامُ ســلام آب"), "السلام سلام اب");
        for same in ["हिन्दी में", "น้ำดี", "がぎ 한국", "தமிழ்", "a\u{0}b"]
        {
            assert_eq!(folded(same).replace(' ', ""), same.replace([' ', '\u{0}'], ""), "{same}");
        }
    }

    proptest! {
        #[test]
        fn units_are_parts_of_the_text_without_gaps_in_letters(text in "[a-c_ ñ\u{301}中文ทิ้가हि0,。]{0,20}") {
            let mut letters = String::new();
            units(&text, |unit| match unit {
                Unit::Word(part) | Unit::Character(part, _) => letters.push_str(part),
            });
            let expected: String = text.chars().filter(|&c| is_letter(c) || c == '_').collect();
            prop_assert_eq!(letters, expected);
        }

        #[test]
        fn folding_twice_changes_nothing(text in "\\PC{0,20}") {
            let once = folded(&text);
            prop_assert_eq!(&folded(&once), &once);
        }
    }
}
