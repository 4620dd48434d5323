//! The matching networks that NSMN's authors released, as selectors and verifiers.

use std::path::Path;

use crate::{
    Result,
    verifier::nsmn::{ReleasedNsmn, WordPair, treebank_words},
};

use super::{Labeller, Piece, Reading};

/// The separator between a page's title and its sentence.
const TITLE_ENDS: &str = "<t>";

/// The words of a text that the page selection network reads: those for ELMo, and those for the matching.
const PAGE_LENGTHS: (usize, usize) = (180, 160);

/// A released matching network. Its words are those of the Penn Treebank's tokenization.
pub struct ReleasedMatcher {
    network: ReleasedNsmn,
    /// Whether it selects pages.
    of_pages: bool,
    batch_tokens: usize,
}

impl ReleasedMatcher {
    /// Loads a folder that `sporran models import` wrote.
    ///
    /// # Errors
    /// Where a file is missing or wrong.
    pub fn load(folder: &Path, batch_tokens: usize) -> Result<Self> {
        Ok(Self { network: ReleasedNsmn::load(folder)?, of_pages: false, batch_tokens })
    }

    /// Loads such a folder of the network that selects pages.
    ///
    /// # Errors
    /// Where a file is missing or wrong.
    pub fn for_pages(folder: &Path, batch_tokens: usize) -> Result<Self> {
        let (read_length, max_length) = PAGE_LENGTHS;
        let network = ReleasedNsmn::load(folder)?.with_lengths(read_length, max_length);
        Ok(Self { network, of_pages: true, batch_tokens })
    }

    /// Whether a piece gets its page's title before it. The first sentence of a page never does. For a selector, every piece
    /// does that does not contain the title. For a verifier, the first piece of each page does.
    fn is_titled(&self, piece: &Piece<'_>, before: Option<&Piece<'_>>) -> bool {
        if piece.unit.begins {
            return false;
        }
        match self.network.config().labels.len() {
            2 => !piece.unit.text.to_lowercase().contains(&piece.passage.title.to_lowercase()),
            _ => before.is_none_or(|before| before.passage.page_id != piece.passage.page_id),
        }
    }

    fn words(&self, reading: &Reading<'_>, titles: bool) -> WordPair {
        if self.of_pages {
            return page_words(reading);
        }
        let mut pieces = reading.pieces.clone();
        // Sentences are read in the order of their pages.
        pieces.sort_by_key(|piece| (&piece.passage.title, piece.passage.id, piece.unit.number));
        let mut words = WordPair { second: treebank_words(reading.claim), ..WordPair::default() };
        for (at, piece) in pieces.iter().enumerate() {
            let before = at.checked_sub(1).map(|before| &pieces[before]);
            if titles && self.is_titled(piece, before) {
                words.first.extend(treebank_words(&piece.passage.title));
                words.first.push(TITLE_ENDS.into());
            }
            words.first.extend(treebank_words(&piece.unit.text));
            words.relevance.resize(words.first.len(), piece.relevance);
        }
        words
    }
}

/// A claim and the text of a page. The page selection network takes the claim as its first text.
fn page_words(reading: &Reading<'_>) -> WordPair {
    let first = treebank_words(reading.claim);
    let page =
        |piece: &Piece<'_>| [treebank_words(&piece.passage.title), treebank_words(&piece.unit.text)].concat();
    WordPair {
        relevance: vec![1.0; first.len()],
        first,
        second: reading.pieces.iter().flat_map(page).collect(),
    }
}

impl Labeller for ReleasedMatcher {
    fn labels(&self) -> &[String] {
        &self.network.config().labels
    }

    fn logits(&self, pairs: &[(&str, &str)]) -> Result<Vec<Vec<f32>>> {
        let words = |(claim, evidence): &(&str, &str)| {
            let first = treebank_words(evidence);
            WordPair { relevance: vec![1.0; first.len()], first, second: treebank_words(claim) }
        };
        let pairs: Vec<WordPair> = pairs.iter().map(words).collect();
        Ok(self.network.logits(&pairs, self.batch_tokens)?)
    }

