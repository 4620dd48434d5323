//! The span of a page with the highest BLEU against an evidence text.

use super::bleu::{Evidence, Page, Place, Tally};

/// Tolerance of a bound against rounding.
const SLACK: f64 = 1e-9;

/// A span of a page, from one word to another, inclusive.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Span {
    /// The paragraph in which it starts, and its first character there.
    pub(super) start: (u32, usize),
    /// The paragraph in which it ends, and the character after its last there.
    pub(super) end: (u32, usize),
    /// Its BLEU, above 0.
    pub(super) bleu: f64,
}

impl Span {
    /// The span with the highest BLEU among all spans of the page's words, also across paragraphs. Ties go to
    /// the fewest words, then to the first. An exact occurrence of the text in a paragraph wins. None if page
    /// and evidence share no n-gram of the highest order.
    pub(super) fn best(evidence: &Evidence, text: &str, paragraphs: &[&str]) -> Option<Self> {
        let found = verbatim(text.trim(), paragraphs);
        found.or_else(|| {
            let page = evidence.read(paragraphs.iter().copied());
            let best = search(evidence, &page)?;
            let (first, last): (&Place, &Place) = (&page.places[best.first], &page.places[best.last]);
            Some(Self {
                start: (first.paragraph, first.characters.start),
                end: (last.paragraph, last.characters.end),
                bleu: best.bleu,
            })
        })
    }
}

/// An exact occurrence of the text as whole words in a paragraph.
pub(super) fn verbatim(text: &str, paragraphs: &[&str]) -> Option<Span> {
    let cut = |before: Option<char>, after: Option<char>| {
        !(before.is_some_and(char::is_alphanumeric) && after.is_some_and(char::is_alphanumeric))
    };
    for (number, paragraph) in (0u32..).zip(paragraphs) {
        for (at, _) in paragraph.match_indices(text) {
            let (before, after) = (&paragraph[..at], &paragraph[at + text.len()..]);
            if cut(before.chars().next_back(), text.chars().next())
                && cut(text.chars().next_back(), after.chars().next())
            {
                let start = before.chars().count();
                let end = start + text.chars().count();
                return Some(Span { start: (number, start), end: (number, end), bleu: 1.0 });
            }
        }
    }
    None
}

/// The first and last word of a span, by index, and its BLEU.
struct Best {
    bleu: f64,
    first: usize,
    last: usize,
}

/// Finds the best span in the order of [`Span::best`].
///
/// A span of r words, h of them in the evidence, has a BLEU of at most exp(1 - r/h). So a known BLEU limits
/// the lengths. Spans of such lengths from one start have at most the matches of the longest one. Starts are
/// processed by that bound, best first, until no start can have a better span.
fn search(evidence: &Evidence, page: &Page) -> Option<Best> {
    let words = page.places.len();
    let mut tally = Tally::new(evidence, page);
    // A lower bound: the best span with the length of the evidence.
    let width = evidence.length.min(words);
    let mut floor = 0.0f64;
    slide(&mut tally, words, width, |tally| {
        if tally.span().len() == width {
            floor = floor.max(evidence.bleu(tally.matches(), width));
        }
    });
    if floor == 0.0 {
        // Each n-gram of the highest order is in one of these spans.
        return None;
    }
    let mut starts: Vec<(f64, usize)> = Vec::new();
    slide(&mut tally, words, longest(evidence, floor), |tally| {
        let first = tally.span().start;
        // A span that starts with a foreign word is no better than without that word.
        if page.is_known(first) {
            let bound = evidence.bleu(tally.matches(), 0);
            if bound >= floor * (1.0 - SLACK) {
                starts.push((bound, first));
            }
        }
    });
    starts.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut best: Option<Best> = None;
    for (bound, first) in starts {
        let least = best.as_ref().map_or(floor, |best| best.bleu.max(floor));
        if bound < least * (1.0 - SLACK) {
            break;
        }
        tally.restart(first);
        for last in first..words.min(first + longest(evidence, least)) {
            // A longer span without another match is no better.
            if !tally.grow() {
                continue;
            }
            let bleu = evidence.bleu(tally.matches(), last + 1 - first);
            let better = best.as_ref().is_none_or(|known| {
                let order = bleu.total_cmp(&known.bleu);
                let shorter = (last - first, first).cmp(&(known.last - known.first, known.first));
                order.then(shorter.reverse()).is_gt()
            });
            if bleu > 0.0 && better {
                best = Some(Best { bleu, first, last });
            }
        }
    }
    best
}

/// The number of words of the longest span that can reach a BLEU.
fn longest(evidence: &Evidence, bleu: f64) -> usize {
    let length = evidence.length as f64;
    (length * (1.0 - bleu.ln()) + SLACK * length) as usize + 1
}

