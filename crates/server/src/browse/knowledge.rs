//! A knowledge base: its entities, their triples, and what rules add.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::kb::{EntityId, KnowledgeBase, Part, RelationId, TripleIndex};
use sporran_pipeline::workflows::link_prediction::{
    AskOptions, Chain, LinkAnswer, LinkPredictor, LinkQuestion,
};

use super::{KnowledgeOptions, Named};
use crate::{Failure, Result};

/// The most entities of a list, and of a relation's row.
const MOST: usize = 100;
/// The entities of a relation's row.
const SHOWN: usize = 20;
/// The predictions of a relation, and the reasons of each.
const PREDICTED: AskOptions = AskOptions { answers: 20, chains: 3, known: false };

/// A knowledge base under a name.
pub(crate) struct Knowledge {
    name: String,
    base: Base,
    index: TripleIndex,
}

/// A knowledge base, alone or with rules over it.
enum Base {
    Alone(Box<KnowledgeBase>),
    Ruled(Arc<LinkPredictor>),
}

/// A knowledge base in a list.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct KnowledgeSummary {
    /// The name.
    name: String,
    /// The number of entities.
    entities: usize,
    /// The relations.
    relations: Vec<NamedId>,
    /// The number of distinct triples of all parts.
    triples: usize,
    /// Whether rules predict further triples.
    has_rules: bool,
}

/// An entity or a relation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct NamedId {
    /// The id in the knowledge base.
    id: String,
    /// The label; the id without one.
    label: String,
}

/// Some entities.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Entities {
    /// The number of entities that match.
    total: usize,
    /// The entities, best first.
    entities: Vec<ListedEntity>,
}

/// An entity in a list.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct ListedEntity {
    /// Its id and label.
    #[serde(flatten)]
    entity: NamedId,
    /// The number of distinct triples that have it.
    triples: usize,
}

/// An entity with its triples.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct EntityPage {
    /// Its id and label.
    #[serde(flatten)]
    entity: NamedId,
    /// Its other names.
    aliases: Vec<String>,
    /// The triples whose subject it is.
    outgoing: Vec<Neighbours>,
    /// The triples whose object it is.
    incoming: Vec<Neighbours>,
}

/// The entities to which a relation leads.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Neighbours {
    /// The relation.
    relation: NamedId,
    /// The number of entities.
    total: usize,
    /// The first of them.
    entities: Vec<NamedId>,
}

/// A triple to complete: `relation` and either `subject` or `object`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Completion {
    /// The id of the relation.
    relation: String,
    /// The id of the subject.
    subject: Option<String>,
    /// The id of the object.
    object: Option<String>,
}

/// The entities that complete a triple.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Completions {
    /// The entities, best first.
    answers: Vec<Predicted>,
}

/// An entity that rules predict.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Predicted {
    /// Its id and label.
    #[serde(flatten)]
    entity: NamedId,
    /// The confidence.
    score: f32,
    /// Why: the rules with the triples that they rest on, strongest first.
    reasons: Vec<Reason>,
}

/// A rule and the triples that it rests on.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Reason {
    /// The rule.
    rule: String,
    /// The confidence of the rule.
    weight: f32,
    /// The labels of subject, relation and object of each triple.
    triples: Vec<[String; 3]>,
}

