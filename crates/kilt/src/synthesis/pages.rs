//! The material of synthetic queries: sentences, the pages that they name, and the type of a page's topic.

use std::ops::Range;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use unicode_segmentation::UnicodeSegmentation;

use crate::{ParagraphKind, PassageStore, sentences, store::PageIndex};

/// The smallest number of characters of a popular page, and the largest number of words in its title.
const RICH: (usize, usize) = (700, 3);
/// The length of a sentence in characters.
const SENTENCE: Range<usize> = 26..300;
/// A name in more pages than this is unspecific, such as a country.
const COMMON: u32 = 25;
/// The smallest number of other titles that contain a general name.
const GENERAL: u32 = 2;
/// The largest number of words of a name.
const NAME_WORDS: usize = 7;
/// The number of bytes of a page in which names are counted.
const COUNTED: usize = 1500;

pub(super) struct Pages<'s> {
    store: &'s PassageStore,
    /// Pages by title without a bracketed suffix. Ties go to the title without brackets; otherwise none.
    by_name: FxHashMap<&'s str, Option<PageIndex>>,
    /// The number of pages that contain a page's name.
    said: Vec<u32>,
    /// Words that occur in lower case.
    common_words: FxHashSet<String>,
    nouns: Vec<Option<String>>,
    by_noun: FxHashMap<String, Vec<PageIndex>>,
    rich: Vec<PageIndex>,
    /// Those of them whose names occur in the titles of several other pages, because general topics are
    /// easily confused with specific ones.
    general: Vec<PageIndex>,
}

impl<'s> Pages<'s> {
    pub(super) fn new(store: &'s PassageStore) -> Self {
        let indices: Vec<PageIndex> = (0..store.pages() as u32).map(PageIndex).collect();
        let by_name = by_name(store, &indices);
        let words = |page: &PageIndex| -> FxHashSet<String> {
            let text = store.paragraphs(*page).skip(1).flat_map(str::unicode_words);
            text.filter(|word| word.chars().all(char::is_lowercase)).map(str::to_owned).collect()
        };
        let common_words = indices.par_iter().map(words).reduce(FxHashSet::default, |mut a, mut b| {
            if a.len() < b.len() {
                std::mem::swap(&mut a, &mut b);
            }
            a.extend(b);
            a
        });
        let nouns: Vec<Option<String>> = indices.par_iter().map(|page| noun(store, *page)).collect();
        let mut by_noun: FxHashMap<String, Vec<PageIndex>> = FxHashMap::default();
        for (page, noun) in indices.iter().zip(&nouns) {
            if let Some(noun) = noun {
                by_noun.entry(noun.clone()).or_default().push(*page);
            }
        }
        let is_rich = |page: &PageIndex| {
            let length: usize = store.paragraphs(*page).skip(1).map(|text| text.chars().count()).sum();
            length >= RICH.0 && store.page_title(*page).split(' ').count() <= RICH.1
        };
        let rich: Vec<PageIndex> = indices.par_iter().copied().filter(is_rich).collect();
        let in_titles = in_titles(store, &indices, &by_name);
        let general = rich.iter().copied().filter(|page| in_titles[page.0 as usize] >= GENERAL).collect();
        let said = Vec::new();
        let mut pages = Self { store, by_name, said, common_words, nouns, by_noun, rich, general };
        let named = |page: &PageIndex| -> FxHashSet<PageIndex> {
            let mut left = COUNTED;
            let mut found = FxHashSet::default();
            for sentence in pages.sentences(*page) {
                if sentence.len() > left {
                    break;
                }
                left -= sentence.len();
                found.extend(pages.names(sentence, *page).into_iter().map(|(_, page)| page));
            }
            found
        };
        let named: Vec<FxHashSet<PageIndex>> = indices.par_iter().map(named).collect();
        let mut said = vec![0; indices.len()];
        named.iter().flatten().for_each(|page| said[page.0 as usize] += 1);
        pages.said = said;
        pages
    }