    fn read(&self, readings: &[Reading<'_>], titles: bool) -> Result<Vec<Vec<f32>>> {
        let pairs: Vec<WordPair> = readings.iter().map(|reading| self.words(reading, titles)).collect();
        Ok(self.network.logits(&pairs, self.batch_tokens)?)
    }
}

#[cfg(test)]
mod tests {
    use crate::verifier::nsmn::import_nsmn;
    use sporran_kilt::Passage;

    use super::*;
    use crate::{Unit, by_dataset::tests::passage};

    /// The input of a network for these pieces: page, title, whether its page begins with it, and the sentence.
    fn read(name: &str, titles: bool, pieces: &[(u32, &str, bool, &str)]) -> String {
        let words = words(name, titles, pieces, ReleasedMatcher::load);
        assert_eq!(words.second.join(" "), CLAIM);
        assert_eq!(words.relevance, vec![0.5; words.first.len()]);
        words.first.join(" ")
    }

    /// The claim's words.
    const CLAIM: &str = "It is n't so .";

    fn words(
        name: &str,
        titles: bool,
        pieces: &[(u32, &str, bool, &str)],
        load: fn(&Path, usize) -> Result<ReleasedMatcher>,
    ) -> WordPair {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nsmn").join(name);
        let folder = tempfile::TempDir::new().unwrap();
        let into = folder.path().join("imported");
        import_nsmn(&data, &into).unwrap();
        let matcher = load(&into, 100).unwrap();
        let passages: Vec<Passage> = pieces
            .iter()
            .map(|(page, title, ..)| Passage {
                title: (*title).into(),
                page_id: page.to_string(),
                ..passage(*page)
            })
            .collect();
        let units: Vec<Unit> = pieces
            .iter()
            .enumerate()
            .map(|(at, (_, _, begins, text))| Unit {
                passage: at,
                number: at,
                begins: *begins,
                text: (*text).into(),
            })
            .collect();
        let with = |(passage, unit)| Piece { passage, unit, relevance: 0.5 };
        let reading =
            Reading { claim: "It isn't so.", pieces: passages.iter().zip(&units).map(with).collect() };
        let words = matcher.words(&reading, titles);
        let logits = matcher.read(&[reading], titles).unwrap();
        assert_eq!(logits[0].len(), matcher.labels().len());
        words
    }

    #[test]
    fn a_selector_reads_titles_that_a_sentence_does_not_name() {
        let of = |begins, text| read("selector", true, &[(1, "Dr. No (film)", begins, text)]);
        assert_eq!(of(false, "It was shot."), "Dr. No ( film ) <t> It was shot .");
        assert_eq!(of(true, "It was shot."), "It was shot .");
        assert_eq!(of(false, "The makers of dr. no (film) met."), "The makers of dr. no ( film ) met .");
        assert_eq!(read("selector", false, &[(1, "Dr. No", false, "It was shot.")]), "It was shot .");
    }

    #[test]
    fn a_selector_of_pages_reads_the_claim_before_a_title_and_what_its_page_begins_with() {
        let page = [(1, "Dr. No (film)", true, "Dr. No was shot.")];
        let words = words("selector", true, &page, ReleasedMatcher::for_pages);
        assert_eq!(words.first.join(" "), CLAIM);
        assert_eq!(words.second.join(" "), "Dr. No ( film ) Dr. No was shot .");
        assert_eq!(words.relevance, [1.0; 5]);
    }

    #[test]
    fn a_verifier_reads_sentences_in_page_order_after_one_title_per_page() {
        let pieces = [
            (2, "Zoo", false, "Late."),
            (1, "Ark", true, "It begins."),
            (1, "Ark", false, "An ark ends."),
            (2, "Zoo", false, "Later."),
        ];
        assert_eq!(read("verifier", true, &pieces), "It begins . An ark ends . Zoo <t> Late . Later .");
        assert_eq!(read("verifier", true, &[]), "");
    }
}
