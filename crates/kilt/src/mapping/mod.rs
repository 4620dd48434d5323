//! A dataset's own evidence, mapped onto a knowledge source as KILT did it (Petroni et al. 2021, section 3.1): the page of
//! the same title, redirects included, and there the span that is most like the evidence by BLEU, the shortest of equal
//! ones, with its score.

mod bleu;
mod layout;

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::Serialize;
use serde_json::Map;

use self::{
    bleu::{Evidence, Match, words},
    layout::{Own, Piece},
};
use crate::{
    Error, Output, PassageStore, Provenance, Record, Result, Split,
    jsonl::{self, Writer},
    store::PageIndex,
};

pub use layout::Layout;

/// Paragraphs of a page whose spans are compared: those that share the most words with the evidence.
const PARAGRAPHS: usize = 3;

/// What is to be mapped.
#[derive(Clone, Debug)]
pub struct MapRequest {
    /// The layout of the inputs.
    pub layout: Layout,
    /// The files, in this order.
    pub inputs: Vec<PathBuf>,
    /// The file of records in KILT's layout.
    pub output: PathBuf,
    /// Which part of the dataset they are: in `dev` and `test` evidence below `least` is dropped, and records without any
    /// other with it.
    pub split: Split,
    /// The least BLEU of evidence in `dev` and `test`; the paper's is 0.5.
    pub least: f64,
}

/// What came of a mapping.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MapSummary {
    /// Records read.
    pub read: u64,
    /// Records written.
    pub written: u64,
    /// Records left out because their dataset says that there is no evidence for them.
    pub unverifiable: u64,
    /// Records dropped because none of their evidence's pages is in the source.
    pub without_page: u64,
    /// Records dropped because the best BLEU of their evidence is too low.
    pub below: u64,
    /// Pieces of evidence.
    pub pieces: u64,
    /// Pieces whose page is in the source.
    pub pages: u64,
    /// Pieces with a span of BLEU 1.
    pub exact: u64,
    /// Pieces with a span of a lower BLEU, above 0.
    pub fuzzy: u64,
    /// The mean BLEU of the pieces whose text is known and whose page is in the source.
    pub mean_bleu: Option<f64>,
}

/// The evidence of a record after mapping.
struct Mapped {
    items: Vec<Provenance>,
    /// For each piece with a page, its BLEU; nothing where its text is not known.
    scores: Vec<Option<f64>>,
}

/// Maps the evidence of records onto the pages of `store`. The output appears when all inputs have been read.
///
/// # Errors
/// Those of the readers and writers; [`Error::Empty`] where the inputs hold no record; [`Error::Argument`] for a least BLEU
/// that is none.
pub fn map_evidence(request: &MapRequest, store: &PassageStore) -> Result<MapSummary> {
    if !(0.0..=1.0).contains(&request.least) {
        let message = format!("the least BLEU: expected a number from 0 to 1, found {}", request.least);
        return Err(Error::Argument(message));
    }
    let mut summary = MapSummary::default();
    let mut total = (0.0, 0u64);
    let mut writer = Writer::create(&request.output)?;
    for path in &request.inputs {
        let mut failed = Ok(());
        jsonl::open(path)?.chunks(|path, chunk| {
            let mapped: Result<Vec<Option<(Own, Mapped)>>> = chunk
                .par_lines()
                .map(|(line, bytes)| one(request.layout, path, line, bytes, store))
                .collect();
            for found in mapped? {
                if failed.is_ok() {
                    failed = count_and_write(request, found, &mut summary, &mut total, &mut writer);
                }
            }
            Ok(())
        })?;
        failed?;
    }
    if summary.read == 0 {
        let path = request.inputs.first().cloned().unwrap_or_default();
        return Err(Error::Empty { path, what: "record" });
    }
    store.sound()?;
    writer.finish()?;
    summary.mean_bleu = (total.1 > 0).then(|| total.0 / total.1 as f64);
    Ok(summary)
}

fn one(
    layout: Layout,
    path: &Path,
    line: u64,
    bytes: &[u8],
    store: &PassageStore,
) -> Result<Option<(Own, Mapped)>> {
    let Some(own) = layout.read(path, line, bytes)? else { return Ok(None) };
    let mut mapped = Mapped { items: Vec::new(), scores: Vec::new() };
    for piece in &own.evidence {
        if let Some(page) = store.page_by_title(&piece.title) {
            let item = provenance(store, page, piece);
            mapped.scores.push(item.bleu_score);
            mapped.items.push(item);
        }
    }
    Ok(Some((own, mapped)))
}

