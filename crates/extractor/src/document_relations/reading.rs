//! DocRED documents as encoder inputs and as training examples.

use rustc_hash::{FxHashMap, FxHashSet};
use sporran_checkpoint::Tokenizer;
use sporran_kilt::docred::{self, Document};
use sporran_transformers::{EncoderRow, StatePair, WordInput};

use super::{
    entity_head::EntityDocument,
    features::{KIND_COUNT, features, kind},
    objective::EntityExample,
};
use crate::error::{Error, Result};

/// The number of marker tokens, unused tokens of BERT's vocabulary: one before mentions of each type, one
/// after mentions.
pub const MARKERS: usize = KIND_COUNT + 1;

/// The smallest overlap of two windows in tokens.
const OVERLAP: usize = 64;

/// Tokenizes documents with markers around their mentions.
#[derive(Debug)]
pub struct DocumentReader {
    input: WordInput,
    /// The markers by type; the last one follows each mention.
    markers: Vec<u32>,
    /// Tokens of a window without special tokens.
    window: usize,
}

impl DocumentReader {
    /// Tokenizes with `tokenizer`, in windows of at most `max_tokens` tokens. `markers` are [`MARKERS`] of
    /// its tokens.
    ///
    /// # Errors
    /// [`Error::Model`] if the tokenizer lacks a marker or windows are too small for an overlap; errors of
    /// [`WordInput::new`].
    pub fn new(tokenizer: Tokenizer, markers: &[String], max_tokens: usize) -> Result<Self> {
        let id = |token: &String| {
            tokenizer.token_id(token).ok_or_else(|| Error::Model {
                what: "the tokenizer".into(),
                expected: format!("a token `{token}` to mark mentions"),
                found: "none".into(),
            })
        };
        let markers: Vec<u32> = markers.iter().map(id).collect::<Result<_>>()?;
        if markers.len() != MARKERS || max_tokens < 2 * OVERLAP {
            return Err(Error::Model {
                what: "a reader of documents".into(),
                expected: format!("{MARKERS} markers, and windows of at least {} tokens", 2 * OVERLAP),
                found: format!("{} markers, and windows of {max_tokens}", markers.len()),
            });
        }
        Ok(Self { input: WordInput::new(tokenizer, max_tokens, false)?, markers, window: max_tokens - 2 })
    }

    /// The marker tokens of BERT's vocabulary.
    #[must_use]
    pub fn default_markers() -> Vec<String> {
        (1..=MARKERS).map(|at| format!("[unused{at}]")).collect()
    }

    /// A document with all pairs of its entities. A mention is represented by the marker before it.
    ///
    /// # Errors
    /// A word that cannot be tokenized.
    pub fn read(&self, document: &Document) -> Result<EntityDocument> {
        let mut starts: FxHashMap<(usize, usize), Vec<(usize, usize)>> = FxHashMap::default();
        let mut ends: FxHashMap<(usize, usize), usize> = FxHashMap::default();
        for (entity, mentions) in document.entities.iter().enumerate() {
            for (at, mention) in mentions.iter().enumerate() {
                starts.entry((mention.sentence, mention.tokens.0)).or_default().push((entity, at));
                *ends.entry((mention.sentence, mention.tokens.1)).or_default() += 1;
            }
        }
        let (mut tokens, mut sentences) = (Vec::new(), Vec::new());
        let mut entities: Vec<Vec<usize>> = vec![Vec::new(); document.entities.len()];
        for (sentence, words) in document.sentences.iter().enumerate() {
            for at in 0..=words.len() {
                let closed = ends.get(&(sentence, at)).copied().unwrap_or(0);
                tokens.extend(std::iter::repeat_n(self.markers[KIND_COUNT], closed));
                for &(entity, mention) in starts.get(&(sentence, at)).into_iter().flatten() {
                    entities[entity].push(tokens.len());
                    tokens.push(self.markers[kind(&document.entities[entity][mention].kind)]);
                }
                if let Some(word) = words.get(at) {
                    tokens.extend(self.input.pieces(word)?);
                }
            }
            sentences.resize(tokens.len(), sentence);
        }
        let count = document.entities.len();
        let pairs = (0..count).flat_map(|first| (0..count).map(move |second| (first, second)));
        let pairs = pairs.filter(|(first, second)| first != second).map(|(first, second)| StatePair {
            first: first as u32,
            second: second as u32,
            features: features(document, first, second),
        });
        let (rows, places) = self.windows(&tokens);
        Ok(EntityDocument { rows, places, sentences, entities, pairs: pairs.collect() })
    }

