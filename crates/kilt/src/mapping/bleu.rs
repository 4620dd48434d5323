//! The span of a text that is most like another text, by BLEU (Papineni et al. 2002).

use std::{collections::HashMap, ops::Range};

/// N-grams of up to so many words count.
const ORDERS: usize = 4;

/// A word of a text in the form in which words are compared, and its place in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    text: String,
    characters: Range<usize>,
}

/// The words of a text: runs of letters and digits, in lower case. KILT compares what spaCy splits, without punctuation.
pub(super) fn words(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut open: Option<Word> = None;
    for (at, c) in text.chars().enumerate() {
        if c.is_alphanumeric() {
            let word = open.get_or_insert_with(|| Word { text: String::new(), characters: at..at });
            word.text.extend(c.to_lowercase());
            word.characters.end = at + 1;
        } else {
            words.extend(open.take());
        }
    }
    words.extend(open);
    words
}

/// A span of a text in characters, and its BLEU.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Match {
    pub(super) characters: Range<usize>,
    pub(super) bleu: f64,
    /// Its words.
    pub(super) length: usize,
}

/// The n-grams of an evidence text with their numbers and counts.
pub(super) struct Evidence {
    words: Vec<Word>,
    /// For each order, the number of each n-gram.
    numbers: Vec<HashMap<Vec<String>, usize>>,
    /// How often each occurs.
    counts: Vec<u32>,
}

impl Evidence {
    /// Nothing for a text without words.
    pub(super) fn new(text: &str) -> Option<Self> {
        let words = words(text);
        if words.is_empty() {
            return None;
        }
        let mut counts = Vec::new();
        // A text of fewer words has no n-grams of the higher orders, and is compared by those that it has.
        let numbers = (1..=ORDERS.min(words.len()))
            .map(|order| {
                let mut numbers = HashMap::new();
                for gram in words.windows(order) {
                    let gram = gram.iter().map(|word| word.text.clone()).collect();
                    let number = *numbers.entry(gram).or_insert_with(|| {
                        counts.push(0);
                        counts.len() - 1
                    });
                    counts[number] += 1;
                }
                numbers
            })
            .collect();
        Some(Self { words, numbers, counts })
    }

    /// How many of a text's words the evidence has, each once.
    pub(super) fn shared(&self, other: &[Word]) -> usize {
        let mut seen: Vec<&str> = other.iter().map(|word| word.text.as_str()).collect();
        seen.sort_unstable();
        seen.dedup();
        let own = &self.numbers[0];
        seen.into_iter().filter(|word| own.contains_key(std::slice::from_ref(&(*word).to_owned()))).count()
    }

    /// The span of `text` with the highest BLEU: the evidence is the hypothesis and the span its only reference, without
    /// smoothing. Of equal ones the shortest wins, then the first.
    pub(super) fn best(&self, text: &[Word]) -> Option<Match> {
        let length = self.words.len();
        // The number of the n-gram that ends at each place, order by order.
        let ending: Vec<Vec<Option<usize>>> = self
            .numbers
            .iter()
            .enumerate()
            .map(|(at, numbers)| {
                let order = at + 1;
                let mut row = vec![None; text.len()];
                for (start, gram) in text.windows(order).enumerate() {
                    let gram: Vec<String> = gram.iter().map(|word| word.text.clone()).collect();
                    row[start + order - 1] = numbers.get(&gram).copied();
                }
                row
            })
            .collect();
        let mut best: Option<(f64, Range<usize>)> = None;
        let mut seen = vec![0u32; self.counts.len()];
        for first in 0..text.len() {
            // A span that begins with a foreign word is no better than the one without it.
            if ending[0][first].is_none() {
                continue;
            }
            seen.fill(0);
            let mut matches = [0u32; ORDERS];
            for last in first..text.len() {
                for (at, row) in ending.iter().enumerate() {
                    if let Some(number) = row[last].filter(|_| last >= first + at) {
                        seen[number] += 1;
                        matches[at] += u32::from(seen[number] <= self.counts[number]);
                    }
                }
                if ending[0][last].is_none() {
                    continue;
                }
                let score = bleu(&matches[..ending.len()], length, last + 1 - first);
                let span = first..last + 1;
                let better = best.as_ref().is_none_or(|(known, known_span)| {
                    score > *known || (score == *known && span.len() < known_span.len())
                });
                if better {
                    best = Some((score, span));
                }
            }
        }
        best.map(|(bleu, span)| Match {
            characters: text[span.start].characters.start..text[span.end - 1].characters.end,
            bleu,
            length: span.len(),
        })
    }
}

