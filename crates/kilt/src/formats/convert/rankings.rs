//! Rankings as runs, predictions and retrieval results.

use std::path::Path;

use rustc_hash::FxHashSet;
use serde_json::json;

use super::{Format, Noun, Request, Summary, not_empty, unique::UniqueIds};
use crate::{
    Error, Id, PassageId, PassageStore, Prediction, Provenance, Record, Result,
    formats::{
        PageMapping,
        dpr::{RetrievedContext, RetrievedExample, Score},
        elements,
        trec::{self, RankedDocument, RunLine},
    },
    jsonl::{self, Writer},
};

/// The last column of the runs that we write.
const TAG: &str = "sporran";

/// The results of one query, best first.
struct RankedRecord {
    id: Id,
    input: Option<String>,
    items: Vec<Item>,
}

struct Item {
    /// The document's id in a run.
    document: String,
    score: Option<f64>,
    /// The evidence in a prediction; without a page if the mapping lacks it.
    provenance: Provenance,
}

/// How pages are looked up.
enum Pages {
    /// A document of a run is its page's id.
    Same,
    Store(Box<PassageStore>),
    Mapping(PageMapping),
}

pub(super) fn convert(request: &Request) -> Result<Summary> {
    let mut summary = Summary::new(Noun::Rankings);
    let pages = match (&request.store, &request.mapping) {
        (Some(folder), _) => Pages::Store(Box::new(PassageStore::open(folder)?)),
        (None, Some(path)) => Pages::Mapping(PageMapping::open(path)?),
        (None, None) => Pages::Same,
    };
    let mut output = Writer::create(&request.output)?;
    let mut ids = UniqueIds::of(request.from);
    // Whether each document so far is both the number of a passage and the id of a page.
    let mut ambiguous = matches!((request.from, &pages), (Format::Run, Pages::Store(_)));
    for input in &request.inputs {
        let mut put = |line: u64, found: RankedRecord| {
            ids.add(&found.id.text(), input, line)?;
            summary.read += 1;
            summary.written += 1;
            if request.to == Format::Run {
                write_run(found, &mut output, &mut summary)
            } else {
                write_prediction(found, &mut output, &mut summary)
            }
        };
        match request.from {
            Format::Run => {
                trec::read_rankings(input)?.try_for_each(|ranking| {
                    let ranking = ranking?;
                    let (line, of_pages) = (ranking.line, ranking.of_pages);
                    ambiguous = ambiguous && !of_pages && pages.are_of_pages(&ranking.documents);
                    let items: Result<_> = ranking
                        .documents
                        .into_iter()
                        .map(|document| pages.of_run(input, of_pages, document))
                        .collect();
                    put(line, RankedRecord { id: ranking.query.into(), input: None, items: items? })
                })?;
            }
            Format::Fid => elements::open(input)?.records::<RetrievedExample>().enumerate().try_for_each(
                |(place, example)| {
                    let (line, example) = example?;
                    let id = example.id_at(place);
                    let mut items = Vec::with_capacity(example.ctxs.len());
                    for (number, context) in example.ctxs.into_iter().enumerate() {
                        if request.to == Format::Run && context.id.is_none() {
                            let field = format!("ctxs[{number}].id");
                            return Err(Error::record(
                                input,
                                line,
                                field,
                                "expected the passage's id, which a run needs",
                            ));
                        }
                        items.push(pages.of_context(context));
                    }
                    put(line, RankedRecord { id, input: Some(example.question), items })
                },
            )?,
            _ => jsonl::open(input)?.numbered::<Record>().try_for_each(|record| {
                let (line, record) = record?;
                put(line, predicted(input, line, record)?)
            })?,
        }
    }
    let summary = not_empty(request, summary)?;
    if ambiguous {
        tracing::warn!(
            "each document of the run is the number of a passage, and also the id of a page; they were read as passages; the \
             tag of a run over pages ends with `/pages`"
        );
    }
    if let Pages::Store(store) = &pages {
        store.sound()?;
    }
    output.finish()?;
    Ok(summary)
}

impl Pages {
    /// Whether each of these documents is the id of a page of the store.
    fn are_of_pages(&self, documents: &[RankedDocument]) -> bool {
        match self {
            Self::Store(store) => documents.iter().all(|document| store.page_by_id(&document.id).is_some()),
            Self::Same | Self::Mapping(_) => false,
        }
    }

    fn of_run(&self, path: &Path, of_pages: bool, document: RankedDocument) -> Result<Item> {
        let RankedDocument { id, score, line } = document;
        let provenance = match self {
            Self::Same => page(Some(id.as_str())),
            Self::Mapping(mapping) => page(mapping.page(&id)),
            Self::Store(store) if of_pages => {
                let found = store.page_by_id(&id).ok_or_else(|| {
                    let message = format!("expected a page of the store, found `{id}`");
                    Error::record(path, line, "document", message)
                })?;
                Provenance { title: Some(store.page_title(found).to_owned()), ..page(Some(id.as_str())) }
            }
            Self::Store(store) => {
                let passage = store.passage(passage_id(path, (line, false), &id, store)?);
                let mut provenance = passage.provenance();
                provenance.extra.insert("text".into(), json!(passage.text));
                provenance
            }
        };
        Ok(Item { document: id, score: Some(score), provenance })
    }

