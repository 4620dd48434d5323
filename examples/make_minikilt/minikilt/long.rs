//! Long answers: ELI5 and Wizard of Wikipedia.

use std::collections::BTreeMap;

use rand::Rng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::facts::{Class, Pid, Qid};
use super::line::fill;
use super::questions::id;
use super::records::{pick, provenance};
use super::wording::Style;
use super::world::{Fact, Part, World};

/// A kind of long question: its wordings, and the sentences of its answer with the relation that each needs.
struct Theme {
    class: Class,
    questions: [&'static str; 3],
    /// The first sentence is needed; of the others at least one.
    sentences: &'static [(u64, [&'static str; 2])],
}

const THEMES: [Theme; 5] = [
    Theme {
        class: Class::Person,
        questions: [
            "Who is {s} and why do people still talk about them?",
            "Why should I know the name {s}?",
            "ELI5: what is it that {s} is known for?",
        ],
        sentences: &[
            (106, ["{s} is best known as {o}.", "People know {s} best as {o}."]),
            (27, ["They were a citizen of {o}.", "Their country was {o}."]),
            (19, ["Their story starts in {o}, where they were born.", "They were born in {o}."]),
        ],
    },
    Theme {
        class: Class::Person,
        questions: [
            "How did {s} make a name in music?",
            "What kind of music does {s} make and how did it get out?",
            "Why do music fans care about {s}?",
        ],
        sentences: &[
            (136, ["{s} made a name with {o}.", "The music of {s} is {o}."]),
            (264, ["The records came out on {o}.", "Their label was {o}."]),
            (1303, ["You can hear them on {o}.", "Their instruments are {o}."]),
        ],
    },
    Theme {
        class: Class::Person,
        questions: [
            "How did {s} become a scholar?",
            "What did the working life of {s} look like?",
            "How did {s} come to do such work?",
        ],
        sentences: &[
            (101, ["The field that {s} chose was {o}.", "{s} chose the field of {o}."]),
            (69, ["They learned it at {o}.", "Their school was {o}."]),
            (108, ["Later they had a job at {o}.", "Their employer was {o}."]),
            (463, ["They were also welcomed into {o}.", "Their society was {o}."]),
        ],
    },
    Theme {
        class: Class::Person,
        questions: [
            "How did the life of {s} come to an end?",
            "What happened to {s} in the end?",
            "Why and where did {s} pass away?",
        ],
        sentences: &[
            (20, ["{s} died in {o}.", "The life of {s} ended in {o}."]),
            (509, ["What ended their life was {o}.", "The cause was {o}."]),
            (119, ["Their grave can be found in {o}.", "They were buried in {o}."]),
            (19, ["Their life had begun in {o}.", "They had been born in {o}."]),
        ],
    },
    Theme {
        class: Class::Place,
        questions: [
            "What is it that makes {s} fit into the wider world?",
            "How does {s} fit into the world?",
            "ELI5: what kind of country is {s}?",
        ],
        sentences: &[
            (30, ["You find {s} in {o}.", "The continent of {s} is {o}."]),
            (37, ["In offices there people use {o}.", "Its language is {o}."]),
            (463, ["It sits at the table of {o}.", "It works together with others in {o}."]),
            (530, ["It exchanges ambassadors with {o}.", "It has friends such as {o}."]),
        ],
    },
];

