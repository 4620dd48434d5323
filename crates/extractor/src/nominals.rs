//! Nominal mentions that refer to an entity: an article or a pronoun before one of some nouns.

use std::ops::Range;

use crate::{Document, EntityType};

const PERSON: [&str; 40] = [
    "actor",
    "actress",
    "artist",
    "athlete",
    "attorney",
    "author",
    "businessman",
    "businesswoman",
    "chairman",
    "coach",
    "composer",
    "director",
    "entrepreneur",
    "executive",
    "founder",
    "guitarist",
    "historian",
    "journalist",
    "king",
    "lawyer",
    "man",
    "mathematician",
    "minister",
    "musician",
    "novelist",
    "officer",
    "painter",
    "philosopher",
    "physicist",
    "player",
    "poet",
    "politician",
    "president",
    "professor",
    "queen",
    "scientist",
    "senator",
    "singer",
    "woman",
    "writer",
];
const ORGANISATION: [&str; 30] = [
    "agency",
    "airline",
    "association",
    "band",
    "bank",
    "brand",
    "charity",
    "church",
    "club",
    "college",
    "company",
    "corporation",
    "department",
    "firm",
    "foundation",
    "group",
    "hospital",
    "institute",
    "institution",
    "label",
    "manufacturer",
    "museum",
    "network",
    "newspaper",
    "organisation",
    "organization",
    "party",
    "school",
    "team",
    "university",
];
const LOCATION: [&str; 14] = [
    "area",
    "capital",
    "city",
    "community",
    "country",
    "county",
    "district",
    "island",
    "municipality",
    "province",
    "region",
    "state",
    "town",
    "village",
];

/// The entity type of a noun.
pub(crate) fn described(noun: &str) -> Option<EntityType> {
    let is_in = |nouns: &[&str]| nouns.binary_search(&noun).is_ok();
    if is_in(&PERSON) {
        return Some(EntityType::Person);
    }
    if is_in(&ORGANISATION) {
        return Some(EntityType::Organisation);
    }
    is_in(&LOCATION).then_some(EntityType::Location)
}

/// The nominal mentions in a sentence's tokens: `the company`, `this singer`. One word may come between. A
/// following noun excludes them.
pub(crate) fn nominals(document: &Document, tokens: Range<usize>) -> Vec<(Range<usize>, EntityType)> {
    let mut found = Vec::new();
    for at in tokens.clone() {
        let word = document.word(at);
        if !["the", "this", "his", "her", "its", "their"].iter().any(|other| word.eq_ignore_ascii_case(other))
        {
            continue;
        }
        for head in at + 1..(at + 3).min(tokens.end) {
            let is_small = |at: usize| document.word(at).chars().all(|c| c.is_lowercase() || c == '-');
            if !is_small(head) {
                break;
            }
            let Some(kind) = described(document.word(head)) else { continue };
            // `the company of`, `the party leader`
            let next = if head + 1 < tokens.end { document.word(head + 1) } else { "" };
            if next != "of" && described(next).is_none() {
                found.push((at..head + 1, kind));
            }
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_article_before_a_noun_describes_a_name() {
        let document = Document::new(
            "d",
            "The young singer left the company, but the king of Spain and the city university did not.",
        );
        let found = nominals(&document, 0..document.tokens.len());
        let nominals: Vec<(&str, EntityType)> = found
            .into_iter()
            .map(|(tokens, kind)| (document.slice(document.span(tokens)).unwrap(), kind))
            .collect();
        assert_eq!(
            nominals,
            [("The young singer", EntityType::Person), ("the company", EntityType::Organisation),]
        );
    }

    #[test]
    fn nouns_are_in_the_order_that_they_are_searched_in() {
        assert!(PERSON.is_sorted() && ORGANISATION.is_sorted() && LOCATION.is_sorted());
    }
}
