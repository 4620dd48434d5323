//! Maps a dataset's evidence onto a knowledge source as in KILT (Petroni et al. 2021, section 2). The page
//! has the same title, or a redirect from it. On that page, the span with the highest BLEU is the evidence,
//! the shortest of equal ones. Each alternative set of evidence becomes an output.

mod bleu;
mod histogram;
mod layout;
mod span;
mod summary;

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde_json::Map;

use self::{
    bleu::Evidence,
    layout::{Own, Piece},
    span::Span,
};
use crate::{
    Error, Output, PassageStore, Provenance, Record, Result, Split,
    jsonl::{self, Writer},
    store::PageIndex,
};

pub use self::{histogram::BleuHistogram, layout::Layout, summary::MapSummary};

/// The least BLEU of a span in `dev` and `test` (Petroni et al. 2021, section 2).
pub const LEAST_BLEU: f64 = 0.5;

/// The parameters of a mapping.
#[derive(Clone, Debug)]
pub struct MapRequest {
    /// The layout of the inputs.
    pub layout: Layout,
    /// The files, in this order.
    pub inputs: Vec<PathBuf>,
    /// The file of records in KILT's layout.
    pub output: PathBuf,
    /// The split of the dataset. In `dev` and `test` an output is dropped if one of its spans is below
    /// `least` or one of its pages is missing. `train` keeps the mapped part.
    pub split: Split,
    /// The smallest BLEU of a span in `dev` and `test`; [`LEAST_BLEU`] in the paper.
    pub least: f64,
}

/// A set of evidence after mapping.
struct MappedSet {
    /// The pieces whose pages are in the source, in the order of the set.
    items: Vec<Provenance>,
    /// The number of pieces whose pages are missing.
    missing: usize,
}

/// Why a set of evidence is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Written,
    /// A page is missing.
    Incomplete,
    /// The BLEU of a span is too low.
    Below,
    /// Another set of the record has the same spans.
    Equal,
}

/// A record with its sets of evidence mapped onto the store's pages.
type Mapped = (Own, Vec<MappedSet>);

