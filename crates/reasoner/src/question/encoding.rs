//! A question with its document as encoder input, and the entities that the document names.

use std::ops::Range;

use rustc_hash::FxHashMap;
use sporran_checkpoint::Tokenizer;
use sporran_kilt::kb::{EntityId, KnowledgeBase, Part};
use sporran_transformers::EncoderRow;

use super::QuestionInput;
use crate::Result;

/// The name of a knowledge-base entity in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkedName {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
    /// The entity.
    pub entity: u32,
}

/// Finds the names of a knowledge base's entities in texts: the longest name first, case-sensitive. An
/// ambiguous name means the entity with the most triples.
#[derive(Clone, Debug)]
pub struct Linker {
    /// Names by their first word, the longest first.
    names: FxHashMap<String, Vec<(String, u32)>>,
}

impl Linker {
    /// A linker for all labels and aliases of three letters or more.
    pub fn new(kb: &KnowledgeBase) -> Self {
        let mut degree = vec![0usize; kb.entity_count()];
        for triple in kb.triples(Part::Train) {
            degree[triple.subject.index()] += 1;
            degree[triple.object.index()] += 1;
        }
        let mut best: FxHashMap<&str, u32> = FxHashMap::default();
        for entity in 0..kb.entity_count() as u32 {
            for name in kb.labels(EntityId(entity)).iter().filter(|name| name.chars().count() > 2) {
                let place = best.entry(name).or_insert(entity);
                if degree[entity as usize] > degree[*place as usize] {
                    *place = entity;
                }
            }
        }
        let mut names: FxHashMap<String, Vec<(String, u32)>> = FxHashMap::default();
        for (name, entity) in best {
            names.entry(first_word(name).to_owned()).or_default().push((name.to_owned(), entity));
        }
        for names in names.values_mut() {
            names.sort_unstable_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.cmp(b)));
        }
        Self { names }
    }

    /// The names in a text, in order of position, without overlaps.
    pub fn link(&self, text: &str) -> Vec<LinkedName> {
        let mut found: Vec<LinkedName> = Vec::new();
        let mut inside = false;
        let mut free = 0;
        for (start, character) in text.char_indices() {
            let begins = character.is_alphanumeric() && !inside;
            inside = character.is_alphanumeric();
            if !begins || start < free {
                continue;
            }
            let rest = &text[start..];
            let names = self.names.get(first_word(rest)).map_or(&[][..], Vec::as_slice);
            let whole = |name: &&(String, u32)| {
                rest.strip_prefix(name.0.as_str())
                    .is_some_and(|after| !after.chars().next().is_some_and(char::is_alphanumeric))
            };
            if let Some((name, entity)) = names.iter().find(whole) {
                free = start + name.len();
                found.push(LinkedName { start, end: free, entity: *entity });
            }
        }
        found
    }
}

/// The letters and digits at the start of a text.
fn first_word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default()
}

/// A question and its document as tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedQuestion {
    /// Question, then document.
    pub row: EncoderRow,
    /// The question's tokens in the row.
    pub question: Range<usize>,
    /// The names in the document, each with its first token.
    pub named: Vec<(usize, LinkedName)>,
    /// The question's entity, for models that it is given to.
    pub topic: Option<u32>,
}

/// Encodes questions and documents.
#[derive(Clone, Debug)]
pub struct QuestionReader {
    tokenizer: Tokenizer,
    /// The special tokens before and after a text.
    around: (Vec<u32>, Vec<u32>),
    max_tokens: usize,
}

