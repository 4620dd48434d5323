//! The part of a knowledge base that documents name (EmbedKGQA* of KoRC: "a subset of the background KB with entities recalled
//! by entity linking").

use sporran_kilt::{
    kb::{EntityId, KnowledgeBase, Part, RelationId, Triple},
    korc::Question,
};

use super::encoding::Linker;
use crate::{Result, rules::Graph};

/// The knowledge base of the entities that the documents of `questions` name, of the questions' topic entities if `with_topics`,
/// and of all entities within `reach` training triples of them, in either direction. It has the triples between them, their
/// names and all relations, in the order of `kb`.
///
/// # Errors
/// Errors of [`KnowledgeBase::add_entity`]: too many names.
pub fn linked_part<'q>(
    kb: &KnowledgeBase,
    questions: impl IntoIterator<Item = &'q Question>,
    with_topics: bool,
    reach: usize,
) -> Result<KnowledgeBase> {
    let linker = Linker::new(kb);
    let mut within = vec![false; kb.entity_count()];
    let mut latest: Vec<u32> = Vec::new();
    let mut take = |entity: u32, latest: &mut Vec<u32>| {
        if !std::mem::replace(&mut within[entity as usize], true) {
            latest.push(entity);
        }
    };
    // The questions about one document often follow each other.
    let mut before = None;
    for question in questions {
        if before != Some(question.document()) {
            linker.link(question.document()).iter().for_each(|name| take(name.entity, &mut latest));
            before = Some(question.document());
        }
        if with_topics {
            let known = question.topics().iter().filter_map(|id| kb.entity(id));
            known.for_each(|entity| take(entity.0, &mut latest));
        }
    }
    let graph = Graph::of(kb.triples(Part::Train));
    for _ in 0..reach {
        let mut next = Vec::new();
        for &node in &latest {
            graph.edges(node).iter().for_each(|edge| take(edge.to, &mut next));
        }
        latest = next;
    }
    part_of(kb, &within)
}

/// The knowledge base of the entities that are `within`.
fn part_of(kb: &KnowledgeBase, within: &[bool]) -> Result<KnowledgeBase> {
    let mut part = KnowledgeBase::default();
    let mut numbers = vec![None; within.len()];
    for (number, _) in (0u32..).zip(within).filter(|(_, is)| **is) {
        let own = EntityId(number);
        let id = part.add_entity(kb.entity_name(own))?;
        for (at, name) in kb.labels(own).iter().enumerate() {
            if at == 0 { part.set_label(id, name) } else { part.add_alias(id, name) }
        }
        numbers[number as usize] = Some(id);
    }
    for number in 0..kb.relation_count() as u32 {
        let id = part.add_relation(kb.relation_name(RelationId(number)))?;
        for (at, name) in kb.relation_labels(RelationId(number)).iter().enumerate() {
            if at == 0 { part.set_relation_label(id, name) } else { part.add_relation_alias(id, name) }
        }
    }
    for triple in kb.triples(Part::Train) {
        if let [Some(subject), Some(object)] = [triple.subject, triple.object].map(|id| numbers[id.index()]) {
            part.add(Part::Train, Triple { subject, object, ..*triple })?;
        }
    }
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_has_the_entities_within_reach_of_the_named_ones() {
        // Ava - Bora - Cusco - Delhi - Essen, and Faro - Goa apart.
        let names = ["Ava", "Bora", "Cusco", "Delhi", "Essen", "Faro", "Goa"];
        let mut kb = KnowledgeBase::default();
        for (at, name) in names.iter().enumerate() {
            let id = kb.add_entity(&format!("Q{at}")).unwrap();
            kb.set_label(id, name);
        }
        kb.add_relation("P0").unwrap();
        kb.add_relation("P1").unwrap();
        let triples = [(0, 0, 1), (2, 1, 1), (2, 0, 3), (4, 0, 3), (5, 1, 6)];
        for (subject, relation, object) in triples {
            kb.add(Part::Train, Triple::new(subject, relation, object)).unwrap();
        }
        let questions: Vec<Question> = serde_json::from_str(
            r#"[{"id":1,"question":"Which?","context":"It is near Bora.","topic_entity":["Q5"]}]"#,
        )
        .unwrap();
        let found = |with_topics, reach| {
            let part = linked_part(&kb, &questions, with_topics, reach).unwrap();
            let labels: Vec<String> =
                (0..part.entity_count() as u32).map(|at| part.label(EntityId(at)).to_owned()).collect();
            let mut triples: Vec<String> = part
                .triples(Part::Train)
                .iter()
                .map(|triple| {
                    let relation = part.relation_name(triple.relation);
                    format!("{} {relation} {}", part.label(triple.subject), part.label(triple.object))
                })
                .collect();
            triples.sort_unstable();
            (labels.join(" "), triples.join(", "), part.relation_count())
        };
        assert_eq!(found(false, 0), ("Bora".into(), String::new(), 2));
        assert_eq!(found(false, 1), ("Ava Bora Cusco".into(), "Ava P0 Bora, Cusco P1 Bora".into(), 2));
        let two = "Ava P0 Bora, Cusco P0 Delhi, Cusco P1 Bora";
        assert_eq!(found(false, 2), ("Ava Bora Cusco Delhi".into(), two.into(), 2));
        let topics = "Ava P0 Bora, Cusco P1 Bora, Faro P1 Goa";
        assert_eq!(found(true, 1), ("Ava Bora Cusco Faro Goa".into(), topics.into(), 2));
    }
}