fn count_and_write(
    request: &MapRequest,
    found: Option<(Own, Mapped)>,
    summary: &mut MapSummary,
    total: &mut (f64, u64),
    writer: &mut Writer,
) -> Result<()> {
    summary.read += 1;
    let Some((own, mapped)) = found else {
        summary.unverifiable += 1;
        return Ok(());
    };
    summary.pieces += own.evidence.len() as u64;
    summary.pages += mapped.items.len() as u64;
    for score in mapped.scores.into_iter().flatten() {
        total.0 += score;
        total.1 += 1;
        summary.exact += u64::from(score == 1.0);
        summary.fuzzy += u64::from(score > 0.0 && score < 1.0);
    }
    if mapped.items.is_empty() {
        summary.without_page += 1;
        return Ok(());
    }
    let is_kept = |item: &Provenance| {
        request.split == Split::Train || item.bleu_score.is_none_or(|score| score >= request.least)
    };
    let items: Vec<Provenance> = mapped.items.into_iter().filter(is_kept).collect();
    if items.is_empty() {
        summary.below += 1;
        return Ok(());
    }
    summary.written += 1;
    let output =
        |answer: &String, provenance| Output { answer: Some(answer.clone()), provenance, extra: Map::new() };
    // The first answer carries the evidence, as in KILT's files.
    let mut outputs: Vec<Output> = own.answers.iter().map(|answer| output(answer, None)).collect();
    match outputs.first_mut() {
        Some(first) => first.provenance = Some(items),
        None => outputs.push(Output { answer: None, provenance: Some(items), extra: Map::new() }),
    }
    writer.record(&Record { output: Some(outputs), ..own.record() })
}

/// A piece of evidence as a span of a page, or as the page alone where its text is not known or nothing of it stands there.
fn provenance(store: &PassageStore, page: PageIndex, piece: &Piece) -> Provenance {
    let mut item = Provenance {
        wikipedia_id: Some(store.page_id(page).into()),
        title: Some(store.page_title(page).to_owned()),
        ..Provenance::default()
    };
    let Some(evidence) = piece.text.as_deref().and_then(Evidence::new) else { return item };
    let Some((paragraph, found)) =
        best_span(store, page, piece.text.as_deref().unwrap_or_default(), &evidence)
    else {
        item.bleu_score = Some(0.0);
        return item;
    };
    let id = |number: usize| Some((number as i64).into());
    item.section = Some(section(store, page, paragraph));
    item.start_paragraph_id = id(paragraph as usize);
    item.end_paragraph_id = id(paragraph as usize);
    item.start_character = id(found.characters.start);
    item.end_character = id(found.characters.end);
    item.bleu_score = Some(found.bleu);
    item
}

fn best_span(store: &PassageStore, page: PageIndex, text: &str, evidence: &Evidence) -> Option<(u32, Match)> {
    let text = text.trim();
    let mut candidates = Vec::new();
    for (number, paragraph) in (0u32..).zip(store.paragraphs(page)) {
        if let Some(at) = paragraph.find(text) {
            let start = paragraph[..at].chars().count();
            let characters = start..start + text.chars().count();
            return Some((number, Match { characters, bleu: 1.0, length: 0 }));
        }
        let words = words(paragraph);
        candidates.push((evidence.shared(&words), number, words));
    }
    candidates.sort_by_key(|(shared, number, _)| (std::cmp::Reverse(*shared), *number));
    let mut best: Option<(u32, Match)> = None;
    for (_, number, words) in candidates.iter().take(PARAGRAPHS) {
        let Some(found) = evidence.best(words) else { continue };
        let better = best.as_ref().is_none_or(|(_, known)| {
            found.bleu > known.bleu || (found.bleu == known.bleu && found.length < known.length)
        });
        if better {
            best = Some((*number, found));
        }
    }
    best.filter(|(_, found)| found.bleu > 0.0)
}

