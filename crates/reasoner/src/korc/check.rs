//! Leak checks of a built benchmark.

use rustc_hash::{FxHashMap, FxHashSet};
use sporran_kilt::{kb::EntityId, korc::Question};

use super::{
    anonymise::places,
    build::{BuildOptions, Built, Origin, SPLITS, Sources, numbers, question_triples},
    split::{Unit, trained},
};
use crate::{Error, Result};

/// Checks a benchmark:
/// - no test document is in training or validation, and tests have one entity of a document;
/// - if documents are divided, the same holds for validation;
/// - in- and out-of-distribution tests are separated by question triple;
/// - neither document nor question contains a name of the entity or an answer;
/// - chains start in the document and end outside of it;
/// - answers are the ends of chains, or with `[build.facts]` the ends are answers;
/// - with `hold-out`, no question triple is in the knowledge base.
///
/// # Errors
/// [`Error::Leak`] with all leaks, at most ten of them in full.
pub(super) fn check(sources: &Sources<'_>, built: &Built, options: &BuildOptions) -> Result<()> {
    let mut leaks = Vec::new();
    documents(built, options.split, &mut leaks);
    triples(built, &mut leaks);
    for (split, origins) in SPLITS.iter().zip(&built.origins).map(|(split, origins)| (*split, origins)) {
        let questions = &built.questions[SPLITS.iter().position(|name| *name == split).unwrap_or_default()];
        for (question, origin) in questions.iter().zip(origins) {
            let mut leak =
                |what: String| leaks.push(format!("{split}, question {}: {what}", question.id.text()));
            texts(sources, question, origin, &mut leak);
            chain_ends(sources, origin, options.facts.is_none(), &mut leak);
        }
    }
    if options.holds_out() {
        let known: FxHashSet<_> = built.knowledge.iter().map(numbers).collect();
        for origin in built.origins.iter().flatten() {
            for triple in question_triples(origin) {
                if known.contains(&triple) {
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

fn documents(built: &Built, unit: Unit, leaks: &mut Vec<String>) {
    // The two tests share documents: a document can have questions of both. Training and validation share documents
    // if questions are divided.
    let place = |split: usize| match unit {
        Unit::Questions => usize::from(split > 1),
        Unit::Documents => split.min(2),
    };
    let mut places: FxHashMap<usize, usize> = FxHashMap::default();
    let mut entities: FxHashMap<usize, EntityId> = FxHashMap::default();
    for (split, origins) in built.origins.iter().enumerate() {
        let place = place(split);
        for origin in origins {
            if *places.entry(origin.document).or_insert(place) != place {
                leaks.push(format!("document {} is in two splits", origin.document));
            }
            if place > 0 && *entities.entry(origin.document).or_insert(origin.entity) != origin.entity {
                leaks.push(format!(
                    "document {} of {} has two question entities",
                    origin.document, SPLITS[split]
                ));
            }
        }
    }
}

fn triples(built: &Built, leaks: &mut Vec<String>) {
    let trained = trained(&built.origins[0]);
    for (split, expected) in [(2, true), (3, false)] {
        for origin in &built.origins[split] {
            if trained.contains(&(origin.entity, origin.asked)) != expected {
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
        if question.document().contains(label) {
            leak(format!("it contains the answer `{label}`"));
        }
        // Other names, and words of the question, may contain a short name, as `part` contains `art`.
        for name in sources.entities.names(*answer) {
            if texts.iter().any(|text| !places(text, name).is_empty()) {
                leak(format!("it contains the answer's name `{name}`"));
            }
        }
    }
}

fn chain_ends(sources: &Sources<'_>, origin: &Origin, all: bool, leak: &mut impl FnMut(String)) {
    let document = &sources.documents[origin.document];
    let said: FxHashSet<_> = document.relations.iter().map(numbers).collect();
    let mentioned = document.entities();
    let mut ends = Vec::new();
    for chain in &origin.chains {
        let starts = chain.document.first().is_some_and(|first| said.contains(first));
        let ends_outside = chain
            .knowledge
            .last()
            .is_some_and(|last| !said.contains(last) && [last.0, last.2].contains(&chain.answer));
        if !starts || !ends_outside || mentioned.contains(&EntityId(chain.answer)) {
            leak(format!(
                "the chain to {} does not start in the document and end outside of it",
                chain.answer
            ));
        }
        ends.push(EntityId(chain.answer));
    }
    for end in ends.iter().filter(|end| !origin.answers.contains(end)) {
        leak(format!("the end {} of a chain is no answer", end.0));
    }
    if all {
        for answer in origin.answers.iter().filter(|answer| !ends.contains(answer)) {
            leak(format!("the answer {} is not the end of a chain", answer.0));
        }
    }
}
