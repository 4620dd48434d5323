//! How well entities fit a text, by the words of their descriptions.

use rustc_hash::{FxHashMap, FxHashSet};
use unicode_segmentation::UnicodeSegmentation;

use super::table::{AliasTable, normal_form};

/// The largest number of entities retrieved by a name's words in descriptions.
const DESCRIBED: usize = 50;
/// Added to the length of a description's vector, so that short descriptions have low scores.
const SMOOTHING: f32 = 0.3;

/// tf-idf vectors of descriptions.
pub(super) struct Descriptions {
    numbers: FxHashMap<String, u32>,
    weights: Vec<f32>,
    /// For each entity the words of its description that are not in its names, by word id.
    vectors: Vec<Vec<(u32, f32)>>,
    /// For each word the entities with that word in description or name.
    with: Vec<Vec<u32>>,
}

/// A text's words with their weights.
pub(super) struct TextWords(FxHashMap<u32, f32>);

impl Descriptions {
    pub(super) fn new(table: &AliasTable) -> Self {
        let entities = table.entities();
        let mut named: Vec<FxHashSet<&str>> = vec![FxHashSet::default(); entities.len()];
        for (name, at) in table.names_of_entities() {
            named[at as usize].extend(name.split(' '));
        }
        let mut numbers: FxHashMap<String, u32> = FxHashMap::default();
        let mut with: Vec<Vec<u32>> = Vec::new();
        let mut counts: Vec<FxHashMap<u32, u32>> = Vec::with_capacity(entities.len());
        for (at, entity) in entities.iter().enumerate() {
            let mut count: FxHashMap<u32, u32> = FxHashMap::default();
            for word in words(&entity.label).chain(words(&entity.description)) {
                let number = *numbers.entry(word).or_insert_with(|| {
                    with.push(Vec::new());
                    with.len() as u32 - 1
                });
                *count.entry(number).or_default() += 1;
            }
            count.keys().for_each(|word| with[*word as usize].push(at as u32));
            counts.push(count);
        }
        let all = entities.len() as f32;
        let weights: Vec<f32> =
            with.iter().map(|entities| (1.0 + all / (entities.len() as f32 + 0.5)).ln()).collect();
        let mut spelled: Vec<&str> = vec![""; numbers.len()];
        numbers.iter().for_each(|(word, number)| spelled[*number as usize] = word);
        let vector = |(count, named): (FxHashMap<u32, u32>, FxHashSet<&str>)| {
            let mut vector: Vec<(u32, f32)> =
                count.iter().map(|(word, count)| (*word, weight(&weights, *word, *count))).collect();
            vector.sort_unstable_by_key(|(word, _)| *word);
            let whole = length(vector.iter().map(|(_, value)| *value));
            // Words of the entity's names are matched elsewhere.
            vector.retain(|(word, _)| !named.contains(spelled[*word as usize]));
            let length = length(vector.iter().map(|(_, value)| *value)) + SMOOTHING * whole;
            vector.iter_mut().for_each(|(_, value)| *value /= length);
            vector
        };
        let vectors = counts.into_iter().zip(named).map(vector).collect();
        Self { numbers, weights, vectors, with }
    }

    /// The words of a text that occur in descriptions.
    pub(super) fn read(&self, text: &str) -> TextWords {
        let mut counts: FxHashMap<u32, u32> = FxHashMap::default();
        for number in words(text).filter_map(|word| self.numbers.get(&word).copied()) {
            *counts.entry(number).or_default() += 1;
        }
        let mut vector: Vec<(u32, f32)> =
            counts.into_iter().map(|(word, count)| (word, weight(&self.weights, word, count))).collect();
        // A fixed order, because floating-point sums depend on it.
        vector.sort_unstable_by_key(|(word, _)| *word);
        let length = length(vector.iter().map(|(_, value)| *value)).max(f32::MIN_POSITIVE);
        TextWords(vector.into_iter().map(|(word, value)| (word, value / length)).collect())
    }

    /// The cosine of the tf-idf vectors of an entity's description and a text, slightly lower for short
    /// descriptions; 0 to 1.
    pub(super) fn fit(&self, entity: u32, text: &TextWords) -> f32 {
        let vector = &self.vectors[entity as usize];
        vector.iter().filter_map(|(word, value)| Some(value * text.0.get(word)?)).sum()
    }

    /// The entities whose descriptions contain words of a name, with the covered share of the words' weights,
    /// greatest first.
    pub(super) fn described_by(&self, name: &str) -> Vec<(u32, f32)> {
        let mut shares: FxHashMap<u32, f32> = FxHashMap::default();
        let mut all = 0.0;
        for spelling in words(name).collect::<std::collections::BTreeSet<_>>() {
            let Some(&word) = self.numbers.get(&spelling) else {
                all += (1.0 + 2.0 * self.vectors.len() as f32).ln();
                continue;
            };
            let weight = self.weights[word as usize];
            all += weight;
            for entity in &self.with[word as usize] {
                *shares.entry(*entity).or_default() += weight;
            }
        }
        let mut found: Vec<(u32, f32)> = shares.into_iter().map(|(at, share)| (at, share / all)).collect();
        found.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        found.truncate(DESCRIBED);
        found
    }
}

fn weight(weights: &[f32], word: u32, count: u32) -> f32 {
    (1.0 + (count as f32).ln()) * weights[word as usize]
}

fn length(values: impl Iterator<Item = f32>) -> f32 {
    values.map(|value| value * value).sum::<f32>().sqrt()
}

/// Words in normal form.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.unicode_words().flat_map(|word| normal_form(word).split(' ').map(str::to_owned).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::{super::table::tests::table, *};

    #[test]
    fn the_entity_fits_whose_description_shares_words_with_the_text() {
        let table = table();
        let descriptions = Descriptions::new(&table);
        let text = descriptions.read("Paris, a son of king Priam, left Troy.");
        let fit = |id: &str| {
            let at = table.entities().iter().position(|entity| entity.id == id).unwrap();
            descriptions.fit(at as u32, &text)
        };
        assert!(fit("Q167646") > 0.5);
        assert!(fit("Q90") < 0.3);
        // It has no description.
        assert_eq!(fit("Q1"), 0.0);
    }

    #[test]
    fn a_description_is_similar_to_texts_about_its_entity() {
        let table = table();
        let found = Descriptions::new(&table).described_by("king of Troy");
        assert_eq!(table.entities()[found[0].0 as usize].id, "Q167646");
        assert!((found[0].1 - 1.0).abs() < 1e-6);
    }
}