impl Knowledge {
    /// Reads a knowledge base with its rules.
    ///
    /// # Errors
    /// Errors of their files.
    pub(crate) fn open(
        KnowledgeOptions { base: Named { name, path }, rules }: &KnowledgeOptions,
    ) -> Result<Self> {
        let base = match rules {
            None => {
                let kb = KnowledgeBase::open(path).map_err(sporran_pipeline::Error::from)?;
                Base::Alone(Box::new(kb))
            }
            Some(_) => Base::Ruled(Arc::new(LinkPredictor::open(path, None, rules.as_deref())?)),
        };
        let index = base.kb().index(&Part::ALL);
        Ok(Self { name: name.clone(), base, index })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn kb(&self) -> &KnowledgeBase {
        self.base.kb()
    }

    fn entity(&self, id: EntityId) -> NamedId {
        NamedId { id: self.kb().entity_name(id).to_owned(), label: self.kb().label(id).to_owned() }
    }

    fn relation(&self, id: RelationId) -> NamedId {
        NamedId { id: self.kb().relation_name(id).to_owned(), label: self.kb().relation_label(id).to_owned() }
    }

    pub(crate) fn summary(&self) -> KnowledgeSummary {
        let mut relations: Vec<NamedId> =
            (0..self.kb().relation_count() as u32).map(|id| self.relation(RelationId(id))).collect();
        relations.sort_by(|a, b| a.label.cmp(&b.label).then_with(|| a.id.cmp(&b.id)));
        KnowledgeSummary {
            name: self.name.clone(),
            entities: self.kb().entity_count(),
            relations,
            triples: self.index.len(),
            has_rules: matches!(self.base, Base::Ruled(_)),
        }
    }

    /// The entities with a name that has the words of `query`, whatever their case: exact names first, then beginnings, then
    /// others; all entities for a blank query.
    pub(crate) fn entities(&self, query: &str, offset: usize, limit: usize) -> Entities {
        let query = query.trim().to_lowercase();
        let kb = self.kb();
        let rank = |id: EntityId| {
            let names = kb.labels(id).iter().map(String::as_str).chain([kb.entity_name(id)]);
            names.filter_map(|name| matched(name, &query)).min()
        };
        let all = (0..kb.entity_count() as u32).map(EntityId);
        let mut found: Vec<(u8, EntityId)> = match query.is_empty() {
            true => all.map(|id| (0, id)).collect(),
            false => all.filter_map(|id| Some((rank(id)?, id))).collect(),
        };
        found.sort_unstable();
        let shown = found.iter().skip(offset).take(limit.min(MOST));
        let listed =
            |&(_, id): &(u8, EntityId)| ListedEntity { entity: self.entity(id), triples: self.triples(id) };
        Entities { total: found.len(), entities: shown.map(listed).collect() }
    }

    fn triples(&self, id: EntityId) -> usize {
        let of = self.index.relations_of(id).map(|(_, objects)| objects.len());
        // A triple from an entity to itself counts once.
        let to = self
            .index
            .relations_to(id)
            .map(|(_, subjects)| subjects.iter().filter(|&&subject| subject != id).count());
        of.chain(to).sum()
    }

    /// An entity with its triples.
    ///
    /// # Errors
    /// An id that the knowledge base lacks.
    pub(crate) fn page(&self, id: &str) -> Result<EntityPage, Failure> {
        let found = self.kb().entity(id).ok_or_else(|| Failure::not_found("entity", id, []))?;
        let neighbours = |(relation, entities): (RelationId, &[EntityId])| Neighbours {
            relation: self.relation(relation),
            total: entities.len(),
            entities: entities.iter().take(SHOWN).map(|&id| self.entity(id)).collect(),
        };
        Ok(EntityPage {
            entity: self.entity(found),
            aliases: self.kb().labels(found).iter().skip(1).cloned().collect(),
            outgoing: self.index.relations_of(found).map(neighbours).collect(),
            incoming: self.index.relations_to(found).map(neighbours).collect(),
        })
    }

    /// The entities that rules predict for a triple, without those of known triples.
    ///
    /// # Errors
    /// A knowledge base without rules, names that it lacks, and both or neither of subject and object.
    pub(crate) fn complete(&self, completion: Completion) -> Result<Completions, Failure> {
        let Base::Ruled(predictor) = &self.base else {
            return Err(Failure::invalid("kb", format!("`{}` has no rules", self.name)));
        };
        let Completion { relation, subject, object } = completion;
        let resolved = predictor.resolve(&LinkQuestion { subject, relation, object });
        let resolved = resolved.map_err(|message| Failure::invalid("relation", message))?;
        let found = predictor.ask(&[resolved], PREDICTED).map_err(Failure::internal)?;
        let reason =
            |Chain { rule, weight, labels, .. }| Some(Reason { rule: rule?, weight, triples: labels });
        let predicted = |LinkAnswer { entity: id, label, score, chains }| Predicted {
            entity: NamedId { id, label },
            score,
            reasons: chains.into_iter().filter_map(reason).collect(),
        };
        Ok(Completions { answers: found.into_iter().flatten().map(predicted).collect() })
    }
}

impl Base {
    fn kb(&self) -> &KnowledgeBase {
        match self {
            Self::Alone(kb) => kb,
            Self::Ruled(predictor) => predictor.kb(),
        }
    }
}

/// How a name matches a query in lower case: 0 exactly, 1 at its beginning, 2 within; `None` otherwise.
fn matched(name: &str, query: &str) -> Option<u8> {
    let name = name.to_lowercase();
    match name.find(query)? {
        0 if name.len() == query.len() => Some(0),
        0 => Some(1),
        _ => Some(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(rules: Option<&str>) -> (tempfile::TempDir, Knowledge) {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        // The last line repeats a triple; `c` is married to itself.
        file("train.txt", "a\tborn\tx\nb\tborn\tx\nx\tin\ty\na\tcitizen\ty\nc\tmarried\tc\na\tborn\tx\n");
        file("entities.tsv", "a\tAnn\tAnnie\nb\tAnnabel\nc\tJo Ann\nx\tXanten\ny\tYemen\n");
        file("relations.tsv", "born\tborn in\n");
        let rules = rules.map(|text| file("rules.tsv", text));
        let base = Named { name: "facts".into(), path: folder.path().to_owned() };
        let knowledge = Knowledge::open(&KnowledgeOptions { base, rules }).unwrap();
        (folder, knowledge)
    }

    #[test]
    fn entities_are_found_by_their_names_best_first() {
        let (_folder, kb) = open(None);
        let ids = |query: &str| -> Vec<String> {
            kb.entities(query, 0, 10).entities.into_iter().map(|found| found.entity.id).collect()
        };
        assert_eq!(ids(" ANN "), ["a", "b", "c"]);
        assert_eq!((ids("annie"), ids("y")), (vec!["a".to_owned()], vec!["y".to_owned()]));
        assert_eq!(ids("").len(), 5);
        let second = kb.entities("", 1, 1);
        assert_eq!((second.total, second.entities.len()), (5, 1));
        let triples = |id: &str| kb.entities(id, 0, 1).entities[0].triples;
        assert_eq!((triples("ann"), triples("jo ann"), triples("xanten")), (2, 1, 3));
    }

    #[test]
    fn an_entity_has_its_triples_in_both_directions() {
        let (_folder, kb) = open(None);
        let page = kb.page("x").unwrap();
        assert_eq!((page.entity.label.as_str(), page.outgoing.len()), ("Xanten", 1));
        assert_eq!(page.incoming[0].relation, NamedId { id: "born".into(), label: "born in".into() });
        assert_eq!((page.incoming[0].total, page.incoming[0].entities[1].label.as_str()), (2, "Annabel"));
        assert_eq!(kb.page("a").unwrap().aliases, ["Annie"]);
        assert_eq!(kb.page("z").unwrap_err().message, "there is no entity `z`");
        assert_eq!((kb.summary().triples, kb.summary().has_rules), (5, false));
    }

    #[test]
    fn rules_predict_with_their_reasons() {
        let (_folder, kb) = open(Some("10\t5\t0.5\tcitizen(X,Y) <= born(X,A), in(A,Y)\n"));
        let ask = |subject: Option<&str>, object: Option<&str>| {
            let (subject, object) = (subject.map(str::to_owned), object.map(str::to_owned));
            kb.complete(Completion { relation: "citizen".into(), subject, object })
        };
        let found = ask(Some("b"), None).unwrap().answers;
        assert_eq!((found[0].entity.id.as_str(), found[0].score), ("y", 0.5));
        let labels = [["Annabel", "born in", "Xanten"], ["Xanten", "in", "Yemen"]];
        assert_eq!(found[0].reasons[0].triples, labels.map(|triple| triple.map(str::to_owned)));
        // An entity of a known triple is no prediction.
        assert!(ask(Some("a"), None).unwrap().answers.is_empty());
        assert_eq!(ask(None, Some("y")).unwrap().answers[0].entity.id, "b");
        assert!(ask(None, None).unwrap_err().message.starts_with("expected either"));
        let (_folder, bare) = open(None);
        let refused = bare.complete(Completion { relation: "in".into(), subject: None, object: None });
        assert_eq!(refused.unwrap_err().message, "`facts` has no rules");
    }
}
