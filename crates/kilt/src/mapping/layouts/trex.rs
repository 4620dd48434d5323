//! T-REx (Elsahar et al. 2018).

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::json;

use super::Layout;
use crate::{
    Error, Result,
    kb::{Names, read_names},
    mapping::{
        own::{Answer, Claim, Own, Piece, distinct_texts},
        sample,
        source::{Place, Source, Take},
    },
};

/// The largest number of sentences of a fact.
const MAX_SENTENCES: usize = 20;

/// The least number of facts of a relation.
const MIN_FACTS: usize = 1000;

/// The number of records in each of `dev` and `test`.
const HELD_OUT: usize = 5000;

/// Arrays of documents, `{title, text, sentences_boundaries, triples: [{subject, predicate, object, sentence_id}]}`.
/// Facts with more than `max-sentences` sentences are left out, then relations with fewer than `min-facts` facts. The
/// facts of a subject and a relation are one record. Each object is an answer, and so are its aliases. Each sentence
/// is a set of evidence.
///
/// `held-out` records are drawn for `dev`, then as many for `test`; the rest is `train`.
///
/// The tables of the option `names` give labels and aliases of entities and relations. Without a row, the label is the
/// most frequent form in the texts; a relation without a form has its id. `meta` has the forms and the subject's
/// aliases.
pub(super) const LAYOUT: Layout = Layout {
    name: "trex",
    about: "T-REx's JSON documents; --names for labels and aliases; dev and test are drawn by --seed",
    options: &["seed", "names", "max-sentences", "min-facts", "held-out"],
    read,
};

#[derive(Deserialize)]
struct Document {
    title: String,
    text: String,
    sentences_boundaries: Vec<(usize, usize)>,
    triples: Vec<Triple>,
}

#[derive(Deserialize)]
struct Triple {
    subject: Name,
    predicate: Name,
    object: Name,
    sentence_id: usize,
}

#[derive(Deserialize)]
struct Name {
    uri: String,
    #[serde(default)]
    surfaceform: Option<String>,
}

/// Facts with numbered ids and sentences.
#[derive(Default)]
struct Facts {
    /// The largest number of sentences of a fact.
    max: usize,
    ids: Names,
    /// How often each form of an id is in the texts.
    forms: FxHashMap<u32, Vec<(String, u64)>>,
    titles: Vec<String>,
    /// The index of the title, and the text.
    sentences: Vec<(usize, String)>,
    /// The sentences of each fact, by subject, relation and object.
    facts: BTreeMap<(u32, u32, u32), Vec<usize>>,
}

impl Facts {
    fn number(&mut self, name: &Name) -> Result<u32> {
        let full =
            || Error::Argument("expected less than 2^32 entities and relations, found more".to_owned());
        let number = self.ids.intern(local(&name.uri)).ok_or_else(full)?;
        let form = name.surfaceform.as_deref().map(str::trim).unwrap_or_default();
        if !form.is_empty() {
            let forms = self.forms.entry(number).or_default();
            // Most ids have few forms, so a list is small and fast.
            match forms.iter_mut().find(|(known, _)| known == form) {
                Some((_, count)) => *count += 1,
                None => forms.push((form.to_owned(), 1)),
            }
        }
        Ok(number)
    }

    fn add(&mut self, place: &Place<'_>, document: &Document) -> Result<()> {
        if document.triples.is_empty() {
            return Ok(());
        }
        // The bytes of the characters, and that of the end.
        let bytes: Vec<usize> =
            document.text.char_indices().map(|(at, _)| at).chain([document.text.len()]).collect();
        let title = self.titles.len();
        self.titles.push(document.title.clone());
        // The numbers of this document's sentences.
        let mut known: FxHashMap<usize, usize> = FxHashMap::default();
        for (at, triple) in document.triples.iter().enumerate() {
            let sentence = match known.get(&triple.sentence_id) {
                Some(&sentence) => sentence,
                None => {
                    let Some(&(start, end)) = document.sentences_boundaries.get(triple.sentence_id) else {
                        let message = format!(
                            "expected one of the {} sentences of `{}`, found {}",
                            document.sentences_boundaries.len(),
                            document.title,
                            triple.sentence_id
                        );
                        return Err(place.wrong(format!("triples[{at}].sentence_id"), message));
                    };
                    let range = bytes.get(start).zip(bytes.get(end)).filter(|(start, end)| start <= end);
                    let Some((&start, &end)) = range else {
                        let field = format!("sentences_boundaries[{}]", triple.sentence_id);
                        let message = format!(
                            "expected a range of the {} characters of `{}`, found {start} to {end}",
                            bytes.len() - 1,
                            document.title
                        );
                        return Err(place.wrong(field, message));
                    };
                    self.sentences.push((title, document.text[start..end].trim().to_owned()));
                    known.insert(triple.sentence_id, self.sentences.len() - 1);
                    self.sentences.len() - 1
                }
            };
            let fact = (
                self.number(&triple.subject)?,
                self.number(&triple.predicate)?,
                self.number(&triple.object)?,
            );
            let sentences = self.facts.entry(fact).or_default();
            // One sentence too many shows that the fact is left out.
            if sentences.len() <= self.max && !sentences.contains(&sentence) {
                sentences.push(sentence);
            }
        }
        Ok(())
    }

