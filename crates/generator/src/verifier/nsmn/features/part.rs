//! WordNet's parts of speech.

/// The parts of speech that WordNet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PartOfSpeech {
    /// Nouns.
    Noun,
    /// Verbs.
    Verb,
    /// Adjectives, satellites among them.
    Adjective,
    /// Adverbs.
    Adverb,
}

use PartOfSpeech::{Adjective, Adverb, Noun, Verb};

impl PartOfSpeech {
    /// All of them.
    pub(super) const ALL: [Self; 4] = [Noun, Verb, Adjective, Adverb];

    /// The one of a tag of the Penn Treebank, where it has one.
    #[must_use]
    pub(super) fn of_tag(tag: &str) -> Option<Self> {
        match tag.chars().next()? {
            'J' => Some(Adjective),
            'V' => Some(Verb),
            'N' => Some(Noun),
            'R' => Some(Adverb),
            _ => None,
        }
    }

    pub(super) fn of_letter(letter: &str) -> Option<Self> {
        match letter {
            "n" => Some(Noun),
            "v" => Some(Verb),
            "a" | "s" => Some(Adjective),
            "r" => Some(Adverb),
            _ => None,
        }
    }

    /// The name in the files' names.
    pub(super) fn file(self) -> &'static str {
        match self {
            Noun => "noun",
            Verb => "verb",
            Adjective => "adj",
            Adverb => "adv",
        }
    }

    /// The replacements of endings.
    pub(super) fn detachments(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Noun => &[
                ("s", ""),
                ("ses", "s"),
                ("ves", "f"),
                ("xes", "x"),
                ("zes", "z"),
                ("ches", "ch"),
                ("shes", "sh"),
                ("men", "man"),
                ("ies", "y"),
            ],
            Verb => &[
                ("s", ""),
                ("ies", "y"),
                ("es", "e"),
                ("es", ""),
                ("ed", "e"),
                ("ed", ""),
                ("ing", "e"),
                ("ing", ""),
            ],
            Adjective => &[("er", ""), ("est", ""), ("er", "e"), ("est", "e")],
            Adverb => &[],
        }
    }
}
