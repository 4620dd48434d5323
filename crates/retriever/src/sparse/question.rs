//! English questions without the words that only make them questions.
//!
//! Few passages have words such as `who`, so that BM25 gives them as much weight as the words that name what is asked. A
//! passage with such a word is no better answer.

/// Words that ask.
const ASKING: [&str; 9] = ["who", "whom", "whose", "what", "which", "when", "where", "why", "how"];
/// Verbs that open a question, or stand after a word that asks.
const HELPERS: [&str; 15] = [
    "is", "are", "was", "were", "do", "does", "did", "can", "could", "will", "would", "should", "has",
    "have", "had",
];
/// Words before a noun: `the can`.
const ARTICLES: [&str; 3] = ["a", "an", "the"];
const APOSTROPHES: [char; 2] = ['\'', '\u{2019}'];

/// The words of a question that name what is asked, with blanks between them, without the `'s` at their ends. Capitals mark
/// a name inside a sentence, and all capitals mark one anywhere: `the WHO`.
pub(super) fn named_in(question: &str) -> String {
    let is_shouted = !question.contains(char::is_lowercase);
    let (mut kept, mut begins, mut asks, mut follows_article) = (String::new(), true, false, false);
    for written in question.split_whitespace() {
        let word = written.trim_matches(|c: char| !c.is_alphanumeric());
        let base = word.split(APOSTROPHES).next().unwrap_or(word);
        let lower = base.to_lowercase();
        let is_all_capitals = base.chars().count() > 1 && !base.contains(char::is_lowercase);
        let is_name = !is_shouted && (is_all_capitals || (!begins && base.starts_with(char::is_uppercase)));
        let is_asking = !is_name && ASKING.contains(&&*lower);
        let is_helper = !is_name && (begins || asks) && !follows_article && HELPERS.contains(&&*lower);
        if !is_asking && !is_helper {
            let owner = APOSTROPHES.iter().find_map(|&mark| word.strip_suffix('s')?.strip_suffix(mark));
            if !kept.is_empty() {
                kept.push(' ');
            }
            kept.push_str(owner.unwrap_or(written));
        }
        begins = written.ends_with(['.', '?', '!']);
        asks = !begins && (asks || is_asking);
        follows_article = ARTICLES.contains(&&*lower);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_ask_are_left_out() {
        for (question, expected) in [
            ("Who supplies the Quillgate?", "supplies the Quillgate?"),
            ("who's the keeper of Ann's mill", "the keeper of Ann mill"),
            ("Does the ferry run?", "the ferry run?"),
            ("How long does it take? When is it open?", "long it take? it open?"),
            ("How much oil is in the can", "much oil in the can"),
            ("mills that have a wheel", "mills that have a wheel"),
            ("What does the WHO say about The Who?", "the WHO say about The Who?"),
            ("WHO SUPPLIES THE MILL", "SUPPLIES THE MILL"),
            ("what is R", "R"),
            ("Who is he?", "he?"),
            ("why?", ""),
            ("水車小屋はどこですか", "水車小屋はどこですか"),
        ] {
            assert_eq!(named_in(question), expected, "{question}");
        }
    }
}