    /// The forms of an id, most frequent first, then by their letters.
    fn forms(&self, number: u32) -> Vec<&str> {
        let mut forms: Vec<&(String, u64)> = self.forms.get(&number).into_iter().flatten().collect();
        forms.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        forms.into_iter().map(|(form, _)| form.as_str()).collect()
    }
}

/// The id at the end of an address, such as `Q42`; other values, such as dates, are whole.
fn local(uri: &str) -> &str {
    match uri.rsplit_once('/') {
        Some((before, id)) if before.contains("wikidata.org") && !uri.contains("^^") => id,
        _ => uri,
    }
}

/// A label and aliases.
#[derive(Clone, Default)]
struct Label {
    label: String,
    aliases: Vec<String>,
}

fn read(source: &Source<'_>, take: &mut Take<'_>) -> Result<()> {
    let options = source.options;
    let max = options.max_sentences.unwrap_or(MAX_SENTENCES);
    let mut facts = Facts { max, ..Facts::default() };
    source.elements(
        None,
        |place, document: Document| {
            facts.add(place, &document)?;
            Ok(Vec::new())
        },
        take,
    )?;
    let all = std::mem::take(&mut facts.facts);
    let short: Vec<_> = all.into_iter().filter(|(_, sentences)| sentences.len() <= max).collect();
    let mut counts: FxHashMap<u32, usize> = FxHashMap::default();
    short.iter().for_each(|((_, relation, _), _)| *counts.entry(*relation).or_default() += 1);
    let min = options.min_facts.unwrap_or(MIN_FACTS);
    let mut pairs: BTreeMap<(u32, u32), Objects> = BTreeMap::new();
    for ((subject, relation, object), sentences) in short {
        if counts[&relation] >= min {
            pairs.entry((subject, relation)).or_default().push((object, sentences));
        }
    }
    let held_out = options.held_out.unwrap_or(HELD_OUT);
    let members = sample::members(options.seed(), pairs.len(), held_out, held_out, source.split);
    let mut kept = Vec::new();
    for (pair, is_member) in pairs.into_iter().zip(members) {
        if is_member {
            kept.push(pair);
        }
    }
    let labels = labels(source, &facts, &kept)?;
    for ((subject, relation), objects) in kept {
        take(Some(record(&facts, &labels, subject, relation, objects)))?;
    }
    Ok(())
}

/// Objects with their sentences.
type Objects = Vec<(u32, Vec<usize>)>;

/// A subject and a relation with their objects.
type Pair = ((u32, u32), Objects);

/// The labels of all ids in the facts.
fn labels(source: &Source<'_>, facts: &Facts, pairs: &[Pair]) -> Result<FxHashMap<u32, Label>> {
    let mut labels: FxHashMap<u32, Label> = FxHashMap::default();
    for ((subject, relation), objects) in pairs {
        for number in [*subject, *relation].into_iter().chain(objects.iter().map(|(object, _)| *object)) {
            labels.entry(number).or_default();
        }
    }
    for path in &source.options.names {
        read_names(path, |row| {
            let Some(own) = facts.ids.number(row.id).and_then(|number| labels.get_mut(&number)) else {
                return;
            };
            // The first table that has an id names it.
            if own.label.is_empty() {
                own.label = row.label.trim().to_owned();
                own.aliases = distinct_texts(&row.aliases);
            }
        })?;
    }
    for (&number, own) in &mut labels {
        if own.label.is_empty() {
            let form = facts.forms(number).first().copied();
            own.label = form.or(facts.ids.name(number as usize)).unwrap_or_default().to_owned();
        }
    }
    Ok(labels)
}

