//! Short answers: NQ, TriviaQA, T-REx, zero-shot relation extraction and FEVER.

use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::facts::Qid;
use super::line::fill;
use super::names::{self, capitalised};
use super::records::{answers, one, pick, provenance};
use super::world::{Fact, Part, World};

/// Relations that are not in zero-shot training; zero-shot dev and test have only these.
pub(crate) const UNSEEN: [u64; 7] = [20, 509, 119, 551, 101, 135, 37];

/// Family, partners and parties: there are no claims about these, so no false claim about a person's private life is made up.
const NEVER_REFUTED: [u64; 6] = [26, 451, 3373, 40, 102, 509];

fn asked(world: &World, part: Part) -> Vec<&Fact> {
    world.facts_of(part).into_iter().filter(|f| world.wording(f).asked).collect()
}

fn ask(world: &World, fact: &Fact, template: &str) -> String {
    fill(&world.facts, template, &world.name(fact.subject), world.wording(fact).style, &fact.stated)
}

/// Natural Questions: a question without capital or mark, as typed into a search box; names keep their case.
pub(crate) fn nq(world: &World, part: Part, count: usize, rng: &mut ChaCha8Rng) -> Vec<Value> {
    let facts = pick(&asked(world, part), count, rng);
    let records = facts.iter().enumerate().map(|(i, fact)| {
        let input = ask(world, fact, one(world.wording(fact).list("q"), rng));
        json!({"id": id(part, 5_000_000, i), "input": input, "output": answers(world, fact, true)})
    });
    records.collect()
}

/// TriviaQA: the KILT records, which have no input, and the original question file.
pub(crate) fn triviaqa(
    world: &World,
    part: Part,
    count: usize,
    rng: &mut ChaCha8Rng,
) -> (Vec<Value>, Vec<Value>) {
    let facts = pick(&asked(world, part), count, rng);
    let mut records = Vec::new();
    let mut originals = Vec::new();
    for (i, fact) in facts.into_iter().enumerate() {
        let question = ask(world, fact, one(world.wording(fact).list("trivia"), rng));
        let output = answers(world, fact, true);
        let names: Vec<&str> = output.iter().filter_map(|o| o["answer"].as_str()).collect();
        let id = format!("mk_{}", id(part, 0, i));
        let normal: Vec<String> = names.iter().map(|n| n.to_lowercase()).collect();
        let mut original = json!({"Question": question, "QuestionId": id, "QuestionSource": "minikilt"});
        if part != Part::Test {
            original["Answer"] = json!({
                "Value": names[0], "Aliases": names, "NormalizedValue": normal[0], "NormalizedAliases": normal, "Type": "WikipediaEntity",
            });
        }
        originals.push(original);
        records.push(json!({"id": id, "output": output}));
    }
    (records, originals)
}

/// T-REx: `subject [SEP] relation`.
pub(crate) fn trex(world: &World, part: Part, count: usize, rng: &mut ChaCha8Rng) -> Vec<Value> {
    let facts = pick(&asked(world, part), count, rng);
    let records = facts.iter().enumerate().map(|(i, fact)| {
        let subject = world.label(fact.subject);
        let output = answers(world, fact, true);
        let surface: Vec<Value> = output.iter().map(|o| o["answer"].clone()).collect();
        json!({
            "id": format!("minikilt-trex-{}", id(part, 0, i)),
            "input": format!("{subject} [SEP] {}", world.facts.relations[&fact.pid].label),
            "output": output,
            "meta": {
                "subj_aliases": names::aliases(&world.facts, fact.subject),
                "sub_surface": [subject],
                "obj_surface": surface,
            },
        })
    });
    records.collect()
}

/// Zero-shot slot filling with template questions: dev and test have only relations that the train split lacks.
pub(crate) fn zero_shot(world: &World, part: Part, count: usize, rng: &mut ChaCha8Rng) -> Vec<Value> {
    let unseen = |f: &&Fact| UNSEEN.contains(&f.pid.0) == (part != Part::Train);
    let pool: Vec<&Fact> = asked(world, part).into_iter().filter(unseen).collect();
    let facts = pick(&pool, count, rng);
    let records = facts.iter().enumerate().map(|(i, fact)| {
        let wording = world.wording(fact);
        let mut questions: Vec<String> = wording.list("zs").iter().map(|t| ask(world, fact, t)).collect();
        questions.extend(wording.list("q").iter().map(|t| capitalised(&ask(world, fact, t)) + "?"));
        json!({
            "id": format!("minikilt-zs-{}", id(part, 0, i)),
            "input": format!("{} [SEP] {}", world.label(fact.subject), world.facts.relations[&fact.pid].label),
            "output": answers(world, fact, false),
            "meta": {"template_questions": questions},
        })
    });
    records.collect()
}

/// FEVER: half of the claims have a stated object, half a wrong one, sampled by its frequency among the right objects.
pub(crate) fn fever(world: &World, part: Part, count: usize, rng: &mut ChaCha8Rng) -> Vec<Value> {
    let all =
        world.facts_of(part).into_iter().filter(|f| !NEVER_REFUTED.contains(&f.pid.0)).collect::<Vec<_>>();
    let mut facts = pick(&all, count, rng);
    facts.shuffle(rng);
    let mut records = Vec::new();
    for fact in facts {
        let refutes = records.len() % 2 == 1;
        let page = world.pages[&fact.subject].text.concat();
        let object = if refutes {
            let others: Vec<&&Fact> =
                all.iter().filter(|f| f.pid == fact.pid && f.class == fact.class).collect();
            let wrong = (0..50).filter_map(|_| others.choose(rng)?.stated.choose(rng).copied());
            let apart =
                |o: &Qid| !fact.all.iter().any(|t| t == o || names::alike(&world.facts, fact.pid, *t, *o));
            let unsaid = |o: &Qid| *o != fact.subject && !page.contains(world.label(*o));
            let mut wrong = wrong.filter(|o| apart(o) && unsaid(o));
            wrong.next()
        } else {
            fact.stated.choose(rng).copied()
        };
        let Some(object) = object else { continue };
        let wording = world.wording(fact);
        let template = one(wording.list("claim"), rng);
        let claim = fill(&world.facts, template, &world.name(fact.subject), wording.style, &[object]);
        let answer = if refutes { "REFUTES" } else { "SUPPORTS" };
        records.push(json!({
            "id": id(part, 100_000, records.len()),
            "input": claim,
            "output": [{"answer": answer, "provenance": [provenance(world, fact)]}],
        }));
    }
    records.shuffle(rng);
    records
}

/// A number as a string that no other split uses.
pub(crate) fn id(part: Part, base: usize, index: usize) -> String {
    let block = match part {
        Part::Train => 10_000,
        Part::Dev => 20_000,
        Part::Test => 30_000,
    };
    (base + block + index).to_string()
}
