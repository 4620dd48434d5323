//! The small WOW++, KnowledgeNet and KoRC files, and the background knowledge base.

use std::collections::BTreeMap;

use rand::Rng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};

use super::facts::{Class, Pid, Qid};
use super::line::{Line, fill, render};
use super::long::dialogues;
use super::names::{self, Subject};
use super::records::{File, lines, one};
use super::world::{Fact, Part, World};

/// WOW++: candidates of a dialogue with the share of annotators who would use them. Other facts of the topic
/// get a lower share, sentences of other pages none. One dialogue in eight has no relevant sentence.
pub(crate) fn wowpp(world: &World, part: Part, count: usize, rng: &mut ChaCha8Rng) -> Value {
    let mut all = Map::new();
    for (index, dialogue) in dialogues(world, part, count, rng).into_iter().enumerate() {
        let topic = dialogue.fact.subject;
        let mut sentences: Vec<Value> = Vec::new();
        let mut add = |fact: &Fact, share: f64| {
            let title = &world.pages[&fact.subject].title;
            let mut label = format!("{title} <knowledge_separator> {}", world.sentence(fact));
            if sentences.len() % 3 == 2 {
                // The original has labels whose UTF-8 was read as Latin-1; ASCII is unchanged.
                label = label.bytes().map(char::from).collect();
            }
            sentences.push(json!({
                "label": label,
                "confidence": share,
                "relevance": if share >= 0.6 { "relevant" } else { "notRelevant" },
                "article": title,
            }));
        };
        let none = index % 8 == 7;
        let asked = [0.6, 0.8, 1.0][rng.random_range(0..3)];
        add(dialogue.fact, if none { 0.4 } else { asked });
        let range = (topic, Pid(0))..=(topic, Pid(u64::MAX));
        for (_, fact) in world.stated.range(range).filter(|(key, _)| key.1 != dialogue.fact.pid).take(6) {
            let others = if none { [0.0, 0.2, 0.4] } else { [0.2, 0.4, 0.6] };
            add(fact, others[rng.random_range(0..3)]);
        }
        let facts = world.facts_of(part);
        for fact in facts.choose_multiple(rng, 12).filter(|f| f.subject != topic) {
            add(fact, 0.0);
        }
        sentences.shuffle(rng);
        if index % 4 == 3 {
            // As in the original, a label may be repeated.
            let again = sentences[0].clone();
            sentences.push(again);
        }
        let turns = &dialogue.turns;
        all.insert(
            format!("minikilt-{}-{index:04}", part.name()),
            json!({"turns": turns, "topic": world.pages[&topic].title, "annotated_sentences": sentences}),
        );
    }
    Value::Object(all)
}

/// KnowledgeNet's properties and their relations; `true` if subject and object are swapped.
const PROPERTIES: [(&str, &str, &[u64], bool); 11] = [
    ("1", "SUBSIDIARY_OF", &[749], false),
    ("2", "FOUNDED_BY", &[112], false),
    ("3", "EMPLOYEE_OR_MEMBER_OF", &[108, 463], false),
    ("6", "HEADQUARTERS", &[159], false),
    ("9", "EDUCATED_AT", &[69], false),
    ("10", "NATIONALITY", &[27], false),
    ("11", "PLACE_OF_RESIDENCE", &[551], false),
    ("12", "PLACE_OF_BIRTH", &[19], false),
    ("25", "SPOUSE", &[26], false),
    ("34", "CHILD_OF", &[40], true),
    ("45", "POLITICAL_AFFILIATION", &[102], false),
];

