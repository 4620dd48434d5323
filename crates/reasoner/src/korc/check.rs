//! Leak checks of a built benchmark.

use rustc_hash::{FxHashMap, FxHashSet};
use sporran_kilt::{
    kb::{EntityId, RelationId},
    korc::Question,
};

use super::{
    anonymise::places,
    build::{BuildOptions, Built, Origin, SPLITS, Sources, numbers},
};
use crate::{Error, Result};

/// Checks a benchmark:
/// - no document is in two splits, and tests have one entity of a document;
/// - in- and out-of-distribution tests are separated by question triple;
/// - neither document nor question contains a name of the entity or an answer;
/// - chains start in the document and end outside of it;
/// - with `hold-out`, no question triple is in the knowledge base.
///
/// # Errors
/// [`Error::Leak`] with all leaks, at most ten of them in full.
pub(super) fn check(sources: &Sources<'_>, built: &Built, options: &BuildOptions) -> Result<()> {
    let mut leaks = Vec::new();
    documents(built, &mut leaks);
    triples(built, &mut leaks);
    for (split, origins) in SPLITS.iter().zip(&built.origins).map(|(split, origins)| (*split, origins)) {
        let questions = &built.questions[SPLITS.iter().position(|name| *name == split).unwrap_or_default()];
        for (question, origin) in questions.iter().zip(origins) {
            let mut leak =
                |what: String| leaks.push(format!("{split}, question {}: {what}", question.id.text()));
            texts(sources, question, origin, &mut leak);
            chain_ends(sources, origin, &mut leak);
        }
    }
    if options.hold_out {
        let known: FxHashSet<_> = built.knowledge.iter().map(numbers).collect();
        for origin in built.origins.iter().flatten() {
            for answer in &origin.answers {
                if known.contains(&(origin.entity.0, origin.relation.0, answer.0)) {
                    leaks.push(format!("the knowledge base has an answer of document {}", origin.document));
                }
            }
        }
    }
    if leaks.is_empty() {
        return Ok(());
    }
    let count = leaks.len();
    leaks.truncate(10);
    Err(Error::Leak { count, leaks })
}

fn documents(built: &Built, leaks: &mut Vec<String>) {
    // The two tests share documents: a document can have questions of both.
    let mut places: FxHashMap<usize, usize> = FxHashMap::default();
    let mut entities: FxHashMap<usize, EntityId> = FxHashMap::default();
    for (split, origins) in built.origins.iter().enumerate() {
        for origin in origins {
            let place = split.min(2);
            if *places.entry(origin.document).or_insert(place) != place {
                leaks.push(format!("document {} is in two splits", origin.document));
            }
            if split > 0 && *entities.entry(origin.document).or_insert(origin.entity) != origin.entity {
                leaks.push(format!(
                    "document {} of {} has two question entities",
                    origin.document, SPLITS[split]
                ));
            }
        }
    }
}

fn triples(built: &Built, leaks: &mut Vec<String>) {
    let trained: FxHashSet<(EntityId, RelationId)> =
        built.origins[0].iter().map(|origin| (origin.entity, origin.relation)).collect();
    for (split, expected) in [(2, true), (3, false)] {
        for origin in &built.origins[split] {
            if trained.contains(&(origin.entity, origin.relation)) != expected {
                let what = if expected { "not trained" } else { "trained" };
                leaks.push(format!(
                    "{}: a question triple of document {} is {what}",
                    SPLITS[split], origin.document
                ));
            }
        }
    }
}

fn texts(sources: &Sources<'_>, question: &Question, origin: &Origin, leak: &mut impl FnMut(String)) {
    let texts = [question.title.as_deref().unwrap_or_default(), question.document(), &question.question];
    for name in sources.entities.names(origin.entity) {
        if texts.iter().any(|text| !places(text, name).is_empty()) {
            leak(format!("it contains the entity's name `{name}`"));
        }
    }
    for answer in &origin.answers {
        let label = sources.entities.label(*answer).unwrap_or_default();
        if question.document().contains(label) || question.question.contains(label) {
            leak(format!("it contains the answer `{label}`"));
        }
    }
}

fn chain_ends(sources: &Sources<'_>, origin: &Origin, leak: &mut impl FnMut(String)) {
    let document = &sources.documents[origin.document];
    let said: FxHashSet<_> = document.relations.iter().map(numbers).collect();
    for chain in &origin.chains {
        let starts = chain.document.first().is_some_and(|first| said.contains(first));
        let ends = chain.knowledge.last().is_some_and(|last| !said.contains(last));
        if !(starts && ends) {
            leak(format!(
                "the chain to {} does not start in the document and end outside of it",
                chain.answer
            ));
        }
    }
}
