//! Records as JSON, and files as bytes.

use std::io::Write;

use flate2::{Compression, GzBuilder};
use rand::Rng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};

use super::facts::{Pid, Qid};
use super::names;
use super::page::Page;
use super::world::{Fact, Part, World};

/// A file of the data, named from its root.
pub(crate) struct File {
    /// Relative path.
    pub name: String,
    /// Content.
    pub bytes: Vec<u8>,
}

impl File {
    /// A text file. If its name ends in `.gz`, it is compressed without a time stamp, so its bytes are reproducible.
    pub(crate) fn new(name: impl Into<String>, text: &str) -> std::io::Result<Self> {
        let name = name.into();
        let bytes = if name.ends_with(".gz") {
            let mut writer =
                GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::best());
            writer.write_all(text.as_bytes())?;
            writer.finish()?
        } else {
            text.as_bytes().to_vec()
        };
        Ok(Self { name, bytes })
    }
}

/// One JSON value per line.
pub(crate) fn lines(records: &[Value]) -> String {
    records.iter().map(|r| format!("{r}\n")).collect()
}

/// A page in the layout of the knowledge source.
pub(crate) fn page(world: &World, page: &Page) -> Value {
    let anchors: Vec<Value> = page
        .anchors
        .iter()
        .map(|(paragraph, link)| {
            let text: String = page.text[*paragraph].chars().skip(link.start).take(link.end - link.start).collect();
            let href = quote(&world.pages[&link.qid].title);
            json!({"text": text, "href": href, "paragraph_id": paragraph, "start": link.start, "end": link.end})
        })
        .collect();
    let mut wikidata = Map::new();
    if let Some(qid) = page.qid {
        wikidata.insert("wikidata_id".into(), qid.to_string().into());
        wikidata.insert("wikidata_label".into(), world.label(qid).into());
        wikidata.insert("wikipedia_title".into(), page.title.clone().into());
        wikidata.insert("aliases".into(), json!({"alias": names::aliases(&world.facts, qid)}));
    }
    json!({
        "_id": page.id,
        "wikipedia_id": page.id,
        "wikipedia_title": page.title,
        "text": page.text,
        "anchors": anchors,
        "categories": page.categories.join(","),
        "history": {"pageid": page.id, "url": format!("https://minikilt.invalid/wiki/{}", quote(&page.title))},
        "wikidata_info": wikidata,
    })
}

/// Percent-encodes a title like the link targets of wiki extractors.
pub(crate) fn quote(title: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_.-~/".contains(&b);
    title.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// The sentence of a fact as provenance.
pub(crate) fn provenance(world: &World, fact: &Fact) -> Value {
    let page = &world.pages[&fact.subject];
    json!({
        "wikipedia_id": page.id,
        "title": page.title,
        "section": page.header(fact.span.paragraph),
        "start_paragraph_id": fact.span.paragraph,
        "start_character": fact.span.start,
        "end_paragraph_id": fact.span.paragraph,
        "end_character": fact.span.end,
        "bleu_score": 1.0,
    })
}

/// A whole page as provenance, for entity linking.
pub(crate) fn page_provenance(world: &World, qid: Qid) -> Value {
    let page = &world.pages[&qid];
    json!({"wikipedia_id": page.id, "title": page.title})
}

/// Answers of a fact: each stated object with its sentence, then other right answers without a sentence.
pub(crate) fn answers(world: &World, fact: &Fact, with_aliases: bool) -> Vec<Value> {
    let stated = |o: &Qid| fact.stated.contains(o);
    let with = fact.all.iter().filter(|o| stated(o));
    let mut found: Vec<Value> =
        with.map(|&o| json!({"answer": world.label(o), "provenance": [provenance(world, fact)]})).collect();
    found.extend(fact.all.iter().filter(|o| !stated(o)).map(|&o| json!({"answer": world.label(o)})));
    if with_aliases {
        // With a short name that several entities share, a wrong answer would count as right.
        let short = fact.all.iter().flat_map(|&o| names::aliases(&world.facts, o));
        let single = short.filter(|alias| world.bearers.get(alias).is_some_and(|who| who.len() == 1));
        found.extend(single.map(|alias| json!({"answer": alias})));
    }
    found
}

/// Up to `count` different facts, sampled by relation with weights that balance frequent and rare relations.
pub(crate) fn pick<'w>(facts: &[&'w Fact], count: usize, rng: &mut ChaCha8Rng) -> Vec<&'w Fact> {
    let mut by: std::collections::BTreeMap<Pid, Vec<&'w Fact>> = std::collections::BTreeMap::new();
    for &fact in facts {
        by.entry(fact.pid).or_default().push(fact);
    }
    let mut pools: Vec<(f64, Vec<&'w Fact>)> = by
        .into_values()
        .map(|mut pool| {
            pool.shuffle(rng);
            ((pool.len() as f64).sqrt(), pool)
        })
        .collect();
    let mut picked = Vec::new();
    while picked.len() < count && !pools.is_empty() {
        let total: f64 = pools.iter().map(|(weight, _)| weight).sum();
        let mut point = rng.random_range(0.0..total);
        let index = pools.iter().position(|(weight, _)| {
            point -= weight;
            point < 0.0
        });
        let index = index.unwrap_or(pools.len() - 1);
        picked.extend(pools[index].1.pop());
        if pools[index].1.is_empty() {
            pools.remove(index);
        }
    }
    picked
}

/// One template of a list.
pub(crate) fn one<'t>(templates: &'t [String], rng: &mut ChaCha8Rng) -> &'t str {
    templates.choose(rng).map_or("", String::as_str)
}

/// The number of records of a dataset in each split.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    /// Training records.
    pub train: usize,
    /// Development records.
    pub dev: usize,
    /// Test records.
    pub test: usize,
}

impl Size {
    /// The number for a split.
    pub(crate) fn of(self, part: Part) -> usize {
        match part {
            Part::Train => self.train,
            Part::Dev => self.dev,
            Part::Test => self.test,
        }
    }
}

/// A dataset's files: train and dev with answers, test without answers, and the test gold in a separate file.
pub(crate) fn task_files(stem: &str, tag: &str, part: Part, records: &[Value]) -> std::io::Result<Vec<File>> {
    let without = |record: &Value| {
        let mut record = record.clone();
        if let Some(map) = record.as_object_mut() {
            map.shift_remove("output");
            // Surface forms of the object would reveal the answer.
            if let Some(meta) = map.get_mut("meta").and_then(Value::as_object_mut) {
                meta.shift_remove("obj_surface");
            }
        }
        record
    };
    Ok(match part {
        Part::Train => vec![File::new(format!("kilt/{stem}-train{tag}-kilt.jsonl.gz"), &lines(records))?],
        Part::Dev => vec![File::new(format!("kilt/{stem}-dev{tag}-kilt.jsonl"), &lines(records))?],
        Part::Test => {
            let blind: Vec<Value> = records.iter().map(without).collect();
            vec![
                File::new(format!("kilt/{stem}-test{tag}_without_answers-kilt.jsonl"), &lines(&blind))?,
                File::new(format!("gold/{stem}-test{tag}-kilt.jsonl"), &lines(records))?,
            ]
        }
    })
}
