//! The BLEU of a page's spans against an evidence text (Papineni et al. 2002).

use std::ops::Range;

use rustc_hash::FxHashMap;

/// The longest n-grams that count.
const ORDERS: usize = 4;

/// Represents a word or n-gram that the evidence lacks.
const FOREIGN: u32 = u32::MAX;

/// Calls `found` with each word of a text in normal form and its character range. Words are runs of letters
/// and digits, in lower case. KILT compares spaCy's tokens without punctuation.
fn each_word(text: &str, mut found: impl FnMut(&str, Range<usize>)) {
    let (mut word, mut start, mut end) = (String::new(), 0, 0);
    for (at, c) in text.chars().enumerate() {
        if c.is_alphanumeric() {
            if word.is_empty() {
                start = at;
            }
            word.extend(c.to_lowercase());
            end = at + 1;
        } else if !word.is_empty() {
            found(&word, start..end);
            word.clear();
        }
    }
    if !word.is_empty() {
        found(&word, start..end);
    }
}

/// A word of a page: its paragraph, and its characters there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) paragraph: u32,
    pub(super) characters: Range<usize>,
}

/// The words of a page as seen by an evidence text, paragraph by paragraph.
pub(super) struct Page {
    pub(super) places: Vec<Place>,
    /// For each word and each order, the number of the n-gram that ends there, or [`FOREIGN`].
    ending: Vec<[u32; ORDERS]>,
}

impl Page {
    /// Whether the evidence contains the word.
    pub(super) fn is_known(&self, word: usize) -> bool {
        self.ending[word][0] != FOREIGN
    }
}

/// An evidence text: the numbers of its words and n-grams, and their counts.
pub(super) struct Evidence {
    /// Its number of words.
    pub(super) length: usize,
    /// The number of each word.
    words: FxHashMap<String, u32>,
    /// The number of each n-gram, by its word numbers; lower orders start with [`FOREIGN`].
    grams: FxHashMap<[u32; ORDERS], u32>,
    /// The count of each n-gram.
    counts: Vec<u32>,
}

impl Evidence {
    /// None for a text without words.
    pub(super) fn new(text: &str) -> Option<Self> {
        let mut words = FxHashMap::default();
        let mut own = Vec::new();
        each_word(text, |word, _| {
            let next = words.len() as u32;
            own.push(*words.entry(word.to_owned()).or_insert(next));
        });
        if own.is_empty() {
            return None;
        }
        let (mut grams, mut counts) = (FxHashMap::default(), Vec::new());
        for last in 0..own.len() {
            for order in 1..=ORDERS.min(last + 1) {
                let number = *grams.entry(key(&own[last + 1 - order..=last])).or_insert_with(|| {
                    counts.push(0);
                    counts.len() as u32 - 1
                });
                counts[number as usize] += 1;
            }
        }
        Some(Self { length: own.len(), words, grams, counts })
    }

    /// The orders that are compared: a short text has no n-grams of higher orders.
    fn orders(&self) -> usize {
        ORDERS.min(self.length)
    }

    /// The words of a page. N-grams may cross paragraph ends.
    pub(super) fn read<'a>(&self, paragraphs: impl Iterator<Item = &'a str>) -> Page {
        let mut page = Page { places: Vec::new(), ending: Vec::new() };
        // The numbers of the last words, the newest at the end.
        let mut last = [FOREIGN; ORDERS];
        for (paragraph, text) in (0u32..).zip(paragraphs) {
            each_word(text, |word, characters| {
                last.rotate_left(1);
                last[ORDERS - 1] = self.words.get(word).copied().unwrap_or(FOREIGN);
                let mut ending = [FOREIGN; ORDERS];
                for (order, number) in (1..=self.orders()).zip(&mut ending) {
                    // Longer n-grams contain a foreign word.
                    let gram = &last[ORDERS - order..];
                    match self.grams.get(&key(gram)) {
                        Some(found) if gram[0] != FOREIGN => *number = *found,
                        _ => break,
                    }
                }
                page.places.push(Place { paragraph, characters });
                page.ending.push(ending);
            });
        }
        page
    }

    /// BLEU of the evidence as hypothesis against a span as its only reference, without smoothing.
    ///
    /// `matches` counts the evidence's n-grams in the span by order, each at most as often as in the
    /// evidence. `reference` is the number of the span's words. With equal products of matches, spans no
    /// longer than the evidence have bitwise equal BLEU.
    pub(super) fn bleu(&self, matches: &[u32; ORDERS], reference: usize) -> f64 {
        let orders = self.orders();
        let product: f64 = matches[..orders].iter().map(|&matches| f64::from(matches)).product();
        if product == 0.0 {
            return 0.0;
        }
        let all: f64 = (0..orders).map(|at| (self.length - at) as f64).product();
        let brevity = (1.0 - reference as f64 / self.length as f64).min(0.0);
        ((product / all).ln() / orders as f64 + brevity).exp()
    }
}

