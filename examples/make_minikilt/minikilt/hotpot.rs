//! HotpotQA: questions that need two pages.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::facts::{Class, Pid, Qid};
use super::line::fill;
use super::names::{alike, capitalised};
use super::questions::id;
use super::records::{one, provenance};
use super::world::{Fact, Part, World};

/// How a question refers to the person at the other end of a relation.
const BRIDGES: [(u64, &[&str]); 5] = [
    (26, &["the spouse of", "the person who married"]),
    (451, &["the partner of", "the person who lived together with"]),
    (3373, &["the sibling of", "the person who grew up with"]),
    (40, &["the child of", "the person who was raised by"]),
    (737, &["the person who influenced", "the main influence on"]),
];

/// Relations with few different objects, so two subjects often share one.
const COMPARED: [u64; 14] = [27, 19, 20, 69, 108, 101, 463, 136, 1303, 264, 1412, 551, 30, 37];

struct Question {
    text: String,
    answer: String,
    kind: &'static str,
    level: &'static str,
    evidence: Vec<Value>,
}

/// Records of a split: choices, common values and yes/no questions over two named pages, and bridge questions over an unnamed page.
pub(crate) fn hotpotqa(world: &World, part: Part, count: usize, rng: &mut ChaCha8Rng) -> Vec<Value> {
    let facts = world.facts_of(part);
    let mut found = bridges(world, &facts, part, rng);
    found.shuffle(rng);
    found.truncate(count * 3 / 10);
    let mut seen: BTreeSet<String> = found.iter().map(|q| q.text.clone()).collect();
    let pairs = pairs(&facts);
    let mut tries = 0;
    // Alternation keeps yes and no balanced.
    let mut yes = true;
    while found.len() < count && tries < 50 * count {
        tries += 1;
        let question = match rng.random_range(0..20) {
            0..11 => choice(world, &pairs, rng),
            11..16 => common(world, &pairs, rng),
            _ => {
                let question = yes_no(world, &pairs, yes, rng);
                yes ^= question.is_some();
                question
            }
        };
        found.extend(question.filter(|q| seen.insert(q.text.clone())));
    }
    found.shuffle(rng);
    let records = found.into_iter().enumerate().map(|(i, q)| {
        json!({
            "id": format!("5a{:022x}", id(part, 0, i).parse::<u64>().unwrap_or(0)),
            "input": q.text,
            "output": [{"answer": q.answer, "provenance": q.evidence}],
            "meta": {"type": q.kind, "level": q.level},
        })
    });
    records.collect()
}

type Pairs<'w> = Vec<((Pid, Class), Vec<&'w Fact>)>;

fn pairs<'w>(facts: &[&'w Fact]) -> Pairs<'w> {
    let mut by: BTreeMap<(Pid, Class), Vec<&Fact>> = BTreeMap::new();
    for &fact in facts.iter().filter(|f| COMPARED.contains(&f.pid.0)) {
        by.entry((fact.pid, fact.class)).or_default().push(fact);
    }
    by.into_iter().filter(|(_, list)| list.len() > 5).collect()
}

fn draw<'w>(pairs: &Pairs<'w>, rng: &mut ChaCha8Rng) -> Option<(&'w Fact, &'w Fact)> {
    let (_, list) = pairs.choose(rng)?;
    let (a, b) = (*list.choose(rng)?, *list.choose(rng)?);
    (a.subject != b.subject).then_some((a, b))
}

fn shared(a: &Fact, b: &Fact) -> Vec<Qid> {
    a.all.iter().copied().filter(|o| b.all.contains(o)).collect()
}

fn both_named(world: &World, template: &str, a: &Fact, b: &Fact) -> String {
    template.replace("{a}", &world.name(a.subject)).replace("{b}", &world.name(b.subject))
}