    pub(super) fn title(&self, page: PageIndex) -> &'s str {
        self.store.page_title(page)
    }

    /// A random page.
    pub(super) fn any(&self, rng: &mut ChaCha8Rng) -> PageIndex {
        PageIndex(rng.random_range(0..self.store.pages() as u32))
    }

    /// A random page with much text.
    pub(super) fn any_rich(&self, rng: &mut ChaCha8Rng) -> Option<PageIndex> {
        (!self.rich.is_empty()).then(|| self.rich[rng.random_range(0..self.rich.len())])
    }

    /// A random page of those whose names occur in several other titles, if there are any.
    pub(super) fn any_general(&self, rng: &mut ChaCha8Rng) -> Option<PageIndex> {
        if self.general.is_empty() {
            return self.any_rich(rng);
        }
        Some(self.general[rng.random_range(0..self.general.len())])
    }

    /// A page's sentences of medium length, in order.
    pub(super) fn sentences(&self, page: PageIndex) -> Vec<&'s str> {
        let paragraphs = self.store.paragraphs(page).skip(1);
        let prose = paragraphs.filter(|text| ParagraphKind::of(text) == ParagraphKind::Text);
        let sentences = prose.flat_map(sentences).map(str::trim);
        sentences.filter(|sentence| SENTENCE.contains(&sentence.chars().count())).collect()
    }

    /// The type of a page's topic in one word: the head noun of its definition in the first sentence.
    pub(super) fn noun(&self, page: PageIndex) -> Option<&str> {
        self.nouns[page.0 as usize].as_deref()
    }

    pub(super) fn of_noun(&self, noun: &str) -> &[PageIndex] {
        self.by_noun.get(noun).map_or(&[], Vec::as_slice)
    }

    /// Other pages with specific names in a sentence of `page`. Very frequent names and ordinary single words
    /// do not count.
    pub(super) fn named<'t>(&self, sentence: &'t str, page: PageIndex) -> Vec<(&'t str, PageIndex)> {
        let mut names = self.names(sentence, page);
        names.retain(|(name, page)| {
            self.said[page.0 as usize] <= COMMON
                && (name.contains(' ') || !self.common_words.contains(&name.to_lowercase()))
        });
        names
    }

    /// All other pages' names after the first word of a sentence, the longest at each word.
    fn names<'t>(&self, sentence: &'t str, page: PageIndex) -> Vec<(&'t str, PageIndex)> {
        let words: Vec<(usize, &str)> = sentence.unicode_word_indices().collect();
        let mut found = Vec::new();
        let mut at = 1;
        while at < words.len() {
            let (start, word) = words[at];
            let most = NAME_WORDS.min(words.len() - at);
            let name = word.chars().next().filter(|first| first.is_uppercase()).and_then(|_| {
                (1..=most).rev().find_map(|count| {
                    let (last, end) = words[at + count - 1];
                    let name = &sentence[start..last + end.len()];
                    let other = self.by_name.get(name).copied().flatten()?;
                    let says_which = count > 1 || name.chars().count() > 4;
                    (other != page && says_which).then_some((name, other, count))
                })
            });
            match name {
                Some((name, other, count)) => {
                    found.push((name, other));
                    at += count;
                }
                None => at += 1,
            }
        }
        found
    }
}

/// A title without its bracketed suffix.
pub(super) fn plain(title: &str) -> &str {
    match title.strip_suffix(')').and_then(|title| title.split_once(" (")) {
        Some((name, _)) if !name.is_empty() => name,
        _ => title,
    }
}

/// Pages by their names.
fn by_name<'s>(store: &'s PassageStore, pages: &[PageIndex]) -> FxHashMap<&'s str, Option<PageIndex>> {
    let mut by_name: FxHashMap<&str, Option<PageIndex>> = FxHashMap::default();
    for page in pages {
        let name = plain(store.page_title(*page));
        by_name.entry(name).and_modify(|other| *other = None).or_insert(Some(*page));
    }
    // A title without brackets names its page, whatever titles with brackets exist.
    for page in pages {
        let title = store.page_title(*page);
        if plain(title) == title {
            by_name.insert(title, Some(*page));
        }
    }
    by_name
}

/// For each page the other titles that contain its name.
fn in_titles(
    store: &PassageStore,
    pages: &[PageIndex],
    by_name: &FxHashMap<&str, Option<PageIndex>>,
) -> Vec<u32> {
    let mut counts = vec![0; pages.len()];
    for page in pages {
        let parts = parts(plain(store.page_title(*page)));
        for other in parts.into_iter().filter_map(|part| by_name.get(part).copied().flatten()) {
            counts[other.0 as usize] += u32::from(other != *page);
        }
    }
    counts
}

/// All word n-grams of a text, up to the length of names.
fn parts(text: &str) -> Vec<&str> {
    let words: Vec<(usize, &str)> =
        text.split_word_bound_indices().filter(|(_, word)| !word.trim().is_empty()).collect();
    let mut parts = Vec::new();
    for (first, (start, _)) in words.iter().enumerate() {
        for (last, word) in &words[first..words.len().min(first + NAME_WORDS)] {
            parts.push(&text[*start..last + word.len()]);
        }
    }
    parts
}