/// The header above a paragraph.
fn section(store: &PassageStore, page: PageIndex, paragraph: u32) -> String {
    let headers = (1..=paragraph).rev().map(|number| store.paragraph(page, number).trim());
    let header = headers.into_iter().find(|text| text.starts_with("Section::::"));
    header.unwrap_or("Section::::Abstract.").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PassageSplit, store::BuildOptions};

    fn store(folder: &Path) -> PassageStore {
        let source = folder.join("pages.jsonl");
        let pages = [
            r#"{"wikipedia_id":"7","wikipedia_title":"Ann Lund (singer)","text":["Ann Lund (singer)","Ann Lund was a Norwegian singer. She sang in Oslo.","Section::::Life.","She was born in Bergen, and moved to Oslo in 1930."]}"#,
            r#"{"wikipedia_id":"8","wikipedia_title":"Oslo","text":["Oslo","Oslo is a city."]}"#,
        ];
        jsonl::write(&source, pages.join("\n").as_bytes()).unwrap();
        let redirects = folder.join("redirects.tsv");
        jsonl::write(&redirects, b"Christiania\tOslo\n").unwrap();
        let build = BuildOptions { source, redirects: Some(redirects), split: PassageSplit::Words };
        PassageStore::build(&build, folder.join("store"), &mut |_| {}).unwrap()
    }

    fn mapped(layout: Layout, lines: &[&str], split: Split) -> (MapSummary, Vec<Record>) {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let input = folder.path().join("in.jsonl");
        jsonl::write(&input, lines.join("\n").as_bytes()).unwrap();
        let output = folder.path().join("out.jsonl");
        let request = MapRequest { layout, inputs: vec![input], output: output.clone(), split, least: 0.5 };
        let summary = map_evidence(&request, &store).unwrap();
        (summary, jsonl::open(&output).unwrap().records().collect::<Result<_>>().unwrap())
    }

    const PLAIN: [&str; 4] = [
        r#"{"id":1,"input":"born?","answers":["Bergen","B."],"evidence":[{"title":"ann lund (singer)","text":"She was born in Bergen, and later moved to Oslo in 1930"}]}"#,
        r#"{"id":2,"input":"what?","answers":["city"],"evidence":[{"title":"Christiania","text":"Oslo is a city."}]}"#,
        r#"{"id":3,"input":"far?","answers":["x"],"evidence":[{"title":"Oslo","text":"Nothing of it is said there, but for a word"}]}"#,
        r#"{"id":4,"input":"none?","answers":["x"],"evidence":[{"title":"Paris","text":"Paris is a city"}]}"#,
    ];

    #[test]
    fn spans_are_found_with_their_section_and_low_ones_are_dropped_and_counted() {
        let (summary, records) = mapped(Layout::Evidence, &PLAIN, Split::Dev);
        assert_eq!((summary.read, summary.written, summary.below, summary.without_page), (4, 2, 1, 1));
        assert_eq!((summary.pieces, summary.pages, summary.exact), (4, 3, 1));
        let first = &records[0].outputs()[0].evidence()[0];
        let place = |item: &Provenance| {
            let text = |id: &Option<crate::Id>| id.as_ref().unwrap().text().into_owned();
            (text(&item.start_paragraph_id), text(&item.start_character), text(&item.end_character))
        };
        // `later` is missing in the page, so that the span is a word shorter: all of the sentence.
        assert_eq!(place(first), ("3".into(), "0".into(), "49".into()));
        assert_eq!(first.section.as_deref(), Some("Section::::Life."));
        assert!(first.bleu_score.unwrap() > 0.5 && first.bleu_score.unwrap() < 1.0);
        assert_eq!(records[0].outputs()[1].answer.as_deref(), Some("B."));
        let second = &records[1].outputs()[0].evidence()[0];
        assert_eq!(
            (second.bleu_score, second.wikipedia_id.as_ref().unwrap().text().as_ref()),
            (Some(1.0), "8")
        );
        assert_eq!(place(second), ("1".into(), "0".into(), "15".into()));
    }

    #[test]
    fn a_training_part_keeps_what_is_below() {
        let (summary, records) = mapped(Layout::Evidence, &PLAIN, Split::Train);
        assert_eq!((summary.written, summary.below, records.len()), (3, 0, 3));
        assert!(records[2].outputs()[0].evidence()[0].bleu_score.unwrap() < 0.5);
    }

    #[test]
    fn fever_maps_pages_by_their_titles_and_leaves_out_what_cannot_be_verified() {
        let lines = [
            r#"{"id":5,"label":"SUPPORTS","claim":"Lund sang.","evidence":[[[1,2,"Ann_Lund_-LRB-singer-RRB-",0]],[[1,3,"Ann_Lund_-LRB-singer-RRB-",1]]]}"#,
            r#"{"id":6,"label":"NOT ENOUGH INFO","claim":"?","evidence":[[[1,null,null,null]]]}"#,
        ];
        let (summary, records) = mapped(Layout::Fever, &lines, Split::Dev);
        assert_eq!((summary.read, summary.written, summary.unverifiable, summary.pieces), (2, 1, 1, 1));
        let item = &records[0].outputs()[0].evidence()[0];
        assert_eq!(item.title.as_deref(), Some("Ann Lund (singer)"));
        assert_eq!((item.bleu_score, &item.start_paragraph_id), (None, &None));
        assert_eq!(summary.mean_bleu, None);
    }

    #[test]
    fn a_wrong_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let input = folder.path().join("in.jsonl");
        jsonl::write(&input, b"{\"id\":1,\"question\":\"q\",\"possible_answers\":\"x\",\"paragraphs\":[]}")
            .unwrap();
        let output = folder.path().join("out.jsonl");
        let request = MapRequest {
            layout: Layout::PopQa,
            inputs: vec![input],
            output: output.clone(),
            split: Split::Dev,
            least: 0.5,
        };
        let error = map_evidence(&request, &store).unwrap_err().to_string();
        assert!(error.contains("in.jsonl:1") && error.contains("possible_answers"), "{error}");
        assert!(!output.exists());
    }
}
