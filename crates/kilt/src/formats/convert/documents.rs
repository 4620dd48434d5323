//! Corpora into corpora.

use std::path::Path;

use rustc_hash::FxHashSet;

use super::{Format, Noun, Request, Summary, not_empty};
use crate::{
    Error, Page, PassageId, PassageStore, Result,
    formats::{
        Collection, Document, anserini, beir,
        dpr::{RetrievedExample, TrainingExample},
        elements, passages, psgs,
    },
    jsonl,
};

pub(super) fn convert(request: &Request) -> Result<Summary> {
    let mut summary = Summary::new(Noun::Documents);
    let mut output = Output::create(request.to, &request.output)?;
    // Questions share passages, so those of training data and results are written once.
    let mut seen = matches!(request.from, Format::Fid | Format::DprTraining).then(FxHashSet::default);
    for input in &request.inputs {
        each(request.from, input, &mut |document| {
            summary.read += 1;
            if seen.as_mut().is_some_and(|seen| !seen.insert(document.id.clone())) {
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

/// Hands over every document of a file.
fn each(from: Format, path: &Path, then: &mut dyn FnMut(Document) -> Result<()>) -> Result<()> {
    match from {
        Format::PsgsTsv => psgs::read(path)?.try_for_each(|row| then(row?.1)),
        Format::Msmarco => Collection::Msmarco.documents(path)?.try_for_each(|row| then(row?.1)),
        Format::BeirCorpus => {
            jsonl::open(path)?.records::<beir::Document>().try_for_each(|record| then(record?.into()))
        }
        Format::Passages => {
            jsonl::open(path)?.records::<passages::Passage>().try_for_each(|record| then(record?.into()))
        }
        Format::Anserini => elements::open(path)?
            .records::<anserini::Document>()
            .try_for_each(|record| then(record?.1.into())),
        Format::Store => {
            let store = PassageStore::open(path)?;
            (0..store.len() as u32).try_for_each(|number| then(store.passage(PassageId(number)).into()))?;
            store.sound()
        }
        Format::Fid => elements::open(path)?.records::<RetrievedExample>().try_for_each(|record| {
            let (line, record) = record?;
            record.ctxs.iter().enumerate().try_for_each(|(at, context)| {
                then(context.document().ok_or_else(|| no_id(path, line, format!("ctxs[{at}].id")))?)
            })
        }),
        Format::DprTraining => elements::open(path)?.records::<TrainingExample>().try_for_each(|record| {
            let (line, record) = record?;
            record.contexts().try_for_each(|(list, at, context)| {
                let document = context.document();
                then(document.ok_or_else(|| no_id(path, line, format!("{list}[{at}].passage_id")))?)
            })
        }),
        _ => jsonl::open(path)?
            .batches::<Page>(|batch| batch.iter().try_for_each(|(_, page)| then(Document::from(page)))),
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