/// A fact and the two forms of its sentence.
type Said<'w> = (&'w Fact, [&'static str; 2]);

/// Whether an object takes its article in these sentences.
fn style(pid: u64) -> Style {
    match pid {
        106 => Style::A,
        27 | 69 | 108 | 463 | 530 => Style::The,
        _ => Style::Plain,
    }
}

/// ELI5: two paragraphs of two or three sentences answer a how, why or what question.
pub(crate) fn eli5(world: &World, part: Part, count: usize, rng: &mut ChaCha8Rng) -> Vec<Value> {
    let mut by: BTreeMap<Qid, BTreeMap<Pid, &Fact>> = BTreeMap::new();
    for fact in world.facts_of(part) {
        by.entry(fact.subject).or_default().insert(fact.pid, fact);
    }
    let mut askable: Vec<(Qid, &Theme, Vec<Said<'_>>)> = Vec::new();
    for (qid, facts) in &by {
        for theme in THEMES.iter().filter(|t| t.class == world.facts.class(*qid)) {
            let first = Pid(theme.sentences[0].0);
            let mut said: Vec<Said<'_>> = theme
                .sentences
                .iter()
                .filter_map(|(p, forms)| Some((*facts.get(&Pid(*p))?, *forms)))
                .collect();
            said.truncate(3);
            if said.len() >= 2 && said[0].0.pid == first {
                askable.push((*qid, theme, said));
            }
        }
    }
    askable.shuffle(rng);
    let mut records = Vec::new();
    for (qid, theme, said) in askable.into_iter().take(count) {
        let name = world.name(qid);
        let paragraph = |form: usize| {
            let sentences: Vec<String> = said
                .iter()
                .map(|(fact, forms)| {
                    let named = &fact.stated[..fact.stated.len().min(2)];
                    super::names::capitalised(&fill(
                        &world.facts,
                        forms[form],
                        &name,
                        style(fact.pid.0),
                        named,
                    ))
                })
                .collect();
            sentences.join(" ")
        };
        let mut evidence: Vec<Value> = Vec::new();
        for (fact, _) in &said {
            evidence.push(provenance(world, fact));
        }
        let question = theme.questions[rng.random_range(0..theme.questions.len())].replace("{s}", &name);
        records.push(json!({
            "id": format!("mk{}", id(part, 0, records.len())),
            "input": question,
            "output": [
                {"answer": paragraph(0), "meta": {"score": 5}},
                {"answer": paragraph(1), "meta": {"score": 3}},
                {"provenance": evidence},
            ],
        }));
    }
    records
}

const OPENERS: [&str; 5] = [
    "I have been reading about {s} lately.",
    "My friend keeps talking about {s}.",
    "Have you ever heard of {s}?",
    "Yesterday I saw a film about {s}.",
    "I am a great fan of {s}.",
];

/// A dialogue about one subject: its turns and the facts that its answers use.
pub(crate) struct Dialogue<'w> {
    /// Turns up to the question; the next one is the answer.
    pub turns: Vec<String>,
    /// The next turn.
    pub answer: String,
    /// The fact of the next turn.
    pub fact: &'w Fact,
}

/// Dialogues whose last turn asks for a fact.
pub(crate) fn dialogues<'w>(
    world: &'w World,
    part: Part,
    count: usize,
    rng: &mut ChaCha8Rng,
) -> Vec<Dialogue<'w>> {
    let all = world.facts_of(part);
    let facts = pick(&all, count, rng);
    let mut by: BTreeMap<Qid, Vec<&Fact>> = BTreeMap::new();
    for fact in all {
        by.entry(fact.subject).or_default().push(fact);
    }
    let mut found = Vec::new();
    for fact in facts {
        let name = world.name(fact.subject);
        let say = |fact: &Fact, key: &str, at: usize| {
            let wording = world.wording(fact);
            let line = fill(&world.facts, &wording.list(key)[at], &name, wording.style, &fact.stated);
            super::names::capitalised(&line)
        };
        let mut turns = vec![OPENERS[rng.random_range(0..OPENERS.len())].replace("{s}", &name)];
        let other = by[&fact.subject].iter().filter(|f| f.pid != fact.pid).collect::<Vec<_>>();
        match (rng.random_range(0..3), other.choose(rng)) {
            (0, Some(other)) => {
                let wording = world.wording(other);
                let at = rng.random_range(0..wording.list("ask").len());
                turns.push("Oh yes, ask me anything.".to_owned());
                turns.push(say(other, "ask", at));
                turns.push(say(other, "tell", at));
                turns.push("Interesting!".to_owned());
            }
            (1, _) => turns.push("Nice, what would you like to know?".to_owned()),
            _ => {}
        }
        let at = rng.random_range(0..world.wording(fact).list("ask").len());
        let question = say(fact, "ask", at);
        // Two turns of the same speaker make one.
        if turns.len() % 2 == 1 {
            let last = turns.len() - 1;
            turns[last] = format!("{} {question}", turns[last]);
        } else {
            turns.push(question);
        }
        found.push(Dialogue { turns, answer: say(fact, "tell", at), fact });
    }
    found
}

/// Wizard of Wikipedia: turns joined by newlines; the next turn uses one sentence of a page.
pub(crate) fn wow(world: &World, part: Part, count: usize, rng: &mut ChaCha8Rng) -> Vec<Value> {
    let records = dialogues(world, part, count, rng).into_iter().enumerate().map(|(i, dialogue)| {
        json!({
            "id": format!("minikilt-wow-{}_{}", id(part, 0, i), dialogue.turns.len() / 2),
            "input": dialogue.turns.join("\n"),
            "output": [{"answer": dialogue.answer, "provenance": [provenance(world, dialogue.fact)]}],
        })
    });
    records.collect()
}