/// The head noun of a page's definition: after `is a` or similar, the last word before its complements.
fn noun(store: &PassageStore, page: PageIndex) -> Option<String> {
    const ENDS: &[&str] = &[
        "of", "in", "by", "from", "who", "that", "which", "and", "for", "at", "on", "with", "located",
        "released", "born", "directed",
    ];
    let first = store.paragraphs(page).nth(1)?;
    let words: Vec<&str> = sentences(first).next()?.split_whitespace().collect();
    let is = |word: &str| ["is", "was", "are", "were"].contains(&word);
    let start = words.windows(2).position(|pair| is(pair[0]) && ["a", "an", "the"].contains(&pair[1]))? + 2;
    let mut last = None;
    for word in words.get(start..)?.iter().take(5) {
        if ENDS.contains(word) {
            break;
        }
        let bare = word.trim_end_matches([',', '.', ';']);
        if !bare.chars().all(|c| c.is_alphabetic() || c == '-') {
            break;
        }
        last = Some(bare);
        if bare.len() < word.len() {
            break;
        }
    }
    last.filter(|noun| !noun.is_empty()).map(str::to_lowercase)
}

/// A sentence without bracketed text, and with `by` instead of `name`.
pub(super) fn hidden(sentence: &str, name: &str, by: &str) -> String {
    let mut out = String::with_capacity(sentence.len());
    let mut depth = 0usize;
    for c in sentence.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out.replace(name, by)
}

/// Consecutive words of a text.
pub(super) fn chunk(text: &str, words: Range<usize>, rng: &mut ChaCha8Rng) -> String {
    let all: Vec<&str> = text.split_whitespace().collect();
    let count = rng.random_range(words).min(all.len());
    let start = rng.random_range(0..=all.len() - count);
    all[start..start + count].join(" ")
}

/// Single blanks, no blank before a full stop, and no full stop at the ends.
pub(super) fn clean(text: &str) -> String {
    let mut out = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for stop in [" ,", " .", " ?"] {
        out = out.replace(stop, &stop[1..]);
    }
    out.trim_matches([' ', ',', '.', ';']).to_owned()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::{PassageSplit, jsonl, store::BuildOptions};

    #[test]
    fn a_name_is_that_of_the_page_without_brackets_and_general_where_other_titles_have_it() {
        let folder = tempfile::tempdir().unwrap();
        let text = "It is said that Tea Garden was a drink of many people there. ".repeat(14);
        let page = |title: &&str| {
            serde_json::json!({"wikipedia_id": title, "wikipedia_title": title, "text": [title, text]})
                .to_string()
        };
        let titles = ["Tea (film)", "Tea", "Tea (song)", "Tea House", "Tea Garden", "Mill (a)", "Mill (b)"];
        let source = folder.path().join("pages.jsonl");
        jsonl::write(&source, titles.iter().map(page).collect::<Vec<_>>().join("\n").as_bytes()).unwrap();
        let build = BuildOptions { source, redirects: None, split: PassageSplit::Page };
        let store = PassageStore::build(&build, folder.path().join("store"), &mut |_| {}).unwrap();
        let pages = Pages::new(&store);
        assert_eq!(pages.by_name["Tea"], Some(PageIndex(1)));
        assert_eq!(pages.by_name["Mill"], None);
        assert_eq!(pages.general, [PageIndex(1)]);
        let sentence = pages.sentences(PageIndex(0))[0];
        assert_eq!(pages.named(sentence, PageIndex(0)), [("Tea Garden", PageIndex(4))]);
        assert!(pages.named(sentence, PageIndex(4)).is_empty());
    }

    #[test]
    fn titles_lose_their_brackets_and_sentences_their_names() {
        assert_eq!(plain("Kiss and Tell (1945 film)"), "Kiss and Tell");
        assert_eq!(plain("AC/DC"), "AC/DC");
        assert_eq!(plain("(What's the Story)"), "(What's the Story)");
        assert_eq!(hidden("Ann (born 1 (old) May) sang; Ann left", "Ann", "who"), "who  sang; who left");
        assert_eq!(clean("  who  sang , and left ?. "), "who sang, and left?");
    }

    #[test]
    fn parts_of_a_title_are_its_words_in_a_row() {
        assert_eq!(
            parts("The King's bed"),
            ["The", "The King's", "The King's bed", "King's", "King's bed", "bed"]
        );
    }

    #[test]
    fn a_chunk_is_words_in_a_row() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        for _ in 0..20 {
            let part = chunk("a b c d e f", 2..4, &mut rng);
            assert!("a b c d e f".contains(&part) && (3..=5).contains(&part.len()), "{part}");
        }
        assert_eq!(chunk("", 2..4, &mut rng), "");
        assert_eq!(chunk("a", 2..4, &mut rng), "a");
    }
}
