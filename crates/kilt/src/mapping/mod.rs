//! Maps a dataset's evidence onto a knowledge source as in KILT (Petroni et al. 2021, section 2). The page
//! has the same title, or a redirect from it. On that page, the span with the highest BLEU is the evidence,
//! the shortest of equal ones. Each alternative set of evidence becomes an output.

mod bleu;
mod histogram;
mod layouts;
mod mention;
mod options;
mod own;
mod sample;
mod source;
mod span;
mod summary;

use std::path::PathBuf;

use rayon::prelude::*;
use serde_json::Map;

use self::{
    bleu::Evidence,
    own::{Answer, Claim, Own, Piece},
    source::Source,
    span::{Span, verbatim},
};
use crate::{
    Error, Output, PassageStore, Provenance, Record, Result, Split, jsonl::Writer, store::PageIndex,
};

pub use self::{histogram::BleuHistogram, layouts::Layout, options::LayoutOptions, summary::MapSummary};

/// The least BLEU of a span (Petroni et al. 2021, section 2).
pub const LEAST_BLEU: f64 = 0.5;

/// The number of records that are mapped at once, on all threads.
const BATCH: usize = 4096;

/// The parameters of a mapping.
#[derive(Clone, Debug)]
pub struct MapRequest {
    /// The layout of the inputs.
    pub layout: Layout,
    /// Options of the layout.
    pub options: LayoutOptions,
    /// The files, in this order.
    pub inputs: Vec<PathBuf>,
    /// The file of records in KILT's layout.
    pub output: PathBuf,
    /// The split of the dataset. Evidence is dropped if one of its spans is below `least` or one of its pages or texts is
    /// missing. In `dev` and `test` its answer is dropped too; `train` keeps all pairs of input and answer.
    pub split: Split,
    /// The smallest BLEU of a span; [`LEAST_BLEU`] in the paper.
    pub least: f64,
}

/// A set of evidence after mapping.
struct MappedSet {
    /// The pieces whose pages are in the source, in the order of the set.
    items: Vec<Provenance>,
    /// The number of pieces whose pages are missing.
    missing: usize,
    /// The number of items whose texts the dataset's files lack.
    lost: usize,
}

/// Why a set of evidence is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Written,
    /// A page or a text is missing.
    Incomplete,
    /// The BLEU of a span is too low.
    Below,
    /// Another set of the same answer has the same spans.
    Equal,
}

/// A record with the sets of each claim mapped onto the store's pages.
type Mapped = (Own, Vec<Vec<MappedSet>>);

/// Maps the evidence of records onto the pages of `store`. The output appears when all inputs have been read.
///
/// # Errors
/// Those of the readers and writers; [`Error::Empty`] if the inputs hold no record; [`Error::Argument`] for a least BLEU
/// that is none, and for an option that the layout lacks.
pub fn map_evidence(request: &MapRequest, store: &PassageStore) -> Result<MapSummary> {
    if !(0.0..=1.0).contains(&request.least) {
        let message = format!("the least BLEU: expected a number from 0 to 1, found {}", request.least);
        return Err(Error::Argument(message));
    }
    request.layout.check(&request.options)?;
    let mut mapping = Mapping {
        request,
        store,
        writer: Writer::create(&request.output)?,
        summary: MapSummary::default(),
        total: 0.0,
        pending: Vec::new(),
    };
    let source = Source { inputs: &request.inputs, split: request.split, options: &request.options };
    (request.layout.read)(&source, &mut |own| mapping.take(own))?;
    mapping.finish()
}

/// A mapping in progress.
struct Mapping<'a> {
    request: &'a MapRequest,
    store: &'a PassageStore,
    writer: Writer,
    summary: MapSummary,
    /// The sum of all BLEU.
    total: f64,
    /// Records that are not mapped yet.
    pending: Vec<Option<Own>>,
}

