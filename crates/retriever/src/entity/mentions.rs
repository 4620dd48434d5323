//! Page names in running text.

use super::{
    Alias, Aliases,
    aliases::{key, normal, words},
};

/// The largest number of words of a name.
const LONGEST: usize = 8;

/// A name in a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Mention {
    /// Its byte range in the text.
    pub range: std::ops::Range<usize>,
    /// Whether one of its words starts with a capital letter or a digit.
    pub cased: bool,
    /// The pages that it can mean, most frequent first.
    pub pages: Vec<Alias>,
}

/// Words that are page names but rarely mean the page on their own.
const COMMON: [&str; 40] = [
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "he", "her", "his", "i", "if", "in",
    "into", "is", "it", "its", "no", "not", "of", "on", "or", "she", "such", "that", "the", "their", "then",
    "there", "these", "they", "this", "to", "was", "we", "will", "with",
];

/// The names in a text, from left to right: at each word the longest name that starts there, without
/// overlaps. A single word is no name if it is a function word, a number or shorter than three characters.
pub fn mentions(aliases: &Aliases, text: &str) -> Vec<Mention> {
    let words: Vec<(usize, &str)> = words(text).collect();
    let normal: Vec<String> = words.iter().map(|(_, word)| normal(word)).collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let longest = LONGEST.min(words.len() - at);
        let name = (1..=longest).rev().find_map(|length| {
            if length == 1 && !can_stand_alone(&normal[at]) {
                return None;
            }
            let pages = aliases.with_key(key(&normal[at..at + length]));
            (!pages.is_empty()).then_some((length, pages))
        });
        let Some((length, pages)) = name else {
            at += 1;
            continue;
        };
        let last = words[at + length - 1];
        found.push(Mention {
            range: words[at].0..last.0 + last.1.len(),
            cased: words[at..at + length].iter().any(|(_, word)| is_cased(word)),
            pages,
        });
        at += length;
    }
    found
}

fn can_stand_alone(word: &str) -> bool {
    word.chars().nth(2).is_some() && !word.chars().all(char::is_numeric) && !COMMON.contains(&word)
}

fn is_cased(word: &str) -> bool {
    word.chars().next().is_some_and(|first| first.is_uppercase() || first.is_numeric())
}

#[cfg(test)]
mod tests {
    use super::{super::aliases::tests::world, *};

    #[test]
    fn the_longest_names_are_found_one_after_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let (_, aliases) = world(
            folder.path(),
            &[
                ("New York City", "", &[]),
                ("York", "", &[]),
                ("Red", "", &[]),
                ("It (film)", "", &[]),
                ("1984", "", &[]),
            ],
        );
        let text = "In New York City, York's red house of 1984: it!";
        let found: Vec<(&str, bool, u32)> = mentions(&aliases, text)
            .iter()
            .map(|mention| (&text[mention.range.clone()], mention.cased, mention.pages[0].page.0))
            .collect();
        assert_eq!(found, [("New York City", true, 0), ("York", true, 1), ("red", false, 2)]);
        assert!(mentions(&aliases, "").is_empty());
    }

    #[test]
    fn places_are_right_beside_letters_of_several_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let (_, aliases) = world(folder.path(), &[("Café Zürich", "", &[])]);
        let text = "“Cafe\u{301} ZÜRICH” 🙂";
        let found = mentions(&aliases, text);
        assert_eq!(&text[found[0].range.clone()], "Cafe\u{301} ZÜRICH");
    }
}
