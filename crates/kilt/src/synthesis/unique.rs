//! Questions that only one page answers.

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    pages::plain,
    questions::{Question, content, is_prose},
};
use crate::{PassageStore, store::PageIndex};

/// The words of a question.
struct Words {
    page: PageIndex,
    /// The number of different words.
    count: usize,
}

/// Leaves out questions whose words are all in a paragraph of another page, and definitions of names that several pages have.
pub(super) fn keep(store: &PassageStore, made: &mut [(PageIndex, Vec<Question>)]) {
    let mut questions: Vec<Words> = Vec::new();
    let mut by_word: FxHashMap<String, Vec<u32>> = FxHashMap::default();
    for (page, texts) in made.iter() {
        for question in texts {
            let stems = if question.is_definition { FxHashSet::default() } else { content(&question.text) };
            questions.push(Words { page: *page, count: stems.len() });
            for stem in stems {
                by_word.entry(stem).or_default().push(questions.len() as u32 - 1);
            }
        }
    }
    let pages = 0..store.pages() as u32;
    let answered: FxHashSet<u32> = pages
        .into_par_iter()
        .flat_map_iter(|page| elsewhere(store, PageIndex(page), &questions, &by_word))
        .collect();
    let titles = titles(store);
    let mut number = 0;
    for (page, texts) in made.iter_mut() {
        let is_alone = titles.get(plain(store.page_title(*page))).is_none_or(|count| *count == 1);
        texts.retain(|question| {
            number += 1;
            !answered.contains(&(number - 1)) && (is_alone || !question.is_definition)
        });
    }
}

/// The questions about other pages whose words are all in a paragraph of this one.
fn elsewhere(
    store: &PassageStore,
    page: PageIndex,
    questions: &[Words],
    by_word: &FxHashMap<String, Vec<u32>>,
) -> Vec<u32> {
    let mut found = Vec::new();
    let prose = store.paragraphs(page).skip(1).filter(|text| is_prose(text));
    for paragraph in prose {
        let mut counts: FxHashMap<u32, usize> = FxHashMap::default();
        for stem in content(paragraph) {
            for &question in by_word.get(&stem).into_iter().flatten() {
                *counts.entry(question).or_default() += 1;
            }
        }
        let has_all = |(question, count): (&u32, &usize)| {
            let words = &questions[*question as usize];
            (words.page != page && words.count == *count).then_some(*question)
        };
        found.extend(counts.iter().filter_map(has_all));
    }
    found
}

/// The number of pages of each name.
fn titles(store: &PassageStore) -> FxHashMap<&str, u32> {
    let mut titles = FxHashMap::default();
    for page in (0..store.pages() as u32).map(PageIndex) {
        *titles.entry(plain(store.page_title(page))).or_default() += 1;
    }
    titles
}
