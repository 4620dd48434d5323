//! Labels of tokens: the BIO scheme over the types of names.

use std::ops::Range;

use sporran_transformers::CrfGrammar;

use crate::{Annotated, EntityType};

/// The types in the order of their labels.
const KINDS: [(EntityType, &str); 5] = [
    (EntityType::Person, "PER"),
    (EntityType::Organisation, "ORG"),
    (EntityType::Location, "LOC"),
    (EntityType::Date, "DATE"),
    (EntityType::Other, "MISC"),
];

/// The names of the labels: `O`, `B-PER`, `I-PER` and so on.
#[must_use]
pub fn tag_names() -> Vec<String> {
    let of = |(_, name): &(EntityType, &str)| [format!("B-{name}"), format!("I-{name}")];
    std::iter::once("O".to_owned()).chain(KINDS.iter().flat_map(of)).collect()
}

/// The allowed label transitions.
#[must_use]
pub fn tag_grammar() -> CrfGrammar {
    CrfGrammar::bio(KINDS.len())
}

/// For each token of a document the set of labels allowed by the annotation, as bits.
#[must_use]
pub fn allowed_tags(annotated: &Annotated) -> Vec<u32> {
    let all = tag_grammar().all();
    let inside: u32 = (0..KINDS.len()).map(|kind| 1 << (2 + 2 * kind)).sum();
    let mut sets = vec![if annotated.complete { 1 } else { all }; annotated.document.tokens.len()];
    for (tokens, kind) in &annotated.mentions {
        // A name ends where its annotation ends.
        if let Some(set) = sets.get_mut(tokens.end) {
            *set &= !inside;
        }
        let begin = 1 + 2 * KINDS.iter().position(|(other, _)| other == kind).unwrap_or(KINDS.len() - 1);
        for at in tokens.clone() {
            sets[at] = 1 << if at == tokens.start { begin } else { begin + 1 };
        }
    }
    sets
}

/// The names along a path of labels, as ranges of the path.
#[must_use]
pub fn tag_spans(path: &[usize]) -> Vec<(Range<usize>, EntityType)> {
    let mut found: Vec<(Range<usize>, EntityType)> = Vec::new();
    for (at, label) in path.iter().enumerate() {
        let Some(index) = label.checked_sub(1) else { continue };
        match found.last_mut() {
            Some((last, _)) if index % 2 == 1 && last.end == at => last.end = at + 1,
            _ => found.push((at..at + 1, KINDS[index / 2].0)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Document;

    fn annotated(complete: bool) -> Annotated {
        let document = Document::new("d", "Ann Lee met Bob in 1950 .");
        Annotated { document, mentions: vec![(0..2, EntityType::Person), (5..6, EntityType::Date)], complete }
    }

    #[test]
    fn marked_tokens_have_labels_and_others_are_outside_or_unknown() {
        assert_eq!(tag_names()[..3], ["O", "B-PER", "I-PER"]);
        assert_eq!(allowed_tags(&annotated(true)), [1 << 1, 1 << 2, 1, 1, 1, 1 << 7, 1]);
        let all = (1 << 11) - 1;
        let after = all & !0b101_0101_0100;
        assert_eq!(allowed_tags(&annotated(false)), [1 << 1, 1 << 2, after, all, all, 1 << 7, after]);
    }

    #[test]
    fn names_are_read_off_a_path() {
        assert_eq!(
            tag_spans(&[1, 2, 0, 3, 3, 4, 7]),
            [
                (0..2, EntityType::Person),
                (3..4, EntityType::Organisation),
                (4..6, EntityType::Organisation),
                (6..7, EntityType::Date)
            ]
        );
        assert!(tag_spans(&[0, 0]).is_empty());
    }
}
