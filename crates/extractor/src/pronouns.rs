//! English pronouns that refer to entities.

use crate::EntityType;

/// Masculine or feminine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gender {
    /// He.
    Masculine,
    /// She.
    Feminine,
}

/// How a pronoun finds its antecedent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// The speaker: `I`, `we`.
    Speaker,
    /// An earlier mention: `he`, `its`.
    Before,
    /// The mention directly before: `who`, `where`.
    Relative,
}

/// A pronoun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pronoun {
    /// The usual type of its entity; `Other` if uninformative.
    pub kind: EntityType,
    /// Its gender, if it has one.
    pub gender: Option<Gender>,
    /// Whether it refers to several, or to an organisation.
    pub plural: bool,
    /// How it finds its antecedent.
    pub reference: Reference,
}

/// The pronoun of a word in any case; none for `US` and `IT`, which are names.
#[must_use]
pub fn pronoun(word: &str) -> Option<Pronoun> {
    use EntityType::{Location, Organisation, Other, Person};
    use Gender::{Feminine, Masculine};
    use Reference::{Before, Relative, Speaker};
    if word.len() > 10 || (word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase())) {
        return None;
    }
    let (kind, gender, plural, reference) = match word.to_ascii_lowercase().as_str() {
        "he" | "him" | "his" | "himself" => (Person, Some(Masculine), false, Before),
        "she" | "her" | "hers" | "herself" => (Person, Some(Feminine), false, Before),
        "it" | "its" | "itself" => (Organisation, None, false, Before),
        "they" | "them" | "their" | "theirs" | "themselves" => (Other, None, true, Before),
        "i" | "me" | "my" | "mine" | "myself" => (Person, None, false, Speaker),
        "we" | "us" | "our" | "ours" | "ourselves" => (Organisation, None, true, Speaker),
        "who" | "whom" | "whose" => (Person, None, false, Relative),
        "which" => (Organisation, None, false, Relative),
        "where" => (Location, None, false, Relative),
        "that" => (Other, None, false, Relative),
        _ => return None,
    };
    // A lower-case `i` numbers items.
    (word != "i").then_some(Pronoun { kind, gender, plural, reference })
}

impl Pronoun {
    /// All types that its entity can have: the gazetteers of KnowledgeNet's baselines, one a type, in which a pronoun can be
    /// several times. Empty for `that`.
    #[must_use]
    pub fn kinds(self) -> &'static [EntityType] {
        use EntityType::{Location, Organisation, Other, Person};
        match (self.kind, self.plural, self.reference) {
            (Person, ..) => &[Person],
            // They and we.
            (_, true, _) => &[Person, Organisation],
            // It.
            (Organisation, false, Reference::Before) => &[Organisation, Location],
            (Organisation, ..) => &[Organisation],
            (Location, ..) => &[Organisation, Location],
            (Other | EntityType::Date, ..) => &[],
        }
    }
}

/// Whether a text is a single pronoun.
#[must_use]
pub fn is_pronoun(text: &str) -> bool {
    pronoun(text).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pronouns_have_type_gender_and_number() {
        let his = pronoun("His").unwrap();
        assert_eq!((his.kind, his.gender, his.plural), (EntityType::Person, Some(Gender::Masculine), false));
        assert_eq!(pronoun("who").unwrap().reference, Reference::Relative);
        assert!(pronoun("I").is_some() && pronoun("their").unwrap().plural);
        let kinds = |word: &str| pronoun(word).unwrap().kinds();
        assert_eq!(kinds("whose"), [EntityType::Person]);
        assert_eq!(kinds("We"), [EntityType::Person, EntityType::Organisation]);
        assert_eq!(kinds("them"), kinds("our"));
        assert_eq!(kinds("its"), [EntityType::Organisation, EntityType::Location]);
        assert_eq!((kinds("which"), kinds("that")), (&[EntityType::Organisation][..], &[][..]));
        for word in ["US", "IT", "i", "Herman", ""] {
            assert!(!is_pronoun(word), "{word}");
        }
    }
}
