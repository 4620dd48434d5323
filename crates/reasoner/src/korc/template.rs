//! Question templates: one to four a relation.

use std::{collections::BTreeMap, path::Path};

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;
use sporran_kilt::{
    Error as FileError, jsonl,
    kb::{KnowledgeBase, RelationId},
    korc::INVERSE,
};

use crate::{Result, rules::Step};

/// The placeholder of the entity in a template.
const PLACE: &str = "{}";

/// Templates by relation. A relation without templates gets questions from its label and aliases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Templates(BTreeMap<String, Vec<String>>);

impl Templates {
    /// Reads a JSON object from relations to one to four questions, each with one `{}` for the entity. The key of an
    /// inverse relation starts with [`INVERSE`].
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

    /// The templates of a relation in one direction.
    pub fn of(&self, asked: Step, kb: &KnowledgeBase) -> Vec<String> {
        let relation = RelationId(asked.relation());
        let name = kb.relation_name(relation);
        let written = match asked.is_backward() {
            false => self.0.get(name),
            true => self.0.get(&format!("{INVERSE}{name}")),
        };
        if let Some(written) = written {
            return written.clone();
        }
        let label = kb.relation_label(relation);
        if asked.is_backward() {
            return vec![
                format!("What has {PLACE} as its {label}?"),
                format!("Of what is {PLACE} the {label}?"),
            ];
        }
        let mut templates =
            vec![format!("What is the {label} of {PLACE}?"), format!("Which {label} does {PLACE} have?")];
        // An alias may equal the label.
        let more = kb.relation_labels(relation).iter().filter(|other| *other != label).take(2);
        templates.extend(more.map(|alias| format!("What is the {alias} of {PLACE}?")));
        templates
    }

    /// A question about `entity` from a random template.
    pub(super) fn ask(&self, asked: Step, kb: &KnowledgeBase, entity: &str, rng: &mut ChaCha8Rng) -> String {
        let templates = self.of(asked, kb);
        templates[rng.random_range(0..templates.len())].replacen(PLACE, entity, 1)
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
        std::fs::write(file.path(), r#"{"P19":["Where was {} born?"],"Inv: P19":["Who was born in {}?"]}"#)
            .unwrap();
        let templates = Templates::load(file.path()).unwrap();
        let (forward, backward) = (Step::forward, Step::backward);
        assert_eq!(templates.of(forward(born.0), &kb), ["Where was {} born?"]);
        assert_eq!(templates.of(backward(born.0), &kb), ["Who was born in {}?"]);
        assert_eq!(templates.of(forward(other.0), &kb).len(), 4);
        let expected = ["What has {} as its place of death?", "Of what is {} the place of death?"];
        assert_eq!(templates.of(backward(other.0), &kb), expected);
        for (text, expected) in [
            (r#"{"P19":[]}"#, "`P19`: expected one to four questions, found 0"),
            (r#"{"P19":["Where?"]}"#, "expected `{}` once, found `Where?`"),
        ] {
            std::fs::write(file.path(), text).unwrap();
            assert!(Templates::load(file.path()).unwrap_err().to_string().contains(expected));
        }
    }
}
