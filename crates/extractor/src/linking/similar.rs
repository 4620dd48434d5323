//! Search for similar names: those that share words, or words with similar spelling.

use rustc_hash::FxHashMap;

/// A word in more names than this finds none on its own. It counts for names found by other words.
const COMMON: usize = 300;
/// The shortest word that is matched with other spellings.
const LETTERS: usize = 4;
/// The smallest similarity of two spellings: Dice's coefficient of their trigrams.
const ALIKE: f32 = 0.5;
/// The weight of a word with another spelling, relative to the exact word.
const RESPELLED: f32 = 0.9;
/// The smallest similarity of a name that contains all words of a shorter one.
const PART: f32 = 0.5;
/// The largest similarity of different names.
const MOST: f32 = 0.95;

struct Word {
    /// Its inverse document frequency.
    weight: f32,
    /// The names with this word, ascending.
    names: Vec<u32>,
    /// The number of its trigrams.
    trigrams: usize,
}

/// An index of names by their words and the trigrams of these.
pub(super) struct SimilarNames {
    names: Vec<(String, Vec<u32>)>,
    words: Vec<Word>,
    by_spelling: FxHashMap<String, u32>,
    by_trigram: FxHashMap<[char; 3], Vec<u32>>,
}

impl SimilarNames {
    /// Indexes names in normal form, each once.
    pub(super) fn new(mut names: Vec<String>) -> Self {
        names.sort_unstable();
        let mut by_spelling: FxHashMap<String, u32> = FxHashMap::default();
        let mut by_trigram: FxHashMap<[char; 3], Vec<u32>> = FxHashMap::default();
        let mut words: Vec<Word> = Vec::new();
        let mut known = Vec::with_capacity(names.len());
        for (at, name) in names.into_iter().enumerate() {
            let mut own: Vec<u32> = Vec::new();
            for spelling in name.split(' ') {
                let word = *by_spelling.entry(spelling.to_owned()).or_insert_with(|| {
                    let trigrams = trigrams(spelling);
                    let number = words.len() as u32;
                    words.push(Word { weight: 0.0, names: Vec::new(), trigrams: trigrams.len() });
                    for trigram in trigrams {
                        by_trigram.entry(trigram).or_default().push(number);
                    }
                    number
                });
                own.push(word);
            }
            own.sort_unstable();
            own.dedup();
            own.iter().for_each(|word| words[*word as usize].names.push(at as u32));
            known.push((name, own));
        }
        let count = known.len();
        for word in &mut words {
            word.weight = weight(count, word.names.len());
        }
        Self { names: known, words, by_spelling, by_trigram }
    }

    /// Similar names of a name in normal form, with similarities above 0 and below 1, in the order of names.
    /// The similarity is Dice's coefficient of the names' words, weighted by inverse document frequency.
    pub(super) fn find(&self, name: &str) -> Vec<(&str, f32)> {
        let mut spellings: Vec<&str> = name.split(' ').collect();
        spellings.sort_unstable();
        spellings.dedup();
        let weighted: Vec<(f32, FxHashMap<u32, f32>)> =
            spellings.iter().map(|spelling| self.alternatives(spelling)).collect();
        let all: f32 = weighted.iter().map(|(weight, _)| weight).sum();
        let mut found: Vec<u32> = weighted
            .iter()
            .flat_map(|(_, alternatives)| alternatives.keys())
            .map(|word| &self.words[*word as usize].names)
            .filter(|names| names.len() <= COMMON)
            .flatten()
            .copied()
            .collect();
        found.sort_unstable();
        found.dedup();
        let similarity = |own: &[u32]| {
            let shared = |(weight, alternatives): &(f32, FxHashMap<u32, f32>)| {
                let best = own.iter().filter_map(|word| alternatives.get(word)).copied().fold(0.0, f32::max);
                weight * best
            };
            let shared: f32 = weighted.iter().map(shared).sum();
            let of_name: f32 = own.iter().map(|word| self.words[*word as usize].weight).sum();
            let least = if shared > 0.999 * all { PART } else { 0.0 };
            (2.0 * shared / (all + of_name)).clamp(least, MOST)
        };
        found
            .into_iter()
            .map(|at| &self.names[at as usize])
            .filter(|(other, _)| other != name)
            .map(|(other, own)| (other.as_str(), similarity(own)))
            .collect()
    }

    /// A word's weight, and the known words that may match it, with their factors.
    fn alternatives(&self, spelling: &str) -> (f32, FxHashMap<u32, f32>) {
        let mut alternatives: FxHashMap<u32, f32> = FxHashMap::default();
        if spelling.chars().count() >= LETTERS {
            let trigrams = trigrams(spelling);
            let mut shared: FxHashMap<u32, usize> = FxHashMap::default();
            for word in trigrams.iter().filter_map(|trigram| self.by_trigram.get(trigram)).flatten() {
                *shared.entry(*word).or_default() += 1;
            }
            for (word, shared) in shared {
                let both = trigrams.len() + self.words[word as usize].trigrams;
                let alike = 2.0 * shared as f32 / both as f32;
                if alike >= ALIKE {
                    alternatives.insert(word, RESPELLED * alike);
                }
            }
        }
        match self.by_spelling.get(spelling) {
            Some(word) => {
                alternatives.insert(*word, 1.0);
                (self.words[*word as usize].weight, alternatives)
            }
            None => (weight(self.names.len(), 0), alternatives),
        }
    }
}

/// The inverse document frequency of a word in `with` of `all` names.
fn weight(all: usize, with: usize) -> f32 {
    (1.0 + all as f32 / (with as f32 + 0.5)).ln()
}

/// A word's distinct trigrams with blanks around it, sorted.
fn trigrams(word: &str) -> Vec<[char; 3]> {
    let padded: Vec<char> = [' ', ' '].into_iter().chain(word.chars()).chain([' ']).collect();
    let mut found: Vec<[char; 3]> = padded.windows(3).map(|three| [three[0], three[1], three[2]]).collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> SimilarNames {
        let names = ["steve jobs", "steve reich", "battle of jena auerstedt", "battle of hastings", "paris"];
        SimilarNames::new(names.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_part_of_a_name_finds_every_name_that_has_it() {
        let names = names();
        let found = names.find("jobs");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, "steve jobs");
        // Two of 5 names contain `steve`, one `jobs`. Their weights are ln(1 + 5 / 2.5) and ln(1 + 5 / 1.5).
        let (steve, jobs) = (3f32.ln(), (1.0 + 5.0 / 1.5f32).ln());
        assert!((found[0].1 - 2.0 * jobs / (2.0 * jobs + steve)).abs() < 1e-6);
        assert_eq!(
            names.find("steve").iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            ["steve jobs", "steve reich"]
        );
        assert!(names.find("steve").iter().all(|(_, similarity)| *similarity >= PART));
    }

    #[test]
    fn another_spelling_is_nearly_the_same() {
        let names = names();
        let found = names.find("battle of jena auerstadt");
        let of = |wanted: &str| {
            found.iter().find(|(name, _)| *name == wanted).map_or(0.0, |(_, similarity)| *similarity)
        };
        assert!(of("battle of jena auerstedt") > 0.8, "{found:?}");
        assert!(of("battle of hastings") < 0.5, "{found:?}");
    }

    #[test]
    fn a_name_is_not_similar_to_itself_or_to_unrelated_names() {
        assert!(names().find("paris").is_empty());
        assert!(names().find("zürich").is_empty());
    }
}
