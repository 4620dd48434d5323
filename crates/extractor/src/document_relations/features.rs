//! Features of an entity pair besides the document's words.

use sporran_kilt::docred::{Document, Mention};

/// DocRED's entity types. Other types share the next index.
const KINDS: [&str; 6] = ["PER", "ORG", "LOC", "TIME", "NUM", "MISC"];
/// The number of types, the other one included.
pub(super) const KIND_COUNT: usize = KINDS.len() + 1;
/// Buckets of the distance between the nearest mentions.
const DISTANCES: u32 = 11;
/// Buckets of an entity's number of mentions.
const COUNTS: u32 = 4;

const KIND_PAIRS: u32 = (KIND_COUNT * KIND_COUNT) as u32;
const SUBJECT: u32 = KIND_PAIRS + DISTANCES;
const OBJECT: u32 = SUBJECT + COUNTS;
const TITLE: u32 = OBJECT + COUNTS;
const SHARED: u32 = TITLE + 3;

/// Feature indices are below this.
pub const PAIR_FEATURES: usize = SHARED as usize + 2;

/// The index of a type, below [`KIND_COUNT`].
pub(super) fn kind(name: &str) -> usize {
    KINDS.iter().position(|kind| *kind == name).unwrap_or(KINDS.len())
}

/// Features of a pair: types, distance and order of the nearest mentions, numbers of mentions, whether one is
/// the title entity, and whether they share a word.
pub(super) fn features(document: &Document, subject: usize, object: usize) -> Vec<u32> {
    let (first, second) = (&document.entities[subject], &document.entities[object]);
    let kinds = (kind(&first[0].kind) * KIND_COUNT + kind(&second[0].kind)) as u32;
    let nearest = first.iter().flat_map(|a| second.iter().map(move |b| distance(a, b))).min();
    let count = |mentions: &[Mention]| (mentions.len() as u32).min(COUNTS) - 1;
    let is_title = |mentions: &[Mention]| mentions.iter().any(|mention| mention.name == document.title);
    let title = if is_title(first) { 1 } else { 2 * u32::from(is_title(second)) };
    let shared = first.iter().any(|a| second.iter().any(|b| share_a_word(&a.name, &b.name)));
    vec![
        kinds,
        KIND_PAIRS + nearest.unwrap_or(DISTANCES - 1),
        SUBJECT + count(first),
        OBJECT + count(second),
        TITLE + title,
        SHARED + u32::from(shared),
    ]
}

/// Within a sentence the tokens between, in four buckets for each order; otherwise the sentences between, in
/// three.
fn distance(a: &Mention, b: &Mention) -> u32 {
    match a.sentence.abs_diff(b.sentence) {
        0 => {
            let (left, right) = if a.tokens <= b.tokens { (a, b) } else { (b, a) };
            let bucket = match right.tokens.0.saturating_sub(left.tokens.1) {
                0..2 => 0,
                2..5 => 1,
                5..12 => 2,
                _ => 3,
            };
            2 * bucket + u32::from(a.tokens > b.tokens)
        }
        apart => 7 + (apart as u32).min(3),
    }
}

/// Whether two names share a capitalised word: families, companies and their parts.
fn share_a_word(a: &str, b: &str) -> bool {
    let is_name =
        |word: &&str| word.chars().next().is_some_and(char::is_uppercase) && word.chars().count() > 2;
    a.split_whitespace().filter(is_name).any(|word| b.split_whitespace().any(|other| other == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mention(name: &str, sentence: usize, tokens: (usize, usize), kind: &str) -> Mention {
        Mention { name: name.into(), tokens, sentence, kind: kind.into() }
    }

    #[test]
    fn features_are_numbers_of_their_own_below_their_number() {
        let document = Document {
            title: "Ann Lee".into(),
            sentences: vec![vec![String::new(); 40]; 9],
            entities: vec![
                vec![mention("Ann Lee", 0, (0, 2), "PER"), mention("Ann", 8, (0, 1), "PER")],
                vec![mention("Bob Lee", 0, (3, 5), "PER")],
                vec![mention("1999", 4, (39, 40), "else")],
            ],
            relations: vec![],
        };
        let of = |subject, object| features(&document, subject, object);
        // Two persons of one family: the subject is two tokens before the object, has two mentions, and is
        // the title.
        let persons = [0, KIND_PAIRS, SUBJECT + 1, OBJECT, TITLE + 1, SHARED + 1];
        assert_eq!(of(0, 1), persons);
        assert_eq!(of(1, 0), [0, KIND_PAIRS + 1, SUBJECT, OBJECT + 1, TITLE + 2, SHARED + 1]);
        assert_eq!(of(1, 2), [6, KIND_PAIRS + 10, SUBJECT, OBJECT, TITLE, SHARED]);
        assert!(SHARED + 1 < PAIR_FEATURES as u32);
    }
}
