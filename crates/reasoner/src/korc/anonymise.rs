//! Anonymises an entity in a text: a mark replaces its names and their parts.

use sporran_kilt::kb::EntityId;

use super::document::{Document, is_word};

/// Words in names that identify nothing on their own.
const COMMON: [&str; 12] =
    ["The", "Of", "And", "For", "New", "Saint", "North", "South", "East", "West", "United", "San"];

/// The number of marks of a class.
pub(super) const MARKS: u32 = 10_000;

/// A mark such as `[singer 4711]`.
pub fn mark(class: &str, number: u32) -> String {
    format!("[{class} {number:04}]")
}

/// Whether the mark of a number does not reveal an answer, and the text does not contain the number.
pub(super) fn is_free(class: &str, number: u32, text: &str, answers: &[&str]) -> bool {
    let mark = mark(class, number);
    let is_silent = |answer: &&str| !mark.contains(*answer) && places(&mark, answer).is_empty();
    !text.contains(&format!("{number:04}")) && answers.iter().all(is_silent)
}

/// Returns the document's title and text. `mark` replaces the entity's mentions, its `names` and their parts.
///
/// Parts are the capitalised words of names with at least three letters. Parts inside the mention of another
/// entity stay.
pub fn anonymise(document: &Document, entity: EntityId, names: &[String], mark: &str) -> (String, String) {
    let mentioned = document.mentions.iter().filter(|mention| mention.entity == entity);
    let mut whole: Vec<String> =
        mentioned.map(|mention| document.text[mention.start..mention.end].to_owned()).collect();
    whole.extend(names.iter().cloned());
    let parts = parts(&whole);
    whole.sort_unstable_by_key(|name| (std::cmp::Reverse(name.len()), name.clone()));
    whole.dedup();
    let others: Vec<(usize, usize)> = document
        .mentions
        .iter()
        .filter(|mention| mention.entity != entity)
        .map(|mention| (mention.start, mention.end))
        .collect();
    (
        replaced(&document.title, &whole, &parts, &[], mark),
        replaced(&document.text, &whole, &parts, &others, mark),
    )
}

/// The words of names that could reveal an entity.
pub(super) fn parts(names: &[String]) -> Vec<String> {
    let mut parts: Vec<String> = names
        .iter()
        .flat_map(|name| name.split(|c: char| !c.is_alphanumeric()))
        .filter(|word| word.chars().count() >= 3 && word.chars().next().is_some_and(char::is_uppercase))
        .filter(|word| !COMMON.contains(word))
        .map(str::to_owned)
        .collect();
    parts.sort_unstable_by_key(|part| (std::cmp::Reverse(part.len()), part.clone()));
    parts.dedup();
    parts
}

/// Whether a text has a name as whole words. Letters match in either case.
pub fn names_in(text: &str, name: &str) -> bool {
    !places(text, name).is_empty()
}

/// The most letters of a name that is an ordinary word in lower case, as `US` and `May` are.
const SHORT: usize = 3;

/// The spans of a name in a text as whole words. Letters match in either case, but a short name that is not in lower case
/// does not match a word that is.
pub(super) fn places(text: &str, name: &str) -> Vec<(usize, usize)> {
    if name.is_empty() {
        return Vec::new();
    }
    let (folded, small) = (folded(text), folded(name));
    let is_short = name.chars().count() <= SHORT && small != name;
    folded
        .match_indices(&small)
        .map(|(start, found)| (start, start + found.len()))
        .filter(|&(start, end)| is_word(text, start, end) && !(is_short && text[start..end] == small))
        .collect()
}

/// The text in lower case with the same offsets: a letter whose lower case is longer or shorter stays.
fn folded(text: &str) -> String {
    let small = |letter: char| {
        let mut small = letter.to_lowercase();
        match (small.next(), small.next()) {
            (Some(small), None) if small.len_utf8() == letter.len_utf8() => small,
            _ => letter,
        }
    };
    text.chars().map(small).collect()
}

fn replaced(text: &str, whole: &[String], parts: &[String], others: &[(usize, usize)], mark: &str) -> String {
    let mut spans: Vec<(usize, usize)> = Vec::new();
    let mut take = |name: &str, is_part: bool| {
        for (start, end) in places(text, name) {
            // A part in lower case is an ordinary word.
            if is_part && text[start..end] != *name {
                continue;
            }
            let touches = |spans: &[(usize, usize)]| spans.iter().any(|span| span.0 < end && start < span.1);
            if !(touches(&spans) || is_part && touches(others)) {
                spans.push((start, end));
            }
        }
    };
    whole.iter().filter(|name| !name.is_empty()).for_each(|name| take(name, false));
    parts.iter().for_each(|part| take(part, true));
    spans.sort_unstable();
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for (start, end) in spans {
        let between = &text[from..start];
        // Adjacent parts, such as first name and surname, get one mark.
        let joins = from > 0 && between.chars().all(|c| c == ' ' || c == '-') && out.ends_with(mark);
        if !joins {
            out.push_str(between);
            out.push_str(mark);
        }
        from = end;
    }
    out.push_str(&text[from..]);
    out
}

#[cfg(test)]
mod tests {
    use sporran_kilt::kb::Triple;

    use super::*;
    use crate::korc::document::Mention;

    #[test]
    fn letters_match_in_either_case_but_short_names_are_no_ordinary_words() {
        assert_eq!(places("In österland and Österland", "Österland").len(), 2);
        assert_eq!(places("The élan republic", "Élan Republic"), [(4, 18)]);
        assert!(places("It taught us, and it may help.", "US").is_empty());
        assert!(places("It may help.", "May").is_empty());
        assert_eq!((places("the US won", "US").len(), places("an art", "art").len()), (1, 1));
        // Its lower case has another length.
        assert_eq!(places("İzmir", "İzmir"), [(0, 6)]);
    }

    #[test]
    fn every_mention_and_its_parts_become_one_mark() {
        let text = "Ann Lee-Wood (Annie) met Lee Marvin in Leeds. Lee sang; so did Wood's band, The Ann Lee-Wood Five.";
        let document = Document {
            id: "1".into(),
            title: "Ann Lee-Wood".into(),
            text: text.into(),
            mentions: vec![
                Mention { start: 14, end: 19, entity: EntityId(1) },
                Mention { start: 25, end: 35, entity: EntityId(2) },
            ],
            relations: vec![Triple::new(1, 0, 2)],
            place: None,
        };
        let (title, text) = anonymise(&document, EntityId(1), &["Ann Lee-Wood".to_owned()], "[singer 0007]");
        assert_eq!(title, "[singer 0007]");
        assert_eq!(
            text,
            "[singer 0007] ([singer 0007]) met Lee Marvin in Leeds. [singer 0007] sang; so did [singer 0007]'s band, The [singer 0007] Five."
        );
        assert_eq!(mark("country", 7), "[country 0007]");
    }

    #[test]
    fn a_mark_is_free_if_it_has_no_answer() {
        assert!(is_free("year", 1987, "It was late.", &["1988", "Ann"]));
        assert!(!is_free("year", 1987, "It was 1987.", &[]));
        for answer in ["1987", "9", "year 1987", "YEAR"] {
            assert!(!is_free("year", 1987, "It was late.", &[answer]), "{answer}");
        }
    }

    #[test]
    fn common_words_are_no_parts() {
        assert_eq!(parts(&["The Bank of New York".to_owned()]), ["Bank", "York"]);
    }
}