/// KnowledgeNet: folds 1 to 4 of documents generated from the facts, a test file of fold 5 with its gold in a
/// separate file, and the page of each document's subject.
pub(crate) fn knowledgenet(world: &World, rng: &mut ChaCha8Rng) -> std::io::Result<Vec<File>> {
    let mut train = Vec::new();
    let mut test = Vec::new();
    let mut blind = Vec::new();
    // A document has the topic of a page, because KnowledgeNet's documents are the beginnings of pages.
    let mut pages = String::new();
    for (part, count) in [(Part::Train, 60), (Part::Dev, 20), (Part::Test, 20)] {
        let mut subjects: BTreeMap<Qid, Vec<&Fact>> = BTreeMap::new();
        let mapped = |f: &&Fact| {
            PROPERTIES.iter().any(|(_, _, pids, _)| pids.contains(&f.pid.0)) && f.class != Class::Place
        };
        for fact in world.facts_of(part).into_iter().filter(mapped) {
            subjects.entry(fact.subject).or_default().push(fact);
        }
        let mut chosen: Vec<(Qid, Vec<&Fact>)> =
            subjects.into_iter().filter(|(_, facts)| facts.len() >= 3).collect();
        chosen.shuffle(rng);
        for (index, (subject, facts)) in chosen.into_iter().take(count).enumerate() {
            let fold = match part {
                Part::Train => 1 + index % 3,
                Part::Dev => 4,
                Part::Test => 5,
            };
            let id = (7_000 + 1_000 * fold + index).to_string();
            let document = document(world, fold, &id, subject, &facts, rng);
            pages += &format!("{id}\t{}\n", world.pages[&subject].id);
            if part == Part::Test {
                let mut without = document.clone();
                for passage in without["passages"].as_array_mut().into_iter().flatten() {
                    passage["facts"] = json!([]);
                }
                blind.push(without);
                test.push(document);
            } else {
                train.push(document);
            }
        }
    }
    Ok(vec![
        File::new("knowledgenet/train.json", &lines(&train))?,
        File::new("knowledgenet/test-no-facts.json", &lines(&blind))?,
        File::new("gold/knowledgenet-test.json", &lines(&test))?,
        File::new("knowledgenet/pages.tsv", &pages)?,
    ])
}

fn document(
    world: &World,
    fold: usize,
    id: &str,
    subject: Qid,
    facts: &[&Fact],
    rng: &mut ChaCha8Rng,
) -> Value {
    let label = world.label(subject).to_owned();
    let uri = |qid: Qid| format!("http://www.wikidata.org/entity/{qid}");
    let mut whole = String::new();
    let mut passages = Vec::new();
    for (number, fact) in facts.iter().enumerate() {
        let wording = world.wording(fact);
        let short = names::surname(&label).unwrap_or(&label);
        let name = if number == 0 || rng.random_bool(0.4) { label.as_str() } else { short };
        let line = render(
            &world.facts,
            one(wording.list("page"), rng),
            &Subject::Name(name.to_owned()),
            wording.style,
            &fact.stated,
        );
        if !whole.is_empty() {
            whole.push(' ');
        }
        let from = whole.chars().count();
        whole.push_str(&line.text);
        let to = whole.chars().count();
        let found = line.text.find(name).map(|byte| from + line.text[..byte].chars().count());
        let mut exhaustive = Vec::new();
        let mut rows = Vec::new();
        for (property, title, pids, swapped) in PROPERTIES {
            let bodies = matches!(property, "1" | "2" | "6");
            if bodies == (fact.class == Class::Person) {
                continue;
            }
            exhaustive
                .push(json!({"propertyId": property, "propertyName": title, "propertyDescription": ""}));
            let Some(start) = found.filter(|_| pids.contains(&fact.pid.0)) else { continue };
            let owner = (start, start + name.chars().count(), name.to_owned(), uri(subject));
            for link in &line.links {
                let text = world.label(link.qid).to_owned();
                let value = (from + link.start, from + link.end, text, uri(link.qid));
                let (s, o) = if swapped { (value, owner.clone()) } else { (owner.clone(), value) };
                rows.push(json!({
                    "factId": format!("{id}:{}:{}:{}:{}:{property}", s.0, s.1, o.0, o.1),
                    "propertyId": property,
                    "humanReadable": format!("<{}> <{title}> <{}>", s.2, o.2),
                    "annotatedPassage": line.text.replacen(&s.2, &format!("<{}>", s.2), 1).replacen(&o.2, &format!("<{}>", o.2), 1),
                    "subjectStart": s.0, "subjectEnd": s.1, "subjectText": s.2, "subjectUri": s.3,
                    "objectStart": o.0, "objectEnd": o.1, "objectText": o.2, "objectUri": o.3,
                }));
            }
        }
        passages.push(json!({
            "passageId": format!("{id}:{from}:{to}"), "passageStart": from, "passageEnd": to, "passageText": line.text,
            "exhaustivelyAnnotatedProperties": exhaustive, "facts": rows,
        }));
    }
    json!({"fold": fold, "documentId": id, "source": "minikilt", "documentText": whole, "passages": passages})
}