impl QuestionReader {
    /// A reader that truncates documents, so that no row has more than `max_tokens`.
    ///
    /// # Errors
    /// Errors of the tokenizer on an empty text.
    pub fn new(tokenizer: Tokenizer, max_tokens: usize) -> Result<Self> {
        let special = tokenizer.encode("", None)?;
        let split = special.len().saturating_sub(1);
        let around = (special[..split].to_vec(), special[split..].to_vec());
        Ok(Self { tokenizer, around, max_tokens })
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Reads a question and its document. Names beyond the last token are dropped, but for those in the document's kept end.
    ///
    /// # Errors
    /// Errors of the tokenizer; [`Error::Argument`](crate::Error::Argument) for a kept end that does not begin at a character of the
    /// document.
    pub fn read(&self, input: &QuestionInput<'_>, linker: &Linker) -> Result<EncodedQuestion> {
        let (document, end) = input.document_parts()?;
        let (before, after) = &self.around;
        let mut ids = before.clone();
        ids.extend(self.tokenizer.encode_plain(input.question)?);
        let most = self.max_tokens.saturating_sub(2 * after.len()).max(before.len() + 1);
        ids.truncate(most);
        let span = before.len()..ids.len();
        ids.extend(after);
        let first = ids.len();
        let mut named = self.append(&mut ids, document, linker)?;
        let mut kept = Vec::new();
        let named_there = self.append(&mut kept, end, linker)?;
        ids.truncate(self.max_tokens.saturating_sub(after.len() + kept.len()).max(first));
        named.retain(|(token, _)| *token < ids.len());
        let (tokens, bytes) = (ids.len(), document.len());
        named.extend(named_there.into_iter().map(|(token, LinkedName { start, end, entity })| {
            (tokens + token, LinkedName { start: bytes + start, end: bytes + end, entity })
        }));
        ids.extend(kept);
        ids.truncate(self.max_tokens.saturating_sub(after.len()).max(first));
        named.retain(|(token, _)| *token < ids.len());
        ids.extend(after);
        let types = (0..ids.len()).map(|at| u32::from(at >= first)).collect();
        Ok(EncodedQuestion { row: EncoderRow { ids, types }, question: span, named, topic: None })
    }

    /// Appends the tokens of a text. Returns its names, each with its first token.
    fn append(&self, ids: &mut Vec<u32>, text: &str, linker: &Linker) -> Result<Vec<(usize, LinkedName)>> {
        let mut named = Vec::new();
        let mut at = 0;
        let piece = |ids: &mut Vec<u32>, text: &str| -> Result<()> {
            if !text.trim().is_empty() {
                ids.extend(self.tokenizer.encode_plain(text.trim())?);
            }
            Ok(())
        };
        for name in linker.link(text) {
            piece(ids, &text[at..name.start])?;
            named.push((ids.len(), name));
            piece(ids, &text[name.start..name.end])?;
            at = name.end;
        }
        piece(ids, &text[at..])?;
        Ok(named)
    }
}

#[cfg(test)]
mod tests {
    use sporran_kilt::kb::Triple;
    use sporran_training::{VocabularyOptions, train_vocabulary};

    use super::*;

    fn linker() -> Linker {
        let mut kb = KnowledgeBase::default();
        for (id, names) in
            [("Q1", &["New York"][..]), ("Q2", &["New York City", "NYC"]), ("Q3", &["NYC"]), ("Q4", &["of"])]
        {
            let entity = kb.add_entity(id).unwrap();
            names.iter().for_each(|name| kb.add_alias(entity, name));
        }
        kb.add_relation("P").unwrap();
        kb.add(Part::Train, Triple::new(2, 0, 0)).unwrap();
        Linker::new(&kb)
    }

    #[test]
    fn the_longest_name_and_the_most_frequent_entity_win() {
        let text = "New York City of New Yorkers, New York; NYC.";
        let found: Vec<(&str, u32)> =
            linker().link(text).iter().map(|name| (&text[name.start..name.end], name.entity)).collect();
        assert_eq!(found, [("New York City", 1), ("New York", 0), ("NYC", 2)]);
    }

    #[test]
    fn an_encoded_question_marks_its_question_and_names_and_is_truncated() {
        let texts = ["Where is the town?", "They live in New York City now."];
        let options = VocabularyOptions { size: 300, min_frequency: 1, marks: vec![] };
        let tokenizer = train_vocabulary(texts.iter(), &options).unwrap();
        let json = tokenizer.to_string(false).unwrap();
        let tokenizer = Tokenizer::from_json(std::path::Path::new("t"), json).unwrap();
        let reader = QuestionReader::new(tokenizer.clone(), 200).unwrap();
        let asked = QuestionInput { question: texts[0], document: texts[1], kept: 0, topics: &[] };
        let input = reader.read(&asked, &linker()).unwrap();
        assert_eq!(tokenizer.decode(&input.row.ids[input.question.clone()]).unwrap(), texts[0]);
        let [(token, name)] = input.named[..] else { panic!("{input:?}") };
        assert!(tokenizer.decode(&input.row.ids[token..]).unwrap().starts_with("New York City now."));
        assert_eq!((name.entity, input.row.types[token], input.row.types[0]), (1, 1, 0));
        // Truncated before the name.
        let short = QuestionReader::new(tokenizer.clone(), token).unwrap().read(&asked, &linker()).unwrap();
        assert_eq!((short.row.ids.len(), short.named.len()), (token, 0));
        assert_eq!(short.row.ids[..token - 1], input.row.ids[..token - 1]);
        // A kept end stays with its name, and the text before it is cut.
        let kept = QuestionInput { kept: " in New York City now.".len(), ..asked };
        let whole = reader.read(&kept, &linker()).unwrap();
        assert_eq!(whole, input);
        let most = input.row.ids.len() - 1;
        let cut = QuestionReader::new(tokenizer.clone(), most).unwrap().read(&kept, &linker()).unwrap();
        let [(token, name)] = cut.named[..] else { panic!("{cut:?}") };
        assert_eq!((cut.row.ids.len(), name, cut.row.types.len()), (most, input.named[0].1, most));
        let text = tokenizer.decode(&cut.row.ids[token..]).unwrap();
        assert!(text.starts_with("New York City now."), "{text}");
        assert!(reader.read(&QuestionInput { kept: 99, ..asked }, &linker()).is_err());
    }
}