fn record(
    facts: &Facts,
    labels: &FxHashMap<u32, Label>,
    subject: u32,
    relation: u32,
    objects: Objects,
) -> Own {
    let label = |number: u32| labels.get(&number).cloned().unwrap_or_default();
    let id = |number: u32| facts.ids.name(number as usize).unwrap_or_default();
    let mut known: BTreeSet<String> = objects.iter().map(|(object, _)| label(*object).label).collect();
    let mut surfaces: Vec<&str> = Vec::new();
    let mut claims = Vec::new();
    for (object, sentences) in objects {
        let Label { label, aliases } = label(object);
        let piece = |sentence: usize| {
            let (title, text) = &facts.sentences[sentence];
            vec![Piece::text(&facts.titles[*title], text)]
        };
        surfaces.extend(facts.forms(object));
        claims.push(Claim {
            answer: Answer::Text(label),
            // An alias of two objects is one answer.
            aliases: aliases.into_iter().filter(|alias| known.insert(alias.clone())).collect(),
            evidence: sentences.into_iter().map(piece).collect(),
            ..Claim::default()
        });
    }
    let own = label(subject);
    let meta = json!({
        "sub_surface": facts.forms(subject),
        "rel_surface": facts.forms(relation),
        "obj_surface": distinct_texts(surfaces),
        "subj_aliases": own.aliases,
    });
    let input = format!("{} [SEP] {}", own.label, label(relation).label);
    Own { meta: Some(meta), ..Own::new(format!("{}_{}", id(subject), id(relation)), input, claims) }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{
        super::testing::{claim, read as read_all},
        *,
    };
    use crate::{Split, jsonl, mapping::options::LayoutOptions};

    const WIKIDATA: &str = "http://www.wikidata.org";

    /// A triple of ids and their forms, in a sentence.
    fn triple(subject: (&str, &str), relation: &str, object: (&str, &str), sentence: usize) -> String {
        let name = |(id, form): (&str, &str)| {
            format!(
                r#"{{"uri":"{WIKIDATA}/entity/{id}","boundaries":[0,1],"surfaceform":"{form}","annotator":"x"}}"#
            )
        };
        format!(
            r#"{{"subject":{},"predicate":{{"uri":"{WIKIDATA}/prop/direct/{relation}","boundaries":null,"surfaceform":null,"annotator":"x"}},"object":{},"sentence_id":{sentence},"dependency_path":null,"confidence":null,"annotator":"x"}}"#,
            name(subject),
            name(object)
        )
    }

    fn document(title: &str, text: &str, boundaries: &str, triples: &[String]) -> String {
        format!(
            r#"{{"docid":"{WIKIDATA}/entity/Q1","title":"{title}","uri":"{WIKIDATA}/entity/Q1","text":"{text}","sentences_boundaries":{boundaries},"words_boundaries":[],"entities":[],"triples":[{}]}}"#,
            triples.join(",")
        )
    }

    fn of(texts: &[&str], split: Split, options: &LayoutOptions) -> Result<Vec<Own>> {
        Ok(read_all(LAYOUT, texts, split, options)?.into_iter().map(Option::unwrap).collect())
    }

    /// Options for few facts, all of which are `train`.
    fn few() -> LayoutOptions {
        LayoutOptions { min_facts: Some(1), held_out: Some(0), ..LayoutOptions::default() }
    }

    #[test]
    fn the_facts_of_a_pair_are_one_record_with_labels_and_aliases() {
        let folder = tempfile::tempdir().unwrap();
        let [entities, relations] = ["e.tsv", "r.tsv"].map(|name| folder.path().join(name));
        jsonl::write(&entities, b"Q1\tAnn Lund\tA. Lund\tLund\nQ2\tOslo\tChristiania\tOSL\nQ9\tX\n").unwrap();
        jsonl::write(&relations, b"P1\tresidence\tlives in\n").unwrap();
        let (ann, oslo, bonn) = (("Q1", "Ann"), ("Q2", "Oslo"), ("Q3", "Bonn"));
        // Characters, not bytes: the first letter has two.
        let first = document(
            "Ann Lund",
            "Éa lived in Oslo. She left Oslo for Bonn.",
            "[[0,17],[18,41]]",
            &[
                triple(ann, "P1", oslo, 0),
                triple(("Q1", "She"), "P1", oslo, 1),
                triple(("Q1", "She"), "P1", bonn, 1),
                // The same fact in the same sentence counts once.
                triple(("Q1", "She"), "P1", ("Q2", "Oslo"), 1),
            ],
        );
        let second = document("Oslo", "Ann is here.", "[[0,12]]", &[triple(ann, "P1", oslo, 0)]);
        let names = vec![entities, relations];
        let options = LayoutOptions { names, ..few() };
        let texts = [format!("[{first}]"), format!("[{second}]")];
        let found = of(&[&texts[0], &texts[1]], Split::Train, &options).unwrap();
        let sentences: &[&[&str]] =
            &[&["Ann Lund|Éa lived in Oslo."], &["Ann Lund|She left Oslo for Bonn."], &["Oslo|Ann is here."]];
        let oslo = Claim { aliases: vec!["Christiania".into(), "OSL".into()], ..claim("Oslo", sentences) };
        let claims = vec![oslo, claim("Bonn", &sentences[1..2])];
        let meta = json!({
            // Twice and three times.
            "sub_surface": ["She", "Ann"],
            "rel_surface": [],
            "obj_surface": ["Oslo", "Bonn"],
            "subj_aliases": ["A. Lund", "Lund"],
        });
        let expected = Own { meta: Some(meta), ..Own::new("Q1_P1", "Ann Lund [SEP] residence", claims) };
        assert_eq!(found, [expected]);
        // Without tables: the most frequent form, and the relation's id.
        let found = of(&[&texts[0], &texts[1]], Split::Train, &few()).unwrap();
        assert_eq!(found[0].input, "She [SEP] P1");
        assert!(found[0].claims[0].aliases.is_empty());
    }

    #[test]
    fn facts_with_many_sentences_and_relations_with_few_facts_are_left_out() {
        let text = "a a a";
        let sentences = "[[0,1],[2,3],[4,5]]";
        let (a, b, c) = (("Q1", "a"), ("Q2", "b"), ("Q3", "c"));
        let triples = [
            // P1: one fact in three sentences, two facts in one.
            triple(a, "P1", b, 0),
            triple(a, "P1", b, 1),
            triple(a, "P1", b, 2),
            triple(a, "P1", c, 0),
            triple(b, "P1", c, 0),
            // P2: one fact.
            triple(a, "P2", b, 0),
        ];
        let text = document("T", text, sentences, &triples);
        let inputs = |max: usize, min: usize| {
            let options = LayoutOptions { max_sentences: Some(max), min_facts: Some(min), ..few() };
            let found = of(&[&text], Split::Train, &options).unwrap();
            found.into_iter().map(|own| (own.input, own.claims.len())).collect::<Vec<_>>()
        };
        let pair = |input: &str, answers| (format!("{} [SEP] {}", &input[..1], &input[1..]), answers);
        assert_eq!(inputs(3, 1), [pair("aP1", 2), pair("aP2", 1), pair("bP1", 1)]);
        assert_eq!(inputs(2, 1), [pair("aP1", 1), pair("aP2", 1), pair("bP1", 1)]);
        assert_eq!(inputs(2, 2), [pair("aP1", 1), pair("bP1", 1)]);
        // The fact that is left out does not count for its relation.
        assert!(inputs(2, 3).is_empty());
        assert_eq!(inputs(3, 3), [pair("aP1", 2), pair("bP1", 1)]);
    }

    #[test]
    fn dev_and_test_are_drawn_and_disjoint() {
        let triples: Vec<String> =
            (0..20).map(|at| triple((&format!("Q{at}"), "s"), "P1", ("Q99", "o"), 0)).collect();
        let text = document("T", "a", "[[0,1]]", &triples);
        let ids = |split| {
            let options = LayoutOptions { seed: Some(5), held_out: Some(4), ..few() };
            of(&[&text], split, &options)
                .unwrap()
                .into_iter()
                .map(|own| own.id.to_string())
                .collect::<BTreeSet<_>>()
        };
        let [train, dev, test] = [Split::Train, Split::Dev, Split::Test].map(ids);
        assert_eq!((train.len(), dev.len(), test.len()), (12, 4, 4));
        assert_eq!(train.iter().chain(&dev).chain(&test).collect::<BTreeSet<_>>().len(), 20);
    }

    #[test]
    fn dates_are_whole_and_ids_are_the_end_of_an_address() {
        assert_eq!(local("http://www.wikidata.org/entity/Q42"), "Q42");
        assert_eq!(local("http://www.wikidata.org/prop/direct/P17"), "P17");
        let date = "1879-03-14T00:00:00Z^^http://www.w3.org/2001/XMLSchema#dateTime";
        assert_eq!(local(date), date);
    }

    #[test]
    fn wrong_fields_are_named() {
        let good = triple(("Q1", "a"), "P1", ("Q2", "b"), 0);
        for (text, expected) in [
            (
                document("T", "ab", "[]", std::slice::from_ref(&good)),
                "in0:1: field `triples[0].sentence_id`: expected one of the 0 sentences of `T`, found 0",
            ),
            (
                document("T", "ab", "[[0,3]]", std::slice::from_ref(&good)),
                "in0:1: field `sentences_boundaries[0]`: expected a range of the 2 characters of `T`, found 0 to 3",
            ),
            (
                document("T", "ab", "[[0,2]]", &[good.replace("\"sentence_id\"", "\"sentence\"")]),
                "in0:1: field `triples[0]`: missing field `sentence_id`",
            ),
        ] {
            let message = of(&[&text], Split::Train, &few()).unwrap_err().to_string();
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
        let options = LayoutOptions { names: vec![PathBuf::from("none.tsv")], ..few() };
        let message = of(&[&document("T", "ab", "[[0,2]]", &[good])], Split::Train, &options).unwrap_err();
        assert!(message.to_string().contains("none.tsv"), "{message}");
    }
}