/// Maps the evidence of records onto the pages of `store`. The output appears when all inputs have been read.
///
/// # Errors
/// Those of the readers and writers; [`Error::Empty`] if the inputs hold no record; [`Error::Argument`] for a least BLEU
/// that is none.
pub fn map_evidence(request: &MapRequest, store: &PassageStore) -> Result<MapSummary> {
    if !(0.0..=1.0).contains(&request.least) {
        let message = format!("the least BLEU: expected a number from 0 to 1, found {}", request.least);
        return Err(Error::Argument(message));
    }
    let mut summary = MapSummary::default();
    let mut total = 0.0;
    let mut writer = Writer::create(&request.output)?;
    for path in &request.inputs {
        let mut failed = Ok(());
        jsonl::open(path)?.chunks(|path, chunk| {
            let mapped: Result<Vec<Option<Mapped>>> = chunk
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
    let scored = summary.exact + summary.fuzzy + summary.unmatched;
    summary.mean_bleu = (scored > 0).then(|| total / scored as f64);
    Ok(summary)
}

fn one(layout: Layout, path: &Path, line: u64, bytes: &[u8], store: &PassageStore) -> Result<Option<Mapped>> {
    let own = layout.read(path, line, bytes)?;
    let map = |set: &Vec<Piece>| {
        let mut mapped = MappedSet { items: Vec::new(), missing: 0 };
        for piece in set {
            match store.page_by_title(&piece.title) {
                Some(page) => mapped.items.push(provenance(store, page, piece)),
                None => mapped.missing += 1,
            }
        }
        mapped
    };
    Ok(own.map(|own| {
        let sets = own.evidence.iter().map(map).collect();
        (own, sets)
    }))
}

fn count_and_write(
    request: &MapRequest,
    found: Option<Mapped>,
    summary: &mut MapSummary,
    total: &mut f64,
    writer: &mut Writer,
) -> Result<()> {
    summary.read += 1;
    let Some((own, sets)) = found.filter(|(_, sets)| !sets.is_empty()) else {
        summary.without_evidence += 1;
        return Ok(());
    };
    let without_page = sets.iter().all(|set| set.items.is_empty());
    let mut kept: Vec<Vec<Provenance>> = Vec::new();
    for set in sets {
        *total += summary.count(&set);
        let fate = fate(request, &set, &kept);
        summary.decide(fate);
        if fate == Fate::Written {
            kept.push(distinct(set.items));
        }
    }
    if kept.is_empty() {
        if without_page {
            summary.without_page += 1;
        } else {
            summary.without_output += 1;
        }
        return Ok(());
    }
    summary.written += 1;
    let output = |answer: Option<&String>, provenance| Output {
        answer: answer.cloned(),
        provenance,
        extra: Map::new(),
    };
    // The first answer has the evidence, as in KILT's files, once for each set.
    let mut outputs: Vec<Output> =
        kept.into_iter().map(|items| output(own.answers.first(), Some(items))).collect();
    outputs.extend(own.answers.iter().skip(1).map(|answer| output(Some(answer), None)));
    writer.record(&Record { output: Some(outputs), ..own.record() })
}

fn fate(request: &MapRequest, set: &MappedSet, kept: &[Vec<Provenance>]) -> Fate {
    let is_below = |item: &Provenance| item.bleu_score.is_some_and(|score| score < request.least);
    let is_train = request.split == Split::Train;
    if set.items.is_empty() || (set.missing > 0 && !is_train) {
        Fate::Incomplete
    } else if !is_train && set.items.iter().any(is_below) {
        Fate::Below
    } else if kept.iter().any(|other| are_equal(other, &set.items)) {
        Fate::Equal
    } else {
        Fate::Written
    }
}

/// Removes items with the same span, as for two titles of one page.
fn distinct(items: Vec<Provenance>) -> Vec<Provenance> {
    let mut kept: Vec<Provenance> = Vec::with_capacity(items.len());
    for item in items {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

/// Whether two sets have the same spans in any order.
fn are_equal(a: &[Provenance], b: &[Provenance]) -> bool {
    a.iter().all(|item| b.contains(item)) && b.iter().all(|item| a.contains(item))
}

/// The span for a piece of evidence, or the whole page if the text is unknown or not found.
fn provenance(store: &PassageStore, page: PageIndex, piece: &Piece) -> Provenance {
    let mut item = Provenance {
        wikipedia_id: Some(store.page_id(page).into()),
        title: Some(store.page_title(page).to_owned()),
        ..Provenance::default()
    };
    let text = piece.text.as_deref().unwrap_or_default();
    let Some(evidence) = Evidence::new(text) else { return item };
    let paragraphs: Vec<&str> = store.paragraphs(page).collect();
    let Some(span) = Span::best(&evidence, text, &paragraphs) else {
        item.bleu_score = Some(0.0);
        return item;
    };
    let id = |number: usize| Some((number as i64).into());
    item.section = Some(section(store, page, span.start.0));
    item.start_paragraph_id = id(span.start.0 as usize);
    item.start_character = id(span.start.1);
    item.end_paragraph_id = id(span.end.0 as usize);
    item.end_character = id(span.end.1);
    item.bleu_score = Some(span.bleu);
    item
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
        assert_eq!(
            (summary.read, summary.written, summary.without_output, summary.without_page),
            (4, 2, 1, 1)
        );
        assert_eq!((summary.pieces, summary.pages), (4, 3));
        assert_eq!((summary.exact, summary.fuzzy, summary.unmatched), (1, 1, 1));
        let first = &records[0].outputs()[0].evidence()[0];
        // The page lacks `later`, so the span is one word shorter: the whole sentence.
        assert_eq!(place(first), [3, 0, 3, 49]);
        assert_eq!(first.section.as_deref(), Some("Section::::Life."));
        assert!(first.bleu_score.unwrap() > 0.5 && first.bleu_score.unwrap() < 1.0);
        assert_eq!(records[0].outputs()[1].answer.as_deref(), Some("B."));
        let second = &records[1].outputs()[0].evidence()[0];
        assert_eq!(
            (second.bleu_score, second.wikipedia_id.as_ref().unwrap().text().as_ref()),
            (Some(1.0), "8")
        );
        assert_eq!(place(second), [1, 0, 1, 15]);
    }

    /// Start and end of a span: paragraph and character each.
    fn place(item: &Provenance) -> [i64; 4] {
        [&item.start_paragraph_id, &item.start_character, &item.end_paragraph_id, &item.end_character]
            .map(|id| id.as_ref().unwrap().text().parse().unwrap())
    }

    #[test]
    fn a_training_part_keeps_what_is_below() {
        let (summary, records) = mapped(Layout::Evidence, &PLAIN, Split::Train);
        assert_eq!((summary.written, summary.without_output, records.len()), (3, 0, 3));
        assert!(records[2].outputs()[0].evidence()[0].bleu_score.unwrap() < 0.5);
    }

    #[test]
    fn a_span_over_two_paragraphs_names_both() {
        let line = r#"{"id":1,"input":"q","answers":["x"],"evidence":[{"title":"Ann Lund (singer)","text":"She sang in Oslo. Life. She was born in Bergen"}]}"#;
        let (_, records) = mapped(Layout::Evidence, &[line], Split::Dev);
        let item = &records[0].outputs()[0].evidence()[0];
        // The evidence lacks one word of the span: `Section` of the header between.
        assert_eq!((place(item), item.section.as_deref()), ([1, 33, 3, 22], Some("Section::::Abstract.")));
        assert!(item.bleu_score.unwrap() > 0.5);
    }

    const LUND: &str = r#"{"title":"Ann Lund (singer)","text":"Ann Lund was a Norwegian singer"}"#;
    const CITY: &str = r#"{"title":"Oslo","text":"Oslo is a city."}"#;
    const POOR: &str = r#"{"title":"Ann Lund (singer)","text":"Ann Lund was a painter who may well have been known by some in the town of Molde"}"#;
    const LOST: &str = r#"{"title":"Paris","text":"Paris is a city"}"#;

    fn line(evidence: &str) -> String {
        format!(r#"{{"id":1,"input":"q","answers":["yes","y"],"evidence":{evidence}}}"#)
    }

    /// The answers of the outputs with the titles of their evidence.
    fn outputs(record: &Record) -> Vec<(String, Vec<String>)> {
        let titles = |output: &Output| {
            output.evidence().iter().map(|item| item.title.clone().unwrap()).collect::<Vec<_>>()
        };
        record.outputs().iter().map(|it| (it.answer.clone().unwrap(), titles(it))).collect()
    }

    #[test]
    fn an_output_with_a_low_span_or_a_lost_page_is_dropped_whole_in_dev_and_test() {
        for (evidence, below, incomplete) in
            [(format!("[{LUND},{POOR}]"), 1, 0), (format!("[[{LUND},{LOST}]]"), 0, 1)]
        {
            for split in [Split::Dev, Split::Test] {
                let (summary, records) = mapped(Layout::Evidence, &[&line(&evidence)], split);
                assert_eq!((summary.outputs_below, summary.outputs_incomplete), (below, incomplete));
                assert_eq!((summary.written, summary.without_output, records.len()), (0, 1, 0));
            }
            let (summary, records) = mapped(Layout::Evidence, &[&line(&evidence)], Split::Train);
            assert_eq!(
                (summary.outputs_written, summary.outputs_below, summary.outputs_incomplete),
                (1, 0, 0)
            );
            assert_eq!(outputs(&records[0])[0].1.len(), 1 + below as usize);
        }
    }

    #[test]
    fn alternatives_are_outputs_and_one_that_is_dropped_leaves_the_others() {
        let evidence = format!("[[{LUND},{CITY}],[{CITY},{LUND}],[{LUND},{POOR}],[{CITY}],[{LOST}]]");
        let (summary, records) = mapped(Layout::Evidence, &[&line(&evidence)], Split::Dev);
        let [lund, oslo] = ["Ann Lund (singer)", "Oslo"].map(str::to_owned);
        let yes = |titles| ("yes".to_owned(), titles);
        assert_eq!(
            outputs(&records[0]),
            [yes(vec![lund, oslo.clone()]), yes(vec![oslo]), ("y".to_owned(), vec![])]
        );
        // The second set is the first in another order; the lost page is a set of one.
        assert_eq!((summary.outputs, summary.outputs_written), (4, 2));
        assert_eq!((summary.outputs_below, summary.outputs_incomplete, summary.outputs_equal), (1, 1, 0));
        assert_eq!(
            summary.to_string(),
            "1 written of 1 read; 0 without evidence in the dataset, 0 without a page, 0 without an output left\n\
             2 outputs with evidence written of 4; 1 that lack a page, 1 with a span of too low a BLEU, 0 equal to another\n\
             6 pieces of evidence, 5 with a page; 4 exact, 1 fuzzy, 0 not found there; mean BLEU 0.828"
        );
        // Two titles of one page are one place.
        let evidence = [r#"[{"title":"Oslo"}]"#, r#"[{"title":"Christiania"},{"title":"Oslo"}]"#].join(",");
        let (summary, records) = mapped(Layout::Evidence, &[&line(&format!("[{evidence}]"))], Split::Dev);
        assert_eq!((summary.outputs_written, summary.outputs_equal, summary.pieces), (1, 1, 3));
        assert_eq!(outputs(&records[0])[0].1, ["Oslo"]);
    }

    #[test]
    fn records_without_evidence_are_not_records_without_a_page() {
        let lines = [line("[]"), line("[[],[]]"), line(&format!("[{LOST}]"))];
        let lines = lines.each_ref().map(String::as_str);
        let (summary, _) = mapped(Layout::Evidence, &lines, Split::Train);
        assert_eq!((summary.read, summary.without_evidence, summary.without_page), (3, 2, 1));
        assert_eq!((summary.outputs, summary.outputs_incomplete, summary.mean_bleu), (1, 1, None));
    }

    #[test]
    fn fever_maps_pages_by_their_titles_and_leaves_out_what_cannot_be_verified() {
        let lines = [
            r#"{"id":5,"label":"SUPPORTS","claim":"Lund sang.","evidence":[[[1,2,"Ann_Lund_-LRB-singer-RRB-",0]],[[1,3,"Ann_Lund_-LRB-singer-RRB-",1]]]}"#,
            r#"{"id":6,"label":"NOT ENOUGH INFO","claim":"?","evidence":[[[1,null,null,null]]]}"#,
        ];
        let (summary, records) = mapped(Layout::Fever, &lines, Split::Dev);
        assert_eq!((summary.read, summary.written, summary.without_evidence, summary.pieces), (2, 1, 1, 1));
        let item = &records[0].outputs()[0].evidence()[0];
        assert_eq!(item.title.as_deref(), Some("Ann Lund (singer)"));
        assert_eq!((item.bleu_score, &item.start_paragraph_id), (None, &None));
        assert_eq!(summary.mean_bleu, None);
    }

    #[test]
    fn each_set_of_fever_is_an_output_with_the_label() {
        let claim = r#"{"id":5,"label":"REFUTES","claim":"c","evidence":[[[1,2,"Oslo",0]],[[1,3,"Ann_Lund_-LRB-singer-RRB-",1],[1,3,"Oslo",0]],[[1,4,"Oslo",7]]]}"#;
        let (summary, records) = mapped(Layout::Fever, &[claim], Split::Dev);
        let [lund, oslo] = ["Ann Lund (singer)", "Oslo"].map(str::to_owned);
        let refutes = |titles| ("REFUTES".to_owned(), titles);
        assert_eq!(outputs(&records[0]), [refutes(vec![oslo.clone()]), refutes(vec![lund, oslo])]);
        assert_eq!((summary.outputs, summary.outputs_written), (2, 2));
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
