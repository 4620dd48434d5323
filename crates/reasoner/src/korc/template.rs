//! Question templates: one to four a relation.

use std::{collections::BTreeMap, path::Path};

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;
use sporran_kilt::{
    Error as FileError, jsonl,
    kb::{KnowledgeBase, RelationId},
};

use crate::Result;

/// The placeholder of the entity in a template.
const PLACE: &str = "{}";

/// Templates by relation. A relation without templates gets questions from its label and aliases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Templates(BTreeMap<String, Vec<String>>);

impl Templates {
    /// Reads a JSON object from relations to one to four questions, each with one `{}` for the entity.
    ///
    /// # Errors
    /// Read errors; a relation with another number of questions; a question without `{}`.
    pub fn load(path: &Path) -> Result<Self> {
        let templates: Self = jsonl::read_json(path)?;
        for (relation, questions) in &templates.0 {
            let wrong = |message: String| Err(FileError::record(path, 1, relation, message).into());
            if !(1..=4).contains(&questions.len()) {
                return wrong(format!("expected one to four questions, found {}", questions.len()));
            }
            if let Some(question) = questions.iter().find(|question| question.matches(PLACE).count() != 1) {
                return wrong(format!("expected `{{}}` once, found `{question}`"));
            }
        }
        Ok(templates)
    }

    /// The templates of a relation, the simplest first.
    pub fn of(&self, relation: RelationId, kb: &KnowledgeBase) -> Vec<String> {
        if let Some(written) = self.0.get(kb.relation_name(relation)) {
            return written.clone();
        }
        let label = kb.relation_label(relation);
        let mut templates =
            vec![format!("What is the {label} of {PLACE}?"), format!("Which {label} does {PLACE} have?")];
        // An alias may equal the label.
        let more = kb.relation_labels(relation).iter().filter(|other| *other != label).take(2);
        templates.extend(more.map(|alias| format!("What is the {alias} of {PLACE}?")));
        templates
    }

    /// A random question about `entity`, and the simplest one.
    pub(super) fn ask(
        &self,
        relation: RelationId,
        kb: &KnowledgeBase,
        entity: &str,
        rng: &mut ChaCha8Rng,
    ) -> (String, String) {
        let templates = self.of(relation, kb);
        let fill = |template: &String| template.replacen(PLACE, entity, 1);
        (fill(&templates[rng.random_range(0..templates.len())]), fill(&templates[0]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_have_one_to_four_questions() {
        let mut kb = KnowledgeBase::default();
        let (born, other) = (kb.add_relation("P19").unwrap(), kb.add_relation("P20").unwrap());
        kb.set_relation_label(other, "place of death");
        for alias in ["died in", "death place", "POD"] {
            kb.add_relation_alias(other, alias);
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), r#"{"P19":["Where was {} born?"]}"#).unwrap();
        let templates = Templates::load(file.path()).unwrap();
        assert_eq!(templates.of(born, &kb), ["Where was {} born?"]);
        assert_eq!(templates.of(other, &kb).len(), 4);
        for (text, expected) in [
            (r#"{"P19":[]}"#, "`P19`: expected one to four questions, found 0"),
            (r#"{"P19":["Where?"]}"#, "expected `{}` once, found `Where?`"),
        ] {
            std::fs::write(file.path(), text).unwrap();
            assert!(Templates::load(file.path()).unwrap_err().to_string().contains(expected));
        }
    }
}