/// Calls `at` with the span of `width` words (fewer at the end) from each word on.
fn slide(tally: &mut Tally<'_>, words: usize, width: usize, mut at: impl FnMut(&Tally<'_>)) {
    tally.restart(0);
    for start in 0..words {
        while tally.span().end < words.min(start + width) {
            tally.grow();
        }
        at(tally);
        tally.shrink();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn best(evidence: &str, paragraphs: &[&str]) -> Option<Span> {
        Span::best(&Evidence::new(evidence).unwrap(), evidence, paragraphs)
    }

    /// A span's text, with paragraphs joined by `|`.
    fn text(span: &Span, paragraphs: &[&str]) -> String {
        let part = |number: u32| {
            let text: Vec<char> = paragraphs[number as usize].chars().collect();
            let start = if number == span.start.0 { span.start.1 } else { 0 };
            let end = if number == span.end.0 { span.end.1 } else { text.len() };
            text[start..end].iter().collect::<String>()
        };
        (span.start.0..=span.end.0).map(part).collect::<Vec<_>>().join("|")
    }

    /// BLEU by its definition, from n-gram sets of these words.
    fn slow(own: &[&str], span: &[&str]) -> f64 {
        let orders = own.len().min(4);
        let mut product = 1.0;
        for order in 1..=orders {
            let grams = |words: &[&str]| {
                let mut counts: HashMap<String, u32> = HashMap::new();
                words.windows(order).for_each(|gram| *counts.entry(gram.join(" ")).or_default() += 1);
                counts
            };
            let reference = grams(span);
            let matched = |(gram, count): (&String, &u32)| {
                f64::from((*count).min(reference.get(gram).copied().unwrap_or(0)))
            };
            product *= grams(own).iter().map(matched).sum::<f64>() / (own.len() + 1 - order) as f64;
        }
        let brevity =
            if own.len() > span.len() { 1.0 } else { (1.0 - span.len() as f64 / own.len() as f64).exp() };
        product.powf(1.0 / orders as f64) * brevity
    }

    /// The best of all windows of a page's words: its length, start and BLEU.
    fn naive(own: &[&str], page: &[&str]) -> Option<(usize, usize, f64)> {
        let mut best: Option<(usize, usize, f64)> = None;
        for first in 0..page.len() {
            for last in first..page.len() {
                let bleu = slow(own, &page[first..=last]);
                let better = best.is_none_or(|(known_first, known_last, known)| {
                    let near = (bleu - known).abs() < 1e-12;
                    if near { last - first < known_last - known_first } else { bleu > known }
                });
                if bleu > 0.0 && better {
                    best = Some((first, last, bleu));
                }
            }
        }
        best
    }

    #[test]
    fn the_span_is_that_of_all_windows_of_the_page() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let vocabulary = ["a", "b", "c", "d", "e"];
        let (mut found, mut across) = (0, 0);
        for round in 0..1500 {
            let kinds = rng.random_range(2..=4);
            let mut draw = |least: usize, most: usize, kinds: usize| -> Vec<&str> {
                (0..rng.random_range(least..=most)).map(|_| vocabulary[rng.random_range(0..kinds)]).collect()
            };
            let own = draw(1, 9, kinds);
            let page: Vec<Vec<&str>> = (0..1 + round % 4).map(|_| draw(0, 12, kinds + 1)).collect();
            let paragraphs: Vec<String> = page.iter().map(|words| words.join(" ")).collect();
            let paragraphs: Vec<&str> = paragraphs.iter().map(String::as_str).collect();
            let places: Vec<(u32, usize)> = (0u32..)
                .zip(&page)
                .flat_map(|(number, words)| (0..words.len()).map(move |at| (number, 2 * at)))
                .collect();
            let expected = naive(&own, &page.concat());
            let evidence = Evidence::new(&own.join(" ")).unwrap();
            // Without and with the shortcut for an exact occurrence.
            let read = evidence.read(paragraphs.iter().copied());
            let searched = search(&evidence, &read);
            assert_eq!(
                searched.as_ref().map(|it| (it.first, it.last)),
                expected.map(|it| (it.0, it.1)),
                "{own:?} {page:?}"
            );
            let span = best(&own.join(" "), &paragraphs);
            assert_eq!(span.is_some(), expected.is_some());
            let (Some(span), Some((first, last, bleu))) = (span, expected) else { continue };
            found += 1;
            assert!((span.bleu - bleu).abs() < 1e-12, "{own:?} {page:?}: {} {bleu}", span.bleu);
            if bleu < 1.0 {
                let end = (places[last].0, places[last].1 + 1);
                assert_eq!((span.start, span.end), (places[first], end), "{own:?} {page:?}");
            }
            across += usize::from(span.start.0 != span.end.0);
        }
        assert!(found > 300 && across > 50, "{found} {across}");
    }

    #[test]
    fn the_whole_page_is_scanned_and_spans_cross_paragraphs() {
        let paragraphs =
            ["A title", "red house near a lake", "the red house", "near the wide river stands", "red house"];
        let span = best("The red house near the river", &paragraphs).unwrap();
        assert_eq!(text(&span, &paragraphs), "the red house|near the");
        assert_eq!((span.start, span.end), ((2, 0), (3, 8)));
        // The paragraphs with the most shared words are not the best.
        let mut many: Vec<&str> = vec!["river old wide the red a house near"; 6];
        many.push("q q q q q q q q q q q q the red house stands q");
        let span = best("the red house stands near the old wide river", &many).unwrap();
        assert_eq!((span.start.0, text(&span, &many).as_str()), (6, "the red house stands"));
    }

    #[test]
    fn texts_in_the_page_are_found_whole() {
        let page = ["It rained. Ann Lund (born 1920) was a Norwegian singer, and more. Ann sang."];
        let span = best("Ann Lund ( born 1920 ) was a Norwegian singer .", &page).unwrap();
        assert_eq!(
            (text(&span, &page).as_str(), span.bleu),
            ("Ann Lund (born 1920) was a Norwegian singer", 1.0)
        );
        let span = best("a Norwegian singer, and more.", &page).unwrap();
        assert_eq!(text(&span, &page), "a Norwegian singer, and more.");
        assert_eq!(text(&best("ANN", &["so Ann, Ann and Ann"]).unwrap(), &["so Ann, Ann and Ann"]), "Ann");
    }

    #[test]
    fn a_part_of_a_word_is_not_the_text() {
        let page = ["Annapolis is old.", "So is Ann."];
        let span = best("Ann", &page).unwrap();
        assert_eq!((span.start, span.end), ((1, 6), (1, 9)));
        assert!(best("old is", &["bold island"]).is_none());
        assert!(best("a", &["b c"]).is_none());
        assert!(best("a", &[]).is_none());
    }
}