fn choice(world: &World, pairs: &Pairs<'_>, rng: &mut ChaCha8Rng) -> Option<Question> {
    let (a, b) = draw(pairs, rng)?;
    let object = *a.stated.choose(rng)?;
    if b.all.iter().any(|&o| o == object || alike(&world.facts, a.pid, o, object)) {
        return None;
    }
    let wording = world.wording(a);
    let clause = fill(&world.facts, one(wording.list("clause"), rng), "", wording.style, &[object]);
    let (left, right) = if rng.random_bool(0.5) { (a, b) } else { (b, a) };
    let (left, right) = (world.name(left.subject), world.name(right.subject));
    let who = if a.class == Class::Person { "Who" } else { "Which" };
    let text = match rng.random_range(0..3) {
        0 => format!("{who} {clause}, {left} or {right}?"),
        1 => format!("Between {left} and {right}, {} {clause}?", who.to_lowercase()),
        _ => format!("{} or {right}, {} {clause}?", capitalised(&left), who.to_lowercase()),
    };
    let evidence = vec![provenance(world, a), provenance(world, b)];
    Some(Question {
        text,
        answer: world.label(a.subject).to_owned(),
        kind: "comparison",
        level: "easy",
        evidence,
    })
}

fn common(world: &World, pairs: &Pairs<'_>, rng: &mut ChaCha8Rng) -> Option<Question> {
    let (a, b) = draw(pairs, rng)?;
    let [object] = shared(a, b)[..] else { return None };
    if !a.stated.contains(&object) || !b.stated.contains(&object) || a.stated.len() + b.stated.len() < 3 {
        return None;
    }
    let text = both_named(world, one(world.wording(a).list("both"), rng), a, b);
    let evidence = vec![provenance(world, a), provenance(world, b)];
    Some(Question { text, answer: world.label(object).to_owned(), kind: "bridge", level: "hard", evidence })
}

fn yes_no(world: &World, pairs: &Pairs<'_>, yes: bool, rng: &mut ChaCha8Rng) -> Option<Question> {
    let fits = |(a, b): &(&Fact, &Fact)| {
        let near = |o: &Qid| b.all.iter().any(|t| t == o || alike(&world.facts, a.pid, *o, *t));
        if yes { a.stated.iter().any(|o| b.stated.contains(o)) } else { !a.all.iter().any(near) }
    };
    let (a, b) = (0..40).filter_map(|_| draw(pairs, rng)).find(fits)?;
    let text = both_named(world, one(world.wording(a).list("same"), rng), a, b);
    let answer = if yes { "yes" } else { "no" }.to_owned();
    let evidence = vec![provenance(world, a), provenance(world, b)];
    Some(Question { text, answer, kind: "comparison", level: "medium", evidence })
}

/// The question about Y names only X, and X's page states who Y is.
fn bridges(world: &World, facts: &[&Fact], part: Part, rng: &mut ChaCha8Rng) -> Vec<Question> {
    let mut found = Vec::new();
    for fact in facts
        .iter()
        .filter(|f| f.class == Class::Person && !matches!(f.pid.0, 106 | 1412) && f.all.len() == 1)
    {
        let to: Vec<&Fact> =
            world.stated.values().filter(|x| x.all == [fact.subject] && x.part == part).collect();
        for first in to {
            let Some((_, names)) = BRIDGES.iter().find(|(pid, _)| *pid == first.pid.0) else { continue };
            if first.subject == fact.all[0] {
                continue;
            }
            let wording = world.wording(fact);
            let Some(lead) = names.choose(rng) else { continue };
            let subject = format!("{lead} {}", world.label(first.subject));
            let question = fill(&world.facts, one(wording.list("q"), rng), &subject, wording.style, &[]);
            found.push(Question {
                text: capitalised(&question) + "?",
                answer: world.label(fact.all[0]).to_owned(),
                kind: "bridge",
                level: "medium",
                evidence: vec![provenance(world, first), provenance(world, fact)],
            });
        }
    }
    found
}
