//! Corpora into corpora.

use std::path::Path;

use rustc_hash::FxHashSet;

use super::{Format, Noun, Request, Summary, not_empty, unique::id_field};
use crate::{
    Error, Page, PassageId, PassageStore, Result,
    formats::{
        Collection, Document, anserini, beir,
        dpr::{RetrievedExample, TrainingExample},
        elements, passages, psgs,
    },
    hash_id, jsonl,
};

pub(super) fn convert(request: &Request) -> Result<Summary> {
    let mut summary = Summary::new(Noun::Documents);
    let mut output = Output::create(request.to, &request.output)?;
    // Questions share passages, so those of training data and results are written once.
    let shares = matches!(request.from, Format::Fid | Format::DprTraining);
    let mut seen = FxHashSet::default();
    for input in &request.inputs {
        each(request.from, input, &mut |line, document| {
            summary.read += 1;
            if document.id.trim().is_empty() {
                let message = "expected an id, found an empty one";
                return Err(Error::record(input, line, id_field(request.from), message));
            }
            if !seen.insert(hash_id(&document.id)) {
                if !shares {
                    let message = format!("expected each id once, found `{}` again", document.id);
                    return Err(Error::record(input, line, id_field(request.from), message));
                }
                summary.left_out += 1;
                return Ok(());
            }
            summary.written += 1;
            output.document(document)
        })?;
    }
    let summary = not_empty(request, summary)?;
    output.finish()?;
    Ok(summary)
}

/// Receives a document with its line.
type Sink<'a> = dyn FnMut(u64, Document) -> Result<()> + 'a;

/// Hands over every document of a file. The line of a passage of a store is its number, from 1.
fn each(from: Format, path: &Path, then: &mut Sink<'_>) -> Result<()> {
    match from {
        Format::PsgsTsv => psgs::read(path)?.try_for_each(|row| row.and_then(|(line, row)| then(line, row))),
        Format::Msmarco => Collection::Msmarco
            .documents(path)?
            .try_for_each(|row| row.and_then(|(line, row)| then(line, row))),
        Format::BeirCorpus => jsonl::open(path)?
            .numbered::<beir::Document>()
            .try_for_each(|record| record.and_then(|(line, record)| then(line, record.into()))),
        Format::Passages => jsonl::open(path)?
            .numbered::<passages::Passage>()
            .try_for_each(|record| record.and_then(|(line, record)| then(line, record.into()))),
        Format::Anserini => elements::open(path)?
            .records::<anserini::Document>()
            .try_for_each(|record| record.and_then(|(line, record)| then(line, record.into()))),
        Format::Store => {
            let store = PassageStore::open(path)?;
            (0..store.len() as u32).try_for_each(|number| {
                then(u64::from(number) + 1, store.passage(PassageId(number)).into())
            })?;
            store.sound()
        }
        Format::Fid => elements::open(path)?.records::<RetrievedExample>().try_for_each(|record| {
            let (line, record) = record?;
            record.ctxs.iter().enumerate().try_for_each(|(at, context)| {
                then(line, context.document().ok_or_else(|| no_id(path, line, format!("ctxs[{at}].id")))?)
            })
        }),
        Format::DprTraining => elements::open(path)?.records::<TrainingExample>().try_for_each(|record| {
            let (line, record) = record?;
            record.contexts().try_for_each(|(list, at, context)| {
                let document = context.document();
                then(line, document.ok_or_else(|| no_id(path, line, format!("{list}[{at}].passage_id")))?)
            })
        }),
        _ => jsonl::open(path)?
            .batches::<Page>(|batch| batch.iter().try_for_each(|(line, page)| then(*line, page.into()))),
    }
}

fn no_id(path: &Path, line: u64, field: String) -> Error {
    Error::record(path, line, field, "expected the passage's id, without which it is no document")
}

enum Output {
    Psgs(psgs::Writer),
    Lines(Format, jsonl::Writer),
}

impl Output {
    fn create(to: Format, path: &Path) -> Result<Self> {
        Ok(match to {
            Format::PsgsTsv => Self::Psgs(psgs::Writer::create(path)?),
            _ => Self::Lines(to, jsonl::Writer::create(path)?),
        })
    }

    fn document(&mut self, document: Document) -> Result<()> {
        match self {
            Self::Psgs(writer) => writer.document(&document),
            Self::Lines(Format::BeirCorpus, writer) => writer.record(&beir::Document::from(document)),
            Self::Lines(Format::Anserini, writer) => writer.record(&anserini::Document::from(document)),
            Self::Lines(Format::Passages, writer) => writer.record(&passages::Passage::from(document)),
            Self::Lines(_, writer) => writer.record(&document.into_page()),
        }
    }

    fn finish(self) -> Result<()> {
        match self {
            Self::Psgs(writer) => writer.finish(),
            Self::Lines(_, writer) => writer.finish(),
        }
    }
}