impl Mapping<'_> {
    fn take(&mut self, own: Option<Own>) -> Result<()> {
        self.pending.push(own);
        if self.pending.len() < BATCH { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<()> {
        let store = self.store;
        let pending = std::mem::take(&mut self.pending);
        let mapped: Vec<Option<Mapped>> =
            pending.into_par_iter().map(|own| own.map(|own| mapped(own, store))).collect();
        mapped.into_iter().try_for_each(|found| self.count_and_write(found))
    }

    fn finish(mut self) -> Result<MapSummary> {
        self.flush()?;
        let Self { request, store, writer, mut summary, total, .. } = self;
        if summary.read == 0 {
            let path = request.inputs.first().cloned().unwrap_or_default();
            return Err(Error::Empty { path, what: "record" });
        }
        store.sound()?;
        writer.finish()?;
        summary.finish(total);
        Ok(summary)
    }

    fn count_and_write(&mut self, found: Option<Mapped>) -> Result<()> {
        self.summary.read += 1;
        let is_train = self.request.split == Split::Train;
        let has_evidence =
            |(own, claims): &Mapped| own.is_bare || is_train || claims.iter().any(|sets| !sets.is_empty());
        let Some((own, claims)) = found.filter(has_evidence) else {
            self.summary.without_evidence += 1;
            return Ok(());
        };
        let without_page = claims.iter().flatten().all(|set| set.items.is_empty());
        // Outputs with evidence come first, as in KILT's files.
        let (mut outputs, mut others): (Vec<Output>, Vec<Output>) = (Vec::new(), Vec::new());
        for (claim, sets) in own.claims.iter().zip(claims) {
            let had_evidence = !sets.is_empty();
            let kept = self.kept(sets);
            // In `dev` and `test`, an answer is dropped with its evidence.
            if had_evidence && kept.is_empty() && !claim.is_optional && !is_train {
                continue;
            }
            let title = kept.first().and_then(|items| items.first()?.title.clone());
            let answer = match &claim.answer {
                Answer::Text(text) => Some(text.clone()),
                Answer::Shared => None,
                Answer::Title => title,
            };
            let output = |answer, provenance| Output { answer, provenance, extra: extra(claim) };
            if kept.is_empty() && answer.is_some() {
                others.push(output(answer.clone(), None));
            }
            outputs.extend(kept.into_iter().map(|items| output(answer.clone(), Some(items))));
            others.extend(claim.aliases.iter().map(|alias| output(Some(alias.clone()), None)));
        }
        let has_answers = own.claims.iter().any(|claim| claim.answer != Answer::Shared);
        let is_answered = outputs.iter().chain(&others).any(|output| output.answer.is_some());
        let may_lack_evidence = own.is_bare || (is_train && is_answered);
        if (outputs.is_empty() && !may_lack_evidence) || (has_answers && !is_answered) {
            if without_page {
                self.summary.without_page += 1;
            } else {
                self.summary.without_output += 1;
            }
            return Ok(());
        }
        self.summary.written += 1;
        outputs.append(&mut others);
        self.writer.record(&Record { output: Some(outputs), ..own.record() })
    }

    /// Counts the sets of a claim, and returns the spans of those that are kept.
    fn kept(&mut self, sets: Vec<MappedSet>) -> Vec<Vec<Provenance>> {
        let mut kept: Vec<Vec<Provenance>> = Vec::new();
        for set in sets {
            self.total += self.summary.count(&set);
            let fate = fate(self.request.least, &set, &kept);
            self.summary.decide(fate);
            if fate == Fate::Written {
                kept.push(distinct(set.items));
            }
        }
        kept
    }
}

/// The fields of a claim that KILT does not define.
fn extra(claim: &Claim) -> Map<String, serde_json::Value> {
    claim.meta.iter().map(|meta| ("meta".to_owned(), meta.clone())).collect()
}

fn mapped(own: Own, store: &PassageStore) -> Mapped {
    let map = |set: &Vec<Piece>| {
        let mut mapped = MappedSet { items: Vec::new(), missing: 0, lost: 0 };
        for piece in set {
            match store.page_by_title(&piece.title) {
                Some(page) => {
                    mapped.items.push(provenance(store, page, piece));
                    mapped.lost += usize::from(piece.is_lost);
                }
                None => mapped.missing += 1,
            }
        }
        mapped
    };
    let claims = own.claims.iter().map(|claim| claim.evidence.iter().map(map).collect()).collect();
    (own, claims)
}

fn fate(least: f64, set: &MappedSet, kept: &[Vec<Provenance>]) -> Fate {
    // A BLEU of 0 is no span.
    let is_below = |item: &Provenance| item.bleu_score.is_some_and(|score| score < least || score == 0.0);
    if set.items.is_empty() || set.missing + set.lost > 0 {
        Fate::Incomplete
    } else if set.items.iter().any(is_below) {
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

/// The span for a piece of evidence: that of the form with the highest BLEU, the first of equal ones. The whole page if
/// no form is known or found.
fn provenance(store: &PassageStore, page: PageIndex, piece: &Piece) -> Provenance {
    let mut item = Provenance {
        wikipedia_id: Some(store.page_id(page).into_owned().into()),
        title: Some(store.page_title(page).to_owned()),
        ..Provenance::default()
    };
    if piece.texts.is_empty() {
        return item;
    }
    let paragraphs: Vec<&str> = store.paragraphs(page).collect();
    let mut best: Option<Span> = None;
    item.bleu_score = Some(0.0);
    for text in &piece.texts {
        let span = match Evidence::new(text) {
            Some(evidence) => Span::best(&evidence, text, &paragraphs),
            // A text without a word, such as `$`, can only stand there as it is.
            None => verbatim(text.trim(), &paragraphs),
        };
        if let Some(span) = span
            && best.as_ref().is_none_or(|best| span.bleu > best.bleu)
        {
            best = Some(span);
        }
    }
    let Some(span) = best else { return item };
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
    use std::path::Path;

    use super::*;
    use crate::{PassageSplit, jsonl, store::BuildOptions};

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

    fn mapped(layout: &str, lines: &[&str], split: Split) -> (MapSummary, Vec<Record>) {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let input = folder.path().join("in.jsonl");
        jsonl::write(&input, lines.join("\n").as_bytes()).unwrap();
        let output = folder.path().join("out.jsonl");
        let request = MapRequest {
            layout: layout.parse().unwrap(),
            options: LayoutOptions::default(),
            inputs: vec![input],
            output: output.clone(),
            split,
            least: LEAST_BLEU,
        };
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
        let (summary, records) = mapped("evidence", &PLAIN, Split::Dev);
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
    fn a_training_part_keeps_every_answer_without_bad_evidence() {
        let (summary, records) = mapped("evidence", &PLAIN, Split::Train);
        assert_eq!((summary.written, summary.without_output, records.len()), (4, 0, 4));
        // The third has a low BLEU, the fourth no page.
        for record in &records[2..] {
            assert_eq!(answers(record), (vec![], vec![Some("x")]));
        }
    }

    #[test]
    fn a_text_without_words_is_sought_as_it_is() {
        let line = |text: &str| {
            format!(
                r#"{{"Data":[{{"QuestionId":"q","Question":"?","Answer":{{"Value":"{text}"}},"EntityPages":[{{"Title":"Ann Lund (singer)"}}]}}]}}"#
            )
        };
        let (summary, _) = mapped("triviaqa", &[&line("!!!")], Split::Dev);
        assert_eq!((summary.written, summary.without_output, summary.outputs_below), (0, 1, 1));
        let (_, records) = mapped("triviaqa", &[&line(".")], Split::Dev);
        assert_eq!(place(&records[0].outputs()[0].evidence()[0]), [1, 31, 1, 32]);
    }

    #[test]
    fn a_span_over_two_paragraphs_names_both() {
        let line = r#"{"id":1,"input":"q","answers":["x"],"evidence":[{"title":"Ann Lund (singer)","text":"She sang in Oslo. Life. She was born in Bergen"}]}"#;
        let (_, records) = mapped("evidence", &[line], Split::Dev);
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
                let (summary, records) = mapped("evidence", &[&line(&evidence)], split);
                assert_eq!((summary.outputs_below, summary.outputs_incomplete), (below, incomplete));
                assert_eq!((summary.written, summary.without_output, records.len()), (0, 1, 0));
            }
            let (summary, records) = mapped("evidence", &[&line(&evidence)], Split::Train);
            assert_eq!(
                (summary.outputs_written, summary.outputs_below, summary.outputs_incomplete),
                (0, below, incomplete)
            );
            assert_eq!(answers(&records[0]), (vec![], vec![Some("yes"), Some("y")]));
        }
    }

    #[test]
    fn alternatives_are_outputs_and_one_that_is_dropped_leaves_the_others() {
        let evidence = format!("[[{LUND},{CITY}],[{CITY},{LUND}],[{LUND},{POOR}],[{CITY}],[{LOST}]]");
        let (summary, records) = mapped("evidence", &[&line(&evidence)], Split::Dev);
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
             2 outputs with evidence written of 4; 1 that lack a page or a text, 1 with a span of too low a BLEU, 0 equal to another\n\
             6 pieces of evidence, 5 with a page; 4 exact, 1 fuzzy, 0 not found there; mean BLEU 0.828; by tenths 0 1 0 0 0 0 0 0 0 4\n\
             0.00% of the records with evidence discarded"
        );
        // Two titles of one page are one place.
        let evidence = [r#"[{"title":"Oslo"}]"#, r#"[{"title":"Christiania"},{"title":"Oslo"}]"#].join(",");
        let (summary, records) = mapped("evidence", &[&line(&format!("[{evidence}]"))], Split::Dev);
        assert_eq!((summary.outputs_written, summary.outputs_equal, summary.pieces), (1, 1, 3));
        assert_eq!(outputs(&records[0])[0].1, ["Oslo"]);
    }

    #[test]
    fn records_without_evidence_are_not_records_without_a_page() {
        let lines = [line("[]"), line("[[],[]]"), line(&format!("[{LOST}]"))];
        let numbered = |at: usize| lines[at].replace("\"id\":1", &format!("\"id\":{at}"));
        let lines = [numbered(0), numbered(1), numbered(2)];
        let lines = lines.each_ref().map(String::as_str);
        let (summary, _) = mapped("evidence", &lines, Split::Dev);
        assert_eq!((summary.read, summary.without_evidence, summary.without_page), (3, 2, 1));
        assert_eq!((summary.outputs, summary.outputs_incomplete, summary.mean_bleu), (1, 1, None));
        let (summary, _) = mapped("evidence", &lines, Split::Train);
        assert_eq!((summary.written, summary.without_evidence, summary.without_page), (3, 0, 0));
    }

    #[test]
    fn fever_maps_pages_by_their_titles_and_leaves_out_what_cannot_be_verified() {
        let lines = [
            r#"{"id":5,"label":"SUPPORTS","claim":"Lund sang.","evidence":[[[1,2,"Ann_Lund_-LRB-singer-RRB-",0]],[[1,3,"Ann_Lund_-LRB-singer-RRB-",1]]]}"#,
            r#"{"id":6,"label":"NOT ENOUGH INFO","claim":"?","evidence":[[[1,null,null,null]]]}"#,
        ];
        let (summary, records) = mapped("fever", &lines, Split::Dev);
        assert_eq!((summary.read, summary.written, summary.without_evidence, summary.pieces), (2, 1, 1, 1));
        let item = &records[0].outputs()[0].evidence()[0];
        assert_eq!(item.title.as_deref(), Some("Ann Lund (singer)"));
        assert_eq!((item.bleu_score, &item.start_paragraph_id), (None, &None));
        assert_eq!(summary.mean_bleu, None);
    }

    #[test]
    fn each_set_of_fever_is_an_output_with_the_label() {
        let claim = r#"{"id":5,"label":"REFUTES","claim":"c","evidence":[[[1,2,"Oslo",0]],[[1,3,"Ann_Lund_-LRB-singer-RRB-",1],[1,3,"Oslo",0]],[[1,4,"Oslo",7]]]}"#;
        let (summary, records) = mapped("fever", &[claim], Split::Dev);
        let [lund, oslo] = ["Ann Lund (singer)", "Oslo"].map(str::to_owned);
        let refutes = |titles| ("REFUTES".to_owned(), titles);
        assert_eq!(outputs(&records[0]), [refutes(vec![oslo.clone()]), refutes(vec![lund, oslo])]);
        assert_eq!((summary.outputs, summary.outputs_written), (2, 2));
    }

    /// The answers with evidence, and those without it.
    fn answers(record: &Record) -> (Vec<Option<&str>>, Vec<Option<&str>>) {
        let texts = |with: bool| {
            let of = record.outputs().iter().filter(|output| output.provenance.is_some() == with);
            of.map(|output| output.answer.as_deref()).collect()
        };
        (texts(true), texts(false))
    }

    #[test]
    fn an_alias_that_no_page_has_is_an_answer_without_evidence() {
        let question = r#"{"Data":[{"QuestionId":"q","Question":"where?","Answer":{"Value":"Oslo","Aliases":["Christiania"]},"EntityPages":[{"Title":"Ann Lund (singer)"},{"Title":"Oslo"},{"Title":"Paris"}]}]}"#;
        for split in [Split::Train, Split::Dev] {
            let (summary, records) = mapped("triviaqa", &[question], split);
            let [lund, oslo] = ["Ann Lund (singer)", "Oslo"].map(str::to_owned);
            let of = |titles: Vec<String>| ("Oslo".to_owned(), titles);
            assert_eq!(
                outputs(&records[0]),
                [of(vec![lund]), of(vec![oslo]), ("Christiania".to_owned(), vec![])]
            );
            assert_eq!(
                (summary.outputs, summary.outputs_written, summary.outputs_below, summary.outputs_incomplete),
                (6, 2, 2, 2)
            );
        }
    }

    #[test]
    fn the_answer_of_a_mention_is_the_title_that_its_page_has_in_the_source() {
        let lines = [
            "-DOCSTART- (1testa X)",
            "Kra\tB\tKra\tOslo\thttp://en.wikipedia.org/wiki/Christiania\t1\t/m/1",
            "Bonn\tB\tBonn\tBonn\thttp://en.wikipedia.org/wiki/Bonn\t2\t/m/2",
        ];
        let (summary, records) = mapped("aida", &lines, Split::Dev);
        assert_eq!((summary.read, summary.written, summary.without_page), (2, 1, 1));
        assert_eq!(summary.discarded, Some(0.5));
        assert_eq!(records[0].input.as_deref(), Some("[START_ENT] Kra [END_ENT] Bonn"));
        assert_eq!(outputs(&records[0]), [("Oslo".to_owned(), vec!["Oslo".to_owned()])]);
    }

    #[test]
    fn an_answer_is_dropped_with_its_evidence_and_a_record_with_its_last_answer() {
        let line = |id: u8, text: &str, short: &str, long: &str| {
            format!(
                r#"{{"example_id":{id},"question_text":"q","document_url":"https://en.wikipedia.org/wiki/Oslo","document_text":"{text}","annotations":[{{"long_answer":{{{long}}},"short_answers":[{{{short}}}]}}]}}"#
            )
        };
        let lines = [
            line(
                1,
                "<P> Oslo is a city . </P>",
                r#""start_token":3,"end_token":5"#,
                r#""start_token":0,"end_token":7"#,
            ),
            // The page lacks `Norway`. The long answer has a BLEU of (4/6 * 3/5 * 2/4 * 1/3)^(1/4) = 0.508.
            line(
                2,
                "<P> Oslo is a city in Norway </P>",
                r#""start_token":6,"end_token":7"#,
                r#""start_token":0,"end_token":8"#,
            ),
        ];
        let lines = lines.each_ref().map(String::as_str);
        let (summary, records) = mapped("nq", &lines, Split::Dev);
        assert_eq!((summary.written, summary.without_output, summary.outputs_below), (1, 1, 1));
        assert_eq!(answers(&records[0]), (vec![Some("a city"), None], vec![]));
        let (summary, records) = mapped("nq", &lines, Split::Train);
        assert_eq!((summary.written, summary.outputs_below), (2, 1));
        assert_eq!(answers(&records[1]), (vec![None], vec![Some("Norway")]));
        // Two spans of BLEU 1, one of 0 and one of 0.508.
        assert_eq!(summary.histogram.0, [1, 0, 0, 0, 0, 1, 0, 0, 0, 2]);
    }

    #[test]
    fn a_dataset_without_evidence_is_written_without_it() {
        let line = r#"{"q_id":"a1","title":"Why?","answers":{"text":["So.","No."],"score":[3,1]}}"#;
        let (summary, records) = mapped("eli5", &[line], Split::Dev);
        assert_eq!((summary.read, summary.written, summary.without_evidence), (1, 1, 0));
        assert_eq!(answers(&records[0]), (vec![], vec![Some("So."), Some("No.")]));
        assert_eq!(records[0].outputs()[0].extra["meta"], serde_json::json!({"score": 3}));
    }

    #[test]
    fn many_records_are_written_in_their_order() {
        let lines: Vec<String> = (0..2 * BATCH + 3)
            .map(|at| format!(r#"{{"id":{at},"input":"q","answers":["x"],"evidence":[{{"title":"Oslo"}}]}}"#))
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let (summary, records) = mapped("evidence", &lines, Split::Dev);
        assert_eq!(summary.written as usize, lines.len());
        assert!(records.iter().zip(0i64..).all(|(record, at)| record.id.number() == Some(at)));
    }

    #[test]
    fn an_option_that_the_layout_lacks_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let request = MapRequest {
            layout: "evidence".parse().unwrap(),
            options: LayoutOptions { seed: Some(1), ..LayoutOptions::default() },
            inputs: vec![folder.path().join("none")],
            output: folder.path().join("out.jsonl"),
            split: Split::Dev,
            least: LEAST_BLEU,
        };
        let message = map_evidence(&request, &store).unwrap_err().to_string();
        assert!(message.contains("the layout `evidence` has no option `seed`"), "{message}");
    }

    #[test]
    fn an_id_that_is_given_twice_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("in.jsonl");
        jsonl::write(&input, [PLAIN[0], PLAIN[1], PLAIN[0]].join("\n").as_bytes()).unwrap();
        let request = MapRequest {
            layout: "evidence".parse().unwrap(),
            options: LayoutOptions::default(),
            inputs: vec![input],
            output: folder.path().join("out.jsonl"),
            split: Split::Dev,
            least: LEAST_BLEU,
        };
        let message = map_evidence(&request, &store(folder.path())).unwrap_err().to_string();
        assert!(message.contains("in.jsonl:3: field `id`: `1` stands on line 1 of "), "{message}");
        assert!(!request.output.exists());
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
            layout: "popqa".parse().unwrap(),
            options: LayoutOptions::default(),
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
