//! Task files as queries and judgements.

use std::{collections::BTreeMap, path::Path};

use rustc_hash::FxHashSet;
use serde_json::{Map, Value};

use super::{
    Format, Noun, Request, Summary, not_empty,
    unique::{UniqueIds, UniqueQrels},
};
use crate::{
    Dataset, Error, Query, Record, Result, Split,
    formats::{
        Qrel,
        anserini::{self, Topic},
        beir,
        dpr::RetrievedExample,
        elements, trec,
    },
    jsonl::{self, Writer},
    triviaqa::{self, Questions},
};

/// Copies task files, and adds TriviaQA's questions if they are given.
pub(super) fn records(request: &Request) -> Result<Summary> {
    let questions = Questions::open(&request.triviaqa)?;
    let mut summary = Summary::new(Noun::Records);
    let mut output = Writer::create(&request.output)?;
    let mut ids = UniqueIds::of(request.from);
    for input in &request.inputs {
        let written = triviaqa::join(input, &questions, &mut |line, record| {
            ids.add(&record.id.text(), input, line)?;
            output.record(record)
        })?;
        summary.read += written;
        summary.written += written;
    }
    let summary = not_empty(request, summary)?;
    output.finish()?;
    Ok(summary)
}

/// BEIR's folder: all queries in one file, and one file of judgements a split.
pub(super) fn tasks(request: &Request) -> Result<Summary> {
    let mut summary = Summary::new(Noun::Tasks);
    let mut queries = Writer::create(request.output.join("queries.jsonl"))?;
    let mut qrels: BTreeMap<&str, Writer> = BTreeMap::new();
    let mut ids = UniqueIds::of(request.from);
    for input in &request.inputs {
        let split = match dataset(input).map(|(_, split)| split) {
            Some(Split::Train) => "train",
            Some(Split::Dev) => "dev",
            Some(Split::Test) | None => "test",
        };
        if !qrels.contains_key(split) {
            let mut writer = Writer::create(request.output.join("qrels").join(format!("{split}.tsv")))?;
            writer.line(beir::QRELS_HEADER.as_bytes())?;
            qrels.insert(split, writer);
        }
        kilt(input, &mut |line, record, query| {
            ids.add(&record.id.text(), input, line)?;
            summary.read += 1;
            summary.written += 1;
            queries.record(&beir_query(topic(query)))?;
            let Some(writer) = qrels.get_mut(split) else { return Ok(()) };
            gold_qrels(record).iter().try_for_each(|qrel| {
                let text = beir::qrel_line(qrel).map_err(|wrong| at(input, line, wrong))?;
                writer.line(text.as_bytes())
            })
        })?;
    }
    let summary = not_empty(request, summary)?;
    queries.finish()?;
    qrels.into_values().try_for_each(Writer::finish)?;
    Ok(summary)
}

pub(super) fn queries(request: &Request) -> Result<Summary> {
    let mut summary = Summary::new(Noun::Queries);
    let mut output = Writer::create(&request.output)?;
    let mut ids = UniqueIds::of(request.from);
    for input in &request.inputs {
        let mut put = |line: u64, topic: Topic| {
            ids.add(&topic.id, input, line)?;
            summary.read += 1;
            summary.written += 1;
            if request.to == Format::BeirQueries {
                return output.record(&beir_query(topic));
            }
            let text = topic.line().map_err(|wrong| at(input, line, wrong))?;
            output.line(text.as_bytes())
        };
        match request.from {
            Format::BeirQueries => {
                jsonl::open(input)?.numbered::<beir::Query>().try_for_each(|query| {
                    let (line, query) = query?;
                    put(line, Topic { id: query.id.text().into_owned(), text: query.text })
                })?;
            }
            Format::Topics => anserini::read_topics(input)?.try_for_each(|topic| {
                let (line, topic) = topic?;
                put(line, topic)
            })?,
            Format::Fid => elements::open(input)?.records::<RetrievedExample>().enumerate().try_for_each(
                |(place, example)| {
                    let (line, example) = example?;
                    let id = example.id_at(place);
                    put(line, Topic { id: id.text().into_owned(), text: example.question })
                },
            )?,
            _ => kilt(input, &mut |line, _, query| put(line, topic(query)))?,
        }
    }
    let summary = not_empty(request, summary)?;
    output.finish()?;
    Ok(summary)
}

pub(super) fn judgements(request: &Request) -> Result<Summary> {
    let mut summary = Summary::new(Noun::Judgements);
    let mut output = Writer::create(&request.output)?;
    let beir = request.to == Format::BeirQrels;
    if beir {
        output.line(beir::QRELS_HEADER.as_bytes())?;
    }
    let (mut judged, mut ids) = (UniqueQrels::default(), UniqueIds::of(request.from));
    for input in &request.inputs {
        let mut put = |line: u64, qrel: Qrel| {
            summary.read += 1;
            if !judged.add(&qrel, input, line)? {
                summary.left_out += 1;
                return Ok(());
            }
            summary.written += 1;
            let text = if beir {
                beir::qrel_line(&qrel).map_err(|wrong| at(input, line, wrong))?
            } else {
                qrel.line()
            };
            output.line(text.as_bytes())
        };
        let mut put_row = |row: Result<(u64, Qrel)>| {
            let (line, qrel) = row?;
            put(line, qrel)
        };
        match request.from {
            Format::BeirQrels => beir::read_qrels(input)?.try_for_each(put_row)?,
            Format::Qrels => trec::read_qrels(input)?.try_for_each(put_row)?,
            _ => jsonl::open(input)?.numbered::<Record>().try_for_each(|record| {
                let (line, record) = record?;
                ids.add(&record.id.text(), input, line)?;
                gold_qrels(&record).into_iter().try_for_each(|qrel| put_row(Ok((line, qrel))))
            })?,
        }
    }
    let summary = not_empty(request, summary)?;
    output.finish()?;
    Ok(summary)
}

/// The dataset and split in a file's name.
pub(super) fn dataset(path: &Path) -> Option<(Dataset, Split)> {
    Dataset::from_file_name(path.file_name()?.to_str()?)
}

/// Hands over every record of a task file with its query.
pub(super) fn kilt(path: &Path, then: &mut dyn FnMut(u64, &Record, Query) -> Result<()>) -> Result<()> {
    let dataset = dataset(path).map(|(dataset, _)| dataset);
    jsonl::open(path)?.numbered::<Record>().try_for_each(|record| {
        let (line, record) = record?;
        let query = Query::from_record(&record, dataset).map_err(|wrong| at(path, line, wrong))?;
        then(line, &record, query)
    })
}

/// The distinct gold pages of a record, in order.
fn gold_qrels(record: &Record) -> Vec<Qrel> {
    let mut seen = FxHashSet::default();
    let items = record.outputs().iter().flat_map(|output| output.evidence());
    items
        .filter_map(|item| item.wikipedia_id.as_ref())
        .map(|page| page.text().into_owned())
        .filter(|page| !page.is_empty() && seen.insert(page.clone()))
        .map(|document| Qrel { query: record.id.text().into_owned(), document, relevance: 1 })
        .collect()
}

fn topic(query: Query) -> Topic {
    Topic { id: query.id.text().into_owned(), text: query.text }
}

fn beir_query(topic: Topic) -> beir::Query {
    beir::Query {
        id: topic.id.into(),
        text: topic.text,
        metadata: Some(Value::Object(Map::new())),
        extra: Map::new(),
    }
}

/// An error of a field of a line.
pub(super) fn at(path: &Path, line: u64, (field, message): (&'static str, String)) -> Error {
    Error::record(path, line, field, message)
}