    /// Windows over tokens, and for each token its position in the window with the most context around it.
    fn windows(&self, tokens: &[u32]) -> (Vec<EncoderRow>, Vec<usize>) {
        let (first, last) = self.input.around();
        let rest = tokens.len().saturating_sub(self.window);
        let count = 1 + rest.div_ceil(self.window - OVERLAP);
        let starts: Vec<usize> =
            (0..count).map(|at| (at * rest).checked_div(count - 1).unwrap_or(0)).collect();
        let mut rows = Vec::with_capacity(count);
        let mut offsets = Vec::with_capacity(count);
        let mut offset = 0;
        for start in &starts {
            let own = &tokens[*start..tokens.len().min(start + self.window)];
            let ids: Vec<u32> = std::iter::once(first).chain(own.iter().copied()).chain([last]).collect();
            offsets.push(offset);
            offset += ids.len();
            rows.push(EncoderRow { types: vec![0; ids.len()], ids });
        }
        let place = |token: usize| {
            let around = |at: &usize| {
                let start = starts[*at];
                let end = tokens.len().min(start + self.window);
                // The ends of the document need no context.
                let before = if start == 0 { usize::MAX } else { token - start };
                let after = if end == tokens.len() { usize::MAX } else { end - 1 - token };
                before.min(after)
            };
            let holds = |at: &usize| (starts[*at]..starts[*at] + self.window).contains(&token);
            let best = (0..count).filter(holds).max_by_key(around).unwrap_or(0);
            offsets[best] + 1 + token - starts[best]
        };
        let places = (0..tokens.len()).map(place).collect();
        (rows, places)
    }
}

/// The property labels of documents' relations, sorted.
#[must_use]
pub fn labels(documents: &[Document]) -> Vec<String> {
    let all: FxHashSet<&str> = documents
        .iter()
        .flat_map(|document| &document.relations)
        .map(|found| found.property.as_str())
        .collect();
    let mut labels: Vec<String> = all.into_iter().map(Into::into).collect();
    labels.sort_unstable();
    labels
}