fn key(words: &[u32]) -> [u32; ORDERS] {
    let mut key = [FOREIGN; ORDERS];
    key[ORDERS - words.len()..].copy_from_slice(words);
    key
}

/// The matching n-grams of a sliding span.
pub(super) struct Tally<'a> {
    page: &'a Page,
    counts: &'a [u32],
    seen: Vec<u32>,
    span: Range<usize>,
    matches: [u32; ORDERS],
}

impl<'a> Tally<'a> {
    pub(super) fn new(evidence: &'a Evidence, page: &'a Page) -> Self {
        let counts = &evidence.counts;
        Self { page, counts, seen: vec![0; counts.len()], span: 0..0, matches: [0; ORDERS] }
    }

    /// Restarts with an empty span at `start`.
    pub(super) fn restart(&mut self, start: usize) {
        self.seen.fill(0);
        self.span = start..start;
        self.matches = [0; ORDERS];
    }

    /// Adds the next word. Returns whether an n-gram was counted.
    pub(super) fn grow(&mut self) -> bool {
        let before = self.matches;
        for (at, &gram) in self.page.ending[self.span.end].iter().enumerate() {
            if gram == FOREIGN || self.span.end < self.span.start + at {
                break;
            }
            let gram = gram as usize;
            self.seen[gram] += 1;
            self.matches[at] += u32::from(self.seen[gram] <= self.counts[gram]);
        }
        self.span.end += 1;
        self.matches != before
    }

    /// Removes the first word.
    pub(super) fn shrink(&mut self) {
        for at in 0..ORDERS {
            let last = self.span.start + at;
            let gram = if last < self.span.end { self.page.ending[last][at] } else { FOREIGN };
            if gram == FOREIGN {
                break;
            }
            let gram = gram as usize;
            self.matches[at] -= u32::from(self.seen[gram] <= self.counts[gram]);
            self.seen[gram] -= 1;
        }
        self.span.start += 1;
    }

    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    pub(super) fn matches(&self) -> &[u32; ORDERS] {
        &self.matches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_runs_of_letters_and_digits_in_lower_case() {
        let mut words = Vec::new();
        each_word("Été, 3rd -- (B)", |word, at| words.push((word.to_owned(), at)));
        assert_eq!(words, [("été".into(), 0..3), ("3rd".into(), 5..8), ("b".into(), 13..14)]);
        assert!(Evidence::new("...").is_none());
    }

    #[test]
    fn a_span_that_shrinks_counts_what_a_new_one_counts() {
        let evidence = Evidence::new("a b a c a b").unwrap();
        let page = evidence.read(["a b x a b a b", "c a b a c a b"].into_iter());
        let words = page.places.len();
        for width in 1..=words {
            let mut sliding = Tally::new(&evidence, &page);
            sliding.restart(0);
            for start in 0..=words - width {
                while sliding.span().end < start + width {
                    sliding.grow();
                }
                let mut new = Tally::new(&evidence, &page);
                new.restart(start);
                (0..width).for_each(|_| _ = new.grow());
                assert_eq!((sliding.span(), sliding.matches()), (new.span(), new.matches()));
                sliding.shrink();
            }
        }
    }

    #[test]
    fn bleu_is_the_geometric_mean_of_the_clipped_precisions_times_the_brevity_penalty() {
        let evidence = Evidence::new("the the the cat sat").unwrap();
        // Papineni's example reversed: `the` counts as often as in the reference.
        let page = evidence.read(["the cat sat on"].into_iter());
        let mut tally = Tally::new(&evidence, &page);
        tally.restart(0);
        (0..3).for_each(|_| _ = tally.grow());
        assert_eq!(tally.matches(), &[3, 2, 1, 0]);
        assert_eq!(evidence.bleu(tally.matches(), 3), 0.0);
        let short = Evidence::new("the the cat").unwrap();
        // A text of three words has no n-grams of four, so order four does not count.
        assert_eq!(short.bleu(&[2, 1, 0, 0], 2), 0.0);
        let expected = (2.0f64 / 3.0 * 0.5).powf(1.0 / 3.0);
        assert!((short.bleu(&[2, 1, 1, 0], 2) - expected).abs() < 1e-12);
        // A reference of six words for a hypothesis of three.
        assert!((short.bleu(&[2, 1, 1, 0], 6) - expected * (-1.0f64).exp()).abs() < 1e-12);
        assert_eq!(short.bleu(&[3, 2, 1, 0], 3), 1.0);
    }
}