/// BLEU from the matches of each order, the hypothesis's length and the reference's.
fn bleu(matches: &[u32], hypothesis: usize, reference: usize) -> f64 {
    if matches.contains(&0) {
        return 0.0;
    }
    let orders = matches.len() as f64;
    let mean: f64 = matches
        .iter()
        .enumerate()
        .map(|(at, matches)| (f64::from(*matches) / (hypothesis - at) as f64).ln() / orders)
        .sum();
    let brevity = if hypothesis > reference { 0.0 } else { 1.0 - reference as f64 / hypothesis as f64 };
    (mean + brevity).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(evidence: &str, text: &str) -> (String, f64) {
        let found = Evidence::new(evidence).unwrap().best(&words(text)).unwrap();
        let range = found.characters;
        (text.chars().skip(range.start).take(range.len()).collect(), found.bleu)
    }

    /// BLEU of a span by its definition, with sets counted anew.
    fn slow(evidence: &str, span: &[Word]) -> f64 {
        let own = words(evidence);
        let orders = own.len().min(ORDERS);
        let mut log = 0.0;
        for order in 1..=orders {
            let grams = |words: &[Word]| {
                let mut counts: HashMap<Vec<String>, u32> = HashMap::new();
                for gram in words.windows(order) {
                    *counts.entry(gram.iter().map(|word| word.text.clone()).collect()).or_default() += 1;
                }
                counts
            };
            let reference = grams(span);
            let matched: u32 = grams(&own)
                .iter()
                .map(|(gram, count)| (*count).min(reference.get(gram).copied().unwrap_or(0)))
                .sum();
            if matched == 0 {
                return 0.0;
            }
            log += (f64::from(matched) / (own.len() + 1 - order) as f64).ln() / orders as f64;
        }
        let ratio = span.len() as f64 / own.len() as f64;
        if own.len() > span.len() { log.exp() } else { (log + 1.0 - ratio).exp() }
    }

    #[test]
    fn what_stands_in_the_text_is_found_whole() {
        let text = "It rained. Ann Lund (born 1920) was a Norwegian singer, and more. Ann sang.";
        assert_eq!(
            span("Ann Lund ( born 1920 ) was a Norwegian singer .", text),
            ("Ann Lund (born 1920) was a Norwegian singer".into(), 1.0)
        );
        assert_eq!(span("ANN", "so Ann, Ann and Ann"), ("Ann".into(), 1.0));
    }

    #[test]
    fn every_span_is_scored_as_the_definition_says() {
        let evidence = "the red house stands near the river in the old town";
        let text =
            "In the old town of Oslo the red house near the wide river stands, near the river in the dark.";
        let all = words(text);
        let mut best = (0.0, 0..0);
        for first in 0..all.len() {
            for last in first..all.len() {
                let score = slow(evidence, &all[first..=last]);
                let span = first..last + 1;
                if score > best.0 + 1e-12 || ((score - best.0).abs() < 1e-12 && span.len() < best.1.len()) {
                    best = (score, span);
                }
            }
        }
        let found = Evidence::new(evidence).unwrap().best(&all).unwrap();
        assert!((found.bleu - best.0).abs() < 1e-9, "{} {}", found.bleu, best.0);
        assert_eq!(found.length, best.1.len());
        assert!(found.bleu > 0.3 && found.bleu < 1.0, "{}", found.bleu);
    }

    #[test]
    fn texts_without_words_match_nothing() {
        assert!(Evidence::new("...").is_none());
        assert!(Evidence::new("a").unwrap().best(&words("b c")).is_none());
        assert_eq!(Evidence::new("a b b").unwrap().shared(&words("b B c")), 1);
    }
}