/// Relations that occur only in KoRC's out-of-distribution test.
const KORC_UNSEEN: [u64; 3] = [264, 108, 551];

/// KoRC: a text with a hidden topic, and a question about the hidden topic's object, which the knowledge base answers.
pub(crate) fn korc(world: &World, rng: &mut ChaCha8Rng) -> std::io::Result<Vec<File>> {
    let mut files = Vec::new();
    let parts = [
        ("korc/train.json", Part::Train, 300, false),
        ("korc/valid.json", Part::Dev, 80, false),
        ("korc/small_iid_test.json", Part::Test, 60, false),
        ("korc/small_ood_test.json", Part::Test, 60, true),
    ];
    for (name, part, count, unseen) in parts {
        let asked = |f: &&Fact| {
            f.class == Class::Person
                && !matches!(f.pid.0, 106 | 27)
                && KORC_UNSEEN.contains(&f.pid.0) == unseen
        };
        let mut facts: Vec<&Fact> = world.facts_of(part).into_iter().filter(asked).collect();
        facts.shuffle(rng);
        let mut list = Vec::new();
        for fact in facts.into_iter() {
            if list.len() == count {
                break;
            }
            let range = (fact.subject, Pid(0))..=(fact.subject, Pid(u64::MAX));
            let others: Vec<&Fact> =
                world.stated.range(range).map(|(_, f)| f).filter(|f| f.pid != fact.pid).collect();
            if others.len() < 3 {
                continue;
            }
            let mut context = Line::default();
            for (number, other) in others.into_iter().take(5).enumerate() {
                let hidden = if number == 0 { "[a person]" } else { "this person" };
                let wording = world.wording(other);
                context.push(if number == 0 { "" } else { " " });
                let subject = Subject::Name(hidden.to_owned());
                context.append(&render(
                    &world.facts,
                    one(wording.list("page"), rng),
                    &subject,
                    wording.style,
                    &other.stated,
                ));
            }
            let wording = world.wording(fact);
            let say = |template: &str| {
                let text = fill(&world.facts, template, "this person", wording.style, &[]);
                names::capitalised(text.trim_end_matches('?')) + "?"
            };
            list.push(json!({
                "id": format!("minikilt-korc-{}-{}", part.name(), list.len() + if unseen { 1_000 } else { 0 }),
                "title": world.pages[&fact.subject].title,
                "context": context.text,
                "question": say(one(wording.list("q"), rng)),
                "gpt_best_question": say(one(wording.list("trivia"), rng)),
                "template_question": format!("What is the {} of this person?", world.facts.relations[&fact.pid].label),
                "answers": fact.all.iter().map(|&o| world.label(o)).collect::<Vec<_>>(),
                "answer_ids": fact.all.iter().map(Qid::to_string).collect::<Vec<_>>(),
                "topic_entity": [fact.subject.to_string()],
                "provenance": [{"wikipedia_id": world.pages[&fact.subject].id}],
            }));
        }
        files.push(File::new(name, &format!("{}\n", Value::Array(list)))?);
    }
    Ok(files)
}

/// The background knowledge base: triples, entities with title, page id and aliases, and relations.
pub(crate) fn knowledge_base(world: &World) -> std::io::Result<Vec<File>> {
    let mut triples = String::new();
    for ((subject, pid), objects) in &world.facts.statements {
        for object in objects {
            triples += &format!("{subject}\t{pid}\t{object}\n");
        }
    }
    let mut entities = String::from("id\tlabel\ttitle\twikipedia_id\ttype\taliases\n");
    for (qid, page) in &world.pages {
        let entity = &world.facts.entities[qid];
        let aliases = names::aliases(&world.facts, *qid).join("|");
        entities +=
            &format!("{qid}\t{}\t{}\t{}\t{}\t{aliases}\n", entity.label, page.title, page.id, entity.kind);
    }
    let mut relations = String::from("id\tlabel\taliases\n");
    for (pid, relation) in &world.facts.relations {
        relations += &format!("{pid}\t{}\t{}\n", relation.label, relation.aliases.join("|"));
    }
    Ok(vec![
        File::new("kb/triples.tsv.gz", &triples)?,
        File::new("kb/entities.tsv", &entities)?,
        File::new("kb/relations.tsv", &relations)?,
    ])
}
