//! Entity linking: AIDA CoNLL-YAGO, WNED and CWEB, one marked mention per record.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::facts::{Class, Qid};
use super::line::fill;
use super::names;
use super::questions::id;
use super::records::{one, page_provenance, pick};
use super::world::{Fact, Part, World};

/// The kind of text around the mention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// News.
    Aida,
    /// Encyclopedic prose.
    Wned,
    /// A web page with its menus.
    Cweb,
}

const NEWS: [(&str, &str); 6] = [
    ("", ", who {1} and {2}, was in the news again on Monday ."),
    ("On Friday the paper wrote about ", ", who {1} and {2} ."),
    ("A new film tells of ", ", who {1} and {2} ."),
    (
        "The museum opened a room for ",
        " on Tuesday . The visitors learn that the guest of honour {1} and {2} .",
    ),
    ("Critics praised a show about ", " . It recalls someone who {1} and {2} ."),
    ("VIENNA 2001-05-04 A letter of ", ", who {1} and {2}, was sold on Thursday ."),
];

const PROSE: [(&str, &str); 4] = [
    ("One chapter is about ", ", who {1} and {2} ."),
    ("In later years ", " was often quoted . This is the same person who {1} and {2} ."),
    ("The name of ", " stands for someone who {1} and {2} ."),
    ("Historians write that ", " {1} and {2} ."),
];

const NEWS_OTHER: [(&str, &str); 3] = [
    ("On Friday the paper wrote about ", ", which {1} and {2} ."),
    ("New rules were announced in the office of ", ", which {1} and {2} ."),
    ("The report names ", " . It says that it {1} and {2} ."),
];

/// Contexts without information about the entity.
const BARE: [(&str, &str); 5] = [
    ("The museum opened a room for", "on Tuesday ."),
    ("On Friday the paper wrote about", "at great length ."),
    ("VIENNA 2001-05-04 An album with pictures of", "was sold on Thursday ."),
    ("Few readers had asked for a story on", "this week ."),
    ("The name of", "was on every wall ."),
];

/// Relations in whose clauses the object is the marked one.
const OBJECTS: [u64; 9] = [264, 69, 108, 1412, 19, 20, 136, 463, 27];

/// A record's marked text.
struct Marked {
    left: String,
    mention: String,
    right: String,
    target: Qid,
}

/// Records of a split. Training also contains every subject of dev and test once, with its full name in a text
/// without facts. So its name can be generated, and no fact of dev and test is revealed.
pub(crate) fn linking(
    world: &World,
    source: Source,
    part: Part,
    count: usize,
    rng: &mut ChaCha8Rng,
) -> Vec<Value> {
    let mut facts: BTreeMap<Qid, Vec<&Fact>> = BTreeMap::new();
    for fact in world.facts_of(part).into_iter().filter(|f| f.pid.0 != 530) {
        facts.entry(fact.subject).or_default().push(fact);
    }
    facts.retain(|_, list| list.len() >= 2);
    let mut subjects: Vec<Qid> = facts.keys().copied().collect();
    let mut marked = Vec::new();
    if part == Part::Train {
        let subjects: BTreeSet<Qid> =
            world.stated.values().filter(|f| f.part != part).map(|f| f.subject).collect();
        for target in subjects {
            let (left, right) = BARE[rng.random_range(0..BARE.len())];
            marked.push(Marked {
                left: left.into(),
                mention: world.label(target).into(),
                right: right.into(),
                target,
            });
        }
    }
    let objects = objects(world, part, count / 8, rng);
    marked.extend(objects);
    while marked.len() < count && !subjects.is_empty() {
        // Every round has each subject once, in another text.
        subjects.shuffle(rng);
        for &subject in subjects.iter().take(count - marked.len()) {
            marked.push(text(world, source, subject, &facts[&subject], rng));
        }
    }
    marked.shuffle(rng);
    let stem = format!("{source:?}").to_lowercase();
    let records = marked.into_iter().enumerate().map(|(i, mut m)| {
        if source == Source::Cweb {
            let server = ["Apache", "nginx", "IIS"][rng.random_range(0..3)];
            m.left = format!("Content-Type : text/html Server : {server} Home | News | Contact {}", m.left);
            m.right += " Share this page | Back to top";
        }
        let input = [m.left.trim(), "[START_ENT]", &m.mention, "[END_ENT]", m.right.trim()].join(" ");
        json!({
            "id": format!("minikilt_{stem}_{}:0", id(part, 0, i)),
            "input": input.trim(),
            "output": [{"answer": world.pages[&m.target].title, "provenance": [page_provenance(world, m.target)]}],
            "meta": {"left_context": m.left.trim(), "mention": m.mention, "right_context": m.right.trim()},
        })
    });
    records.collect()
}