/// A training example: the document's relations among `labels`, and their evidence.
#[must_use]
pub fn example(document: EntityDocument, relations: &[docred::Relation], labels: &[String]) -> EntityExample {
    let pairs: FxHashMap<(u32, u32), usize> =
        document.pairs.iter().enumerate().map(|(at, pair)| ((pair.first, pair.second), at)).collect();
    let (mut holds, mut evidence) = (Vec::new(), Vec::new());
    let sentences = document.sentence_count();
    for relation in relations {
        let Some(&pair) = pairs.get(&(relation.head as u32, relation.tail as u32)) else { continue };
        if let Ok(label) = labels.binary_search(&relation.property) {
            holds.push((pair, label));
        }
        evidence.extend(relation.evidence.iter().filter(|at| **at < sentences).map(|at| (pair, *at)));
    }
    for numbers in [&mut holds, &mut evidence] {
        numbers.sort_unstable();
        numbers.dedup();
    }
    EntityExample { document, holds, evidence }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Words that are known, and the markers from 10 on.
    pub(in crate::document_relations) fn tokenizer() -> Tokenizer {
        let mut vocabulary = serde_json::Map::new();
        let words = ["?", "<", ">", "ann", "met", "bob", "in", "rome", "he", "."].map(String::from);
        for (id, token) in words.into_iter().chain(DocumentReader::default_markers()).enumerate() {
            vocabulary.insert(token, id.into());
        }
        let special =
            |token: &str, id: usize| serde_json::json!({"id": token, "ids": [id], "tokens": [token]});
        let json = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "decoder": null, "added_tokens": [],
            "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                    {"SpecialToken": {"id": ">", "type_id": 0}}],
                "pair": [], "special_tokens": {"<": special("<", 1), ">": special(">", 2)}},
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "?"}});
        Tokenizer::from_json(std::path::Path::new("tokenizer.json"), json.to_string()).unwrap()
    }

    pub(in crate::document_relations) fn reader(max_tokens: usize) -> DocumentReader {
        DocumentReader::new(tokenizer(), &DocumentReader::default_markers(), max_tokens).unwrap()
    }

    /// `Ann met Bob . He met Ann in Rome .`, with Ann named twice and Bob once by a name that ends where nothing else begins.
    pub(in crate::document_relations) fn document() -> Document {
        serde_json::from_str(
            r#"{"title": "Ann", "sents": [["Ann", "met", "Bob", "."], ["He", "met", "Ann", "in", "Rome"]],
            "vertexSet": [
                [{"name": "Ann", "pos": [0, 1], "sent_id": 0, "type": "PER"}, {"name": "Ann", "pos": [2, 3], "sent_id": 1, "type": "PER"}],
                [{"name": "Bob", "pos": [2, 3], "sent_id": 0, "type": "PER"}],
                [{"name": "Rome", "pos": [4, 5], "sent_id": 1, "type": "LOC"}]],
            "labels": [{"h": 0, "t": 2, "r": "P19", "evidence": [1, 1]}, {"h": 1, "t": 0, "r": "P26", "evidence": []},
                {"h": 0, "t": 2, "r": "P20", "evidence": [0]}]}"#,
        )
        .unwrap()
    }

    #[test]
    fn mentions_are_marked_by_type_and_represent_their_entities() {
        let read = reader(128).read(&document()).unwrap();
        let ids = [1, 10, 3, 17, 4, 10, 5, 17, 9, 8, 4, 10, 3, 17, 6, 12, 7, 17, 2];
        assert_eq!(read.rows.len(), 1);
        assert_eq!(read.rows[0].ids, ids);
        assert_eq!(read.places, (1..=17).collect::<Vec<_>>());
        assert_eq!(read.entities, [vec![0, 10], vec![4], vec![14]]);
        assert_eq!(read.sentences.iter().filter(|sentence| **sentence == 0).count(), 8);
        assert_eq!(read.pairs.len(), 6);
    }

    #[test]
    fn a_long_document_is_read_in_windows_that_overlap() {
        let mut long = document();
        long.sentences = vec![vec!["met".to_owned(); 400]];
        for mention in long.entities.iter_mut().flatten() {
            mention.sentence = 0;
        }
        let read = reader(130).read(&long).unwrap();
        // 400 words and two markers for each of four mentions.
        assert_eq!(read.places.len(), 408);
        assert!(read.rows.iter().all(|row| row.ids.len() <= 130 && row.ids[0] == 1));
        assert_eq!(read.rows.len(), 1 + (408usize - 128).div_ceil(64));
        let all: Vec<u32> = read.rows.iter().flat_map(|row| row.ids.iter().copied()).collect();
        let whole: Vec<u32> = read.places.iter().map(|place| all[*place]).collect();
        let once = reader(512).read(&long).unwrap();
        assert_eq!(whole, once.rows[0].ids[1..409]);
        // Except at the document's ends, no token is read at the end of a window.
        let mut offset = 0;
        for row in &read.rows {
            let ends = [offset + 1, offset + row.ids.len() - 2];
            let inner = &read.places[10..398];
            assert!(ends.iter().all(|end| !inner.contains(end)));
            offset += row.ids.len();
        }
    }

    #[test]
    fn relations_and_their_evidence_become_numbers() {
        let document = document();
        let labels = labels(std::slice::from_ref(&document));
        assert_eq!(labels, ["P19", "P20", "P26"]);
        let read = reader(128).read(&document).unwrap();
        // Pairs 0-1, 0-2, 1-0 and so on.
        let made = example(read, &document.relations, &labels);
        assert_eq!(made.holds, [(1, 0), (1, 1), (2, 2)]);
        assert_eq!(made.evidence, [(1, 0), (1, 1)]);
    }

    #[test]
    fn a_tokenizer_without_the_markers_is_refused() {
        let markers: Vec<String> = (0..MARKERS).map(|at| format!("m{at}")).collect();
        let refused = DocumentReader::new(tokenizer(), &markers, 128).unwrap_err();
        assert!(refused.to_string().contains("`m0`"), "{refused}");
        let short = DocumentReader::new(tokenizer(), &DocumentReader::default_markers(), 100).unwrap_err();
        assert!(short.to_string().contains("at least 128"), "{short}");
    }
}