    fn of_context(&self, context: RetrievedContext) -> Item {
        let RetrievedContext { id, title, text, score, .. } = context;
        let document = id.as_ref().map_or_else(String::new, |id| id.text().into_owned());
        let mut provenance = match self {
            Self::Same => Provenance::default(),
            Self::Mapping(mapping) => page(mapping.page(&title)),
            Self::Store(store) => match store.page_by_title(&title) {
                None => Provenance::default(),
                // The exact span is known only for passages of the store.
                Some(index) => document
                    .parse()
                    .ok()
                    .filter(|number| store.passages_of(index).contains(number))
                    .map(|number| store.passage(PassageId(number)))
                    .filter(|passage| passage.text == text)
                    .map_or_else(|| page(Some(&store.page_id(index))), |passage| passage.provenance()),
            },
        };
        provenance.title.get_or_insert(title);
        provenance.extra.insert("text".into(), json!(text));
        Item { document, score: score.as_ref().map(Score::value), provenance }
    }
}

/// The passage that a run's document names: `page#place`, or its number in the store. `place` is the line, and whether the
/// run is over pages, which is an error.
pub(crate) fn passage_id(
    path: &Path,
    (line, of_pages): (u64, bool),
    document: &str,
    store: &PassageStore,
) -> Result<PassageId> {
    let wrong = |message: String| Error::record(path, line, "document", message);
    if of_pages {
        let message = format!(
            "expected a passage of the store, found the page `{document}`; with `evidence.run-documents = \"passage\"` a \
             run names passages"
        );
        return Err(wrong(message));
    }
    let by_place = || {
        let (page, place) = document.rsplit_once('#')?;
        let passages = store.passages_of(store.page_by_id(page)?);
        passages.clone().nth(place.parse().ok()?).map(PassageId)
    };
    let by_number =
        || document.parse().ok().filter(|&number: &u32| (number as usize) < store.len()).map(PassageId);
    by_number().or_else(by_place).ok_or_else(|| {
        wrong(format!(
            "expected a passage of the store, `page#place` or a number below {}, found `{document}`",
            store.len()
        ))
    })
}

fn page(id: Option<&str>) -> Provenance {
    Provenance { wikipedia_id: id.map(Id::from), ..Provenance::default() }
}

/// The evidence of a prediction, a document for each page.
fn predicted(path: &Path, line: u64, record: Record) -> Result<RankedRecord> {
    let count = record.outputs().len();
    let Some([output]) = record.output.as_deref() else {
        let message = format!("expected exactly one output, found {count}");
        return Err(Error::record(path, line, "output", message));
    };
    let items = output
        .evidence()
        .iter()
        .map(|item| Item {
            document: item.wikipedia_id.as_ref().map_or_else(String::new, |id| id.text().into_owned()),
            score: item
                .extra
                .get("score")
                .and_then(|score| serde_json::from_value::<Score>(score.clone()).ok())
                .map(|score| score.value()),
            provenance: item.clone(),
        })
        .collect();
    Ok(RankedRecord { id: record.id, input: record.input, items })
}

/// trec_eval orders by score, as a 32-bit float. So scores are kept only if they agree with the order in the file;
/// otherwise the score is 1 / rank. A document occurs once in a run, at its first rank.
fn write_run(mut found: RankedRecord, output: &mut Writer, summary: &mut Summary) -> Result<()> {
    let all = found.items.len();
    found.items.retain(|item| !item.document.is_empty());
    summary.unresolved += (all - found.items.len()) as u64;
    let all = found.items.len();
    let mut seen = FxHashSet::default();
    found.items.retain(|item| seen.insert(item.document.clone()));
    summary.left_out += (all - found.items.len()) as u64;
    let scores: Option<Vec<f64>> = found.items.iter().map(|item| item.score).collect();
    let scores = scores.filter(|scores| scores.windows(2).all(|pair| pair[0] as f32 > pair[1] as f32));
    let query = found.id.text();
    for (at, item) in found.items.into_iter().enumerate() {
        let rank = at as u32 + 1;
        let line = RunLine {
            query: query.to_string(),
            document: item.document,
            rank,
            score: scores.as_ref().map_or_else(|| f64::from(rank).recip(), |scores| scores[at]),
            tag: TAG.to_owned(),
        };
        output.line(line.line().as_bytes())?;
    }
    Ok(())
}

/// A prediction with evidence and an empty answer. Evidence on an unknown page is dropped.
fn write_prediction(found: RankedRecord, output: &mut Writer, summary: &mut Summary) -> Result<()> {
    let mut provenance = Vec::with_capacity(found.items.len());
    for mut item in found.items {
        if item.provenance.wikipedia_id.is_none() {
            summary.unresolved += 1;
            continue;
        }
        if let Some(score) = item.score {
            item.provenance.extra.insert("score".into(), json!(score));
        }
        provenance.push(item.provenance);
    }
    let prediction = Prediction { id: found.id, answer: String::new(), provenance };
    output.record(&prediction.into_record(found.input))
}