/// Mentions of a fact's object: "studied at Columbia" and "recorded for Columbia" refer to two pages.
fn objects(world: &World, part: Part, count: usize, rng: &mut ChaCha8Rng) -> Vec<Marked> {
    let asked = |f: &&Fact| f.class == Class::Person && OBJECTS.contains(&f.pid.0);
    let facts: Vec<&Fact> = world.facts_of(part).into_iter().filter(asked).collect();
    let mut found = Vec::new();
    for fact in pick(&facts, count, rng) {
        let wording = world.wording(fact);
        let (Some(&target), Some((before, after))) =
            (fact.stated.choose(rng), wording.one("clause").split_once("{o}"))
        else {
            continue;
        };
        let entity = &world.facts.entities[&target];
        let mention = mention(world, target, rng);
        let the =
            if mention == entity.label { names::article(entity, Class::Thing, wording.style) } else { "" };
        let kind = if rng.random_bool(0.5) {
            format!(" , {}{} ,", names::indefinite(&entity.kind), entity.kind)
        } else {
            String::new()
        };
        let name = world.label(fact.subject);
        let (left, right) = match rng.random_range(0..3) {
            0 => (format!("{name} {before}{the}"), format!("{after}{kind} as was told on Monday .")),
            1 => (
                format!("A guide says that {name} {before}{the}"),
                format!("{after}{kind} and left a mark there ."),
            ),
            _ => (
                format!("It is known that {name} {before}{the}"),
                format!("{after}{kind} long before the show opened ."),
            ),
        };
        found.push(Marked { left, mention, right, target });
    }
    found
}

fn text(world: &World, source: Source, subject: Qid, facts: &[&Fact], rng: &mut ChaCha8Rng) -> Marked {
    let person = world.facts.class(subject) == Class::Person;
    let mut chosen: Vec<&&Fact> = facts.choose_multiple(rng, 3.min(facts.len())).collect();
    chosen.shuffle(rng);
    let clauses: Vec<String> = chosen
        .iter()
        .map(|fact| {
            let wording = world.wording(fact);
            let objects: Vec<Qid> = fact.stated.choose(rng).into_iter().copied().collect();
            fill(&world.facts, one(wording.list("clause"), rng), "", wording.style, &objects)
        })
        .collect();
    let frames: &[(&str, &str)] = match source {
        _ if !person => &NEWS_OTHER,
        Source::Aida => &NEWS,
        Source::Wned => &PROSE,
        Source::Cweb if rng.random_bool(0.5) => &NEWS,
        Source::Cweb => &PROSE,
    };
    let (left, right) = frames[rng.random_range(0..frames.len())];
    let mut right = right.replace("{1}", &clauses[0]).replace("{2}", &clauses[1]);
    if let (Some(third), true) = (clauses.get(2), source != Source::Aida || rng.random_bool(0.5)) {
        right += &format!(" {} {third} .", if person { "The same person" } else { "The same one" });
    }
    Marked { left: left.to_owned(), mention: mention(world, subject, rng), right, target: subject }
}

/// Usually a short name, which is ambiguous without its context; otherwise the whole label.
fn mention(world: &World, subject: Qid, rng: &mut ChaCha8Rng) -> String {
    let short = names::aliases(&world.facts, subject);
    match short.choose(rng) {
        Some(short) if rng.random_bool(0.85) => short.clone(),
        _ => world.label(subject).to_owned(),
    }
}
