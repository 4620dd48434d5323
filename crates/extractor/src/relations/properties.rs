//! The properties that facts can have.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use sporran_kilt::knowledgenet;

/// A property of the knowledge base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Property {
    /// Its id, such as `15`.
    pub id: String,
    /// Its name, such as `DATE_OF_BIRTH`.
    pub name: String,
    /// Whether a fact also holds in the other direction, as for spouses.
    pub symmetric: bool,
}

/// The properties that a training file is annotated for, ordered by name.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Properties(Vec<Property>);

impl Properties {
    /// The given properties, ordered by name.
    #[must_use]
    pub fn new(mut properties: Vec<Property>) -> Self {
        properties.sort_unstable_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        Self(properties)
    }

    /// The properties with annotated passages. A property is symmetric if most of its facts are annotated in
    /// both directions.
    #[must_use]
    pub fn of(documents: &[knowledgenet::Document]) -> Self {
        let mut names: FxHashMap<String, String> = FxHashMap::default();
        let mut facts: FxHashMap<String, (usize, usize)> = FxHashMap::default();
        for passage in documents.iter().flat_map(|document| &document.passages) {
            for property in &passage.exhaustive {
                names.insert(property.id.text().into_owned(), property.name.clone());
            }
            for fact in &passage.facts {
                let is_reverse = |other: &knowledgenet::Fact| {
                    other.property == fact.property
                        && (other.subject_start, other.object_start)
                            == (fact.object_start, fact.subject_start)
                };
                let (all, both) = facts.entry(fact.property.text().into_owned()).or_default();
                *all += 1;
                *both += usize::from(passage.facts.iter().any(is_reverse));
            }
        }
        let properties = names
            .into_iter()
            .map(|(id, name)| {
                let (all, both) = facts.get(&id).copied().unwrap_or_default();
                Property { id, name, symmetric: 2 * both > all }
            })
            .collect();
        Self::new(properties)
    }

    /// All properties in order.
    #[must_use]
    pub fn all(&self) -> &[Property] {
        &self.0
    }

    /// The number of properties.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The index of the property with this id.
    #[must_use]
    pub fn position(&self, id: &str) -> Option<usize> {
        self.0.iter().position(|property| property.id == id)
    }

    /// The indices of the properties of `others`, by id; the error is the first property that is missing here.
    ///
    /// # Errors
    /// A property of `others` that is not one of these.
    pub fn positions<'a>(&self, others: &'a Self) -> Result<Vec<usize>, &'a Property> {
        let find = |property: &'a Property| self.position(&property.id).ok_or(property);
        others.all().iter().map(find).collect()
    }

    /// The property with this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Property> {
        self.0.iter().find(|property| property.name == name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_property_is_symmetric_where_facts_are_annotated_both_ways() {
        let fact = |id: &str, subject: usize, object: usize| {
            json!({"propertyId": id, "subjectStart": subject, "subjectEnd": subject + 1,
                "objectStart": object, "objectEnd": object + 1})
        };
        let property = |id: &str, name: &str| json!({"propertyId": id, "propertyName": name});
        let document = json!({"fold": 1, "documentId": "d", "documentText": "a b c d", "passages": [{
            "passageId": "p", "passageStart": 0, "passageEnd": 7, "passageText": "a b c d",
            "exhaustivelyAnnotatedProperties": [property("25", "SPOUSE"), property("9", "EDUCATED_AT"), property("7", "A")],
            "facts": [fact("25", 0, 2), fact("25", 2, 0), fact("9", 0, 4), fact("9", 2, 4)]}]});
        let properties = Properties::of(&[serde_json::from_value(document).unwrap()]);
        let seen: Vec<(&str, bool)> =
            properties.all().iter().map(|property| (property.name.as_str(), property.symmetric)).collect();
        assert_eq!(seen, [("A", false), ("EDUCATED_AT", false), ("SPOUSE", true)]);
        assert_eq!((properties.position("25"), properties.position("1")), (Some(2), None));
        let fewer = Properties::new(vec![properties.all()[2].clone(), properties.all()[0].clone()]);
        assert_eq!(properties.positions(&fewer), Ok(vec![0, 2]));
        assert_eq!(fewer.positions(&properties).unwrap_err().name, "EDUCATED_AT");
    }
}
