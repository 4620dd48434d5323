//! Synthetic queries about pages, to train retrievers and rerankers without real queries. The kinds are:
//! parts of a page's sentences without its name (the inverse cloze task; Lee et al., 2019), the same over a
//! page and another that it names, comparisons of two similar pages, and small talk about a page. Test sets have questions
//! that sentences become.

mod pages;
mod questions;
mod unique;
mod wording;

use std::path::Path;

use rand::{
    Rng, SeedableRng,
    seq::{IndexedRandom, SliceRandom},
};
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxHashSet;
use serde::Serialize;
use serde_json::Map;

use self::{
    pages::{Pages, chunk, clean, hidden, plain},
    questions::{Question, Vocabulary, questions as page_questions},
    wording::{
        ABOUT, ASIDES, BINDERS, COMPARISONS, OPENERS, PRONOUNS, QUESTION_WORDS, REPLIES, SWITCHES, filled,
    },
};
use crate::{Error, Id, Output, PassageStore, Provenance, Record, Result, jsonl::Writer, store::PageIndex};

/// The largest number of pages of a store in which questions of a test set are compared with the paragraphs of other pages.
pub const COMPARED: usize = 100_000;

/// The largest number of pages to try for a query.
const TRIES: u64 = 1000;

/// The number of queries of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Synthesised {
    /// A part of one of a page's sentences.
    pub cloze: u64,
    /// Parts of two pages, one of which names the other.
    pub bridge: u64,
    /// A comparison of two pages.
    pub comparison: u64,
    /// Small talk about a page.
    pub dialogue: u64,
}

#[derive(Clone, Copy)]
enum Kind {
    Cloze,
    Bridge,
    Comparison,
    Dialogue,
}

impl Kind {
    fn draw(rng: &mut ChaCha8Rng) -> Self {
        match rng.random_range(0..100) {
            0..38 => Self::Bridge,
            38..46 => Self::Cloze,
            46..58 => Self::Comparison,
            _ => Self::Dialogue,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Cloze => "cloze",
            Self::Bridge => "bridge",
            Self::Comparison => "comparison",
            Self::Dialogue => "dialogue",
        }
    }
}

/// Writes `count` queries about the pages of `store` as records in KILT's layout, with these pages as
/// evidence. The same seed gives the same records.
///
/// # Errors
/// [`Error::Argument`] if the pages have too little text, and those of the writer.
pub fn synthesise(store: &PassageStore, count: u64, seed: u64, output: &Path) -> Result<Synthesised> {
    let pages = Pages::new(store);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut writer = Writer::create(output)?;
    let mut summary = Synthesised::default();
    for number in 0..count {
        let kind = Kind::draw(&mut rng);
        let query = (0..TRIES).find_map(|_| match kind {
            Kind::Cloze => cloze(&pages, &mut rng),
            Kind::Bridge => bridge(&pages, &mut rng),
            Kind::Comparison => comparison(&pages, &mut rng),
            Kind::Dialogue => dialogue(&pages, &mut rng),
        });
        let Some((text, about)) = query else {
            let message =
                format!("no query of the kind `{}` came of {TRIES} pages of the store", kind.name());
            return Err(Error::Argument(message));
        };
        match kind {
            Kind::Cloze => summary.cloze += 1,
            Kind::Bridge => summary.bridge += 1,
            Kind::Comparison => summary.comparison += 1,
            Kind::Dialogue => summary.dialogue += 1,
        }
        writer.record(&record(store, format!("{}-{number}", kind.name()), text, &about))?;
    }
    store.sound()?;
    writer.finish()?;
    Ok(summary)
}

/// Makes at most `count` questions out of the sentences of pages, as records in KILT's layout. Sentences whose parts are unsure,
/// such as those without a clear subject, make none. A page is asked about again only after all others, and a sentence only after
/// all others of its page. In a store of at most [`COMPARED`] pages, a question whose words are all in a paragraph of another page
/// is left out. The same seed gives the same records.
///
/// # Errors
/// [`Error::Store`] if the store is damaged.
pub fn questions(store: &PassageStore, count: usize, seed: u64) -> Result<Vec<Record>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut order: Vec<PageIndex> = (0..store.pages() as u32).map(PageIndex).collect();
    order.shuffle(&mut rng);
    let vocabulary = Vocabulary::of(store);
    let is_compared = store.pages() <= COMPARED;
    let mut made: Vec<(PageIndex, Vec<Question>)> = Vec::new();
    for page in order {
        // Without a comparison, every page with a question gives one.
        if !is_compared && made.len() >= count {
            break;
        }
        let texts = in_turn(page_questions(store, page, &vocabulary), &mut rng);
        if !texts.is_empty() {
            made.push((page, texts));
        }
    }
    if is_compared {
        unique::keep(store, &mut made);
    }
    let mut records: Vec<Record> = Vec::new();
    let mut known: FxHashSet<String> = FxHashSet::default();
    let rounds = made.iter().map(|(_, texts)| texts.len()).max().unwrap_or(0);
    for round in 0..rounds {
        for (page, texts) in &made {
            let Some(question) = texts.get(round) else { continue };
            if records.len() < count && known.insert(question.text.clone()) {
                let id = format!("sentence-{}", records.len());
                records.push(record(store, id, question.text.clone(), &[*page]));
            }
        }
    }
    store.sound()?;
    Ok(records)
}

/// The questions of a page in the order in which they are asked: the first of each sentence, in a random order, then the second.
fn in_turn(mut sentences: Vec<Vec<Question>>, rng: &mut ChaCha8Rng) -> Vec<Question> {
    sentences.shuffle(rng);
    let rounds = sentences.iter().map(Vec::len).max().unwrap_or(0);
    let round = |at: usize| sentences.iter().filter_map(move |texts| texts.get(at).cloned());
    (0..rounds).flat_map(round).collect()
}

fn record(store: &PassageStore, id: String, text: String, about: &[PageIndex]) -> Record {
    let page = |page: &PageIndex| Provenance {
        wikipedia_id: Some(Id::Text(store.page_id(*page).into_owned())),
        title: Some(store.page_title(*page).to_owned()),
        ..Provenance::default()
    };
    let provenance = Some(about.iter().map(page).collect());
    Record {
        id: Id::Text(id),
        input: Some(text),
        output: Some(vec![Output { provenance, ..Output::default() }]),
        meta: None,
        extra: Map::new(),
    }
}

/// A query and its pages.
type Query = Option<(String, Vec<PageIndex>)>;

fn one<'a>(among: &[&'a str], rng: &mut ChaCha8Rng) -> &'a str {
    among.choose(rng).copied().unwrap_or_default()
}

/// A text of at least three words.
fn query(text: &str, about: Vec<PageIndex>) -> Query {
    (text.split_whitespace().count() >= 3).then(|| (text.to_owned(), about))
}

fn cloze(pages: &Pages<'_>, rng: &mut ChaCha8Rng) -> Query {
    let page = pages.any(rng);
    let sentences = pages.sentences(page);
    let sentence = sentences.choose(rng)?;
    let title = plain(pages.title(page));
    let by = if rng.random_bool(0.5) { title } else { one(PRONOUNS, rng) };
    let part = chunk(&hidden(sentence, title, by), 6..21, rng);
    query(&clean(&format!("{} {part}", one(QUESTION_WORDS, rng))), vec![page])
}

fn bridge(pages: &Pages<'_>, rng: &mut ChaCha8Rng) -> Query {
    let page = pages.any(rng);
    let sentences = pages.sentences(page);
    let sentence = *sentences.choose(rng)?;
    let named = pages.named(sentence, page);
    let &(name, other) = named.choose(rng)?;
    let second = *pages.sentences(other).choose(rng)?;
    let noun = |page, rng: &mut ChaCha8Rng| match pages.noun(page) {
        Some(noun) if rng.random_bool(0.6) => format!("the {noun}"),
        _ => one(PRONOUNS, rng).to_owned(),
    };
    // One of the two names is included, or none.
    let title = plain(pages.title(page));
    let says_first = rng.random_bool(0.6);
    let says_second = !says_first && rng.random_bool(0.6);
    let by = if says_first { title.to_owned() } else { noun(page, rng) };
    let first = hidden(sentence, title, &by);
    let by = if says_second { name.to_owned() } else { noun(other, rng) };
    let first = chunk(&first.replace(name, &by), 6..15, rng);
    let second = chunk(&hidden(second, plain(pages.title(other)), one(PRONOUNS, rng)), 3..10, rng);
    let (first, second) = if rng.random_bool(0.5) { (first, second) } else { (second, first) };
    let end = if rng.random_bool(0.6) { "?" } else { "" };
    let text = format!("{} {first}{}{second}", one(QUESTION_WORDS, rng), one(BINDERS, rng));
    query(&(clean(&text) + end), vec![page, other])
}

fn comparison(pages: &Pages<'_>, rng: &mut ChaCha8Rng) -> Query {
    let page = pages.any(rng);
    let noun = pages.noun(page)?;
    let other = *pages.of_noun(noun).choose(rng)?;
    let names = [page, other].map(|page| plain(pages.title(page)));
    if page == other {
        return None;
    }
    query(&filled(one(COMPARISONS, rng), &[names[0], names[1], noun]), vec![page, other])
}

fn dialogue(pages: &Pages<'_>, rng: &mut ChaCha8Rng) -> Query {
    let page = if rng.random_bool(0.7) { pages.any_general(rng)? } else { pages.any_rich(rng)? };
    let title = plain(pages.title(page));
    let sentences = pages.sentences(page);
    let named: Vec<_> = sentences.iter().flat_map(|sentence| pages.named(sentence, page)).collect();
    let name = if rng.random_bool(0.4) { title.to_owned() } else { title.to_lowercase() };
    let mut opener = filled(one(OPENERS, rng), &[&name]);
    if rng.random_bool(0.4) {
        opener = format!("{opener} {}.", chunk(&hidden(sentences.choose(rng)?, title, "it"), 5..17, rng));
    }
    let mut turns = vec![opener];
    for _ in 0..*[0, 1, 1, 2, 2, 3].choose(rng)? {
        let turn = match rng.random_range(0..100) {
            0..35 => one(REPLIES, rng).to_owned(),
            35..70 => {
                let by = if rng.random_bool(0.25) { &name } else { one(ABOUT, rng) };
                chunk(&hidden(sentences.choose(rng)?, title, by), 6..17, rng)
            }
            // A distraction: another topic is named or mentioned.
            _ => {
                let near = named.choose(rng).filter(|_| rng.random_bool(0.6)).map(|(_, page)| *page);
                let other = match near {
                    Some(page) => page,
                    None => pages.any_rich(rng)?,
                };
                let name = plain(pages.title(other));
                match pages.sentences(other).choose(rng) {
                    Some(sentence) if rng.random_bool(0.4) => {
                        chunk(&hidden(sentence, name, name), 6..15, rng)
                    }
                    _ => filled(one(ASIDES, rng), &[name]),
                }
            }
        };
        turns.push(turn);
        if rng.random_bool(0.5) {
            turns.push(one(REPLIES, rng).to_owned());
        }
    }
    let mut about = page;
    if let Some((_, other)) = named.choose(rng).filter(|_| rng.random_bool(0.12)) {
        turns.push(filled(one(SWITCHES, rng), &[plain(pages.title(*other))]));
        about = *other;
    }
    Some((turns.join("\n"), vec![about]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PassageSplit, jsonl, store::BuildOptions};

    /// Pages that name each other, with enough text.
    fn store(folder: &Path, count: usize) -> PassageStore {
        let page = |at: usize| {
            let filler =
                " It has been praised by many people who came to see how it was done there.".repeat(9);
            let text = format!(
                "Lake Number{at} is a lake in Region{at} of the north. It was often compared with Lake Number{} because of its depth.{filler}",
                (at + 1) % count
            );
            serde_json::json!({"wikipedia_id": at.to_string(), "wikipedia_title": format!("Lake Number{at} (water)"),
                "text": [format!("Lake Number{at} (water)"), text]})
            .to_string()
        };
        let source = folder.join("pages.jsonl");
        let lines: Vec<String> = (0..count).map(page).collect();
        jsonl::write(&source, lines.join("\n").as_bytes()).unwrap();
        let build = BuildOptions { source, redirects: None, split: PassageSplit::Page };
        PassageStore::build(&build, folder.join("store"), &mut |_| {}).unwrap()
    }

    #[test]
    fn every_kind_is_made_about_pages_that_there_are_and_again_from_the_same_seed() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 30);
        let made = |seed, name: &str| {
            let path = folder.path().join(name);
            let summary = synthesise(&store, 200, seed, &path).unwrap();
            (summary, jsonl::read_to_string(path).unwrap())
        };
        let (summary, text) = made(1, "a.jsonl");
        assert_eq!(made(1, "b.jsonl"), (summary, text.clone()));
        assert_ne!(made(2, "c.jsonl").1, text);
        let Synthesised { cloze, bridge, comparison, dialogue } = summary;
        assert_eq!(cloze + bridge + comparison + dialogue, 200);
        assert!([cloze, bridge, comparison, dialogue].iter().all(|&count| count > 5), "{summary:?}");
        let records: Vec<Record> =
            jsonl::open(folder.path().join("a.jsonl")).unwrap().records().collect::<Result<_>>().unwrap();
        for record in &records {
            let Id::Text(id) = &record.id else { panic!("{record:?}") };
            let input = record.input.as_deref().unwrap();
            let evidence = record.outputs()[0].evidence();
            let pages: Vec<PageIndex> = evidence
                .iter()
                .map(|item| store.page_by_id(&item.wikipedia_id.as_ref().unwrap().text()).unwrap())
                .collect();
            let names = |page: &PageIndex| input.contains(plain(store.page_title(*page)));
            match id.split('-').next().unwrap() {
                "bridge" => {
                    assert_eq!(pages.len(), 2);
                    // The first page names the second, and the query never contains both names.
                    assert_eq!((pages[0].0 + 1) % 30, pages[1].0);
                    assert!(!(names(&pages[0]) && names(&pages[1])), "{input}");
                }
                "comparison" => assert!(pages.len() == 2 && pages.iter().all(names), "{input}"),
                "cloze" => assert!(pages.len() == 1 && !input.contains('\n')),
                kind => {
                    assert_eq!((kind, pages.len()), ("dialogue", 1));
                    let title = plain(store.page_title(pages[0])).to_lowercase();
                    assert!(input.to_lowercase().contains(&title), "{input}");
                }
            }
        }
    }

    #[test]
    fn questions_are_distinct_and_cover_the_pages() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 12);
        let records = questions(&store, 12, 1).unwrap();
        let page =
            |record: &Record| record.outputs()[0].evidence()[0].wikipedia_id.clone().unwrap().to_string();
        let pages: FxHashSet<String> = records.iter().map(page).collect();
        let texts: FxHashSet<&str> = records.iter().filter_map(|record| record.input.as_deref()).collect();
        assert_eq!((records.len(), pages.len(), texts.len()), (12, 12, 12));
        let expected = [
            "Where is Lake Number3?",
            "What is Lake Number3?",
            "Was Lake Number3 compared with Lake Number4 because of its depth?",
            "Which lake was compared with Lake Number4 because of its depth?",
        ];
        assert!(expected.iter().any(|text| texts.contains(text)), "{texts:?}");
        assert_eq!(questions(&store, 12, 1).unwrap(), records);
        assert_ne!(questions(&store, 12, 2).unwrap(), records);
        // A page is asked about again after all others.
        let all = questions(&store, 100, 1).unwrap();
        let first: FxHashSet<String> = all[12..24].iter().map(page).collect();
        assert!(all[..12] == records[..] && first.len() == 12 && all.len() > 24, "{}", all.len());
        assert!(questions(&store, 0, 1).unwrap().is_empty());
    }

    #[test]
    fn pages_without_sentences_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("pages.jsonl");
        jsonl::write(&source, br#"{"wikipedia_id":"1","wikipedia_title":"A","text":["A","b"]}"#).unwrap();
        let build = BuildOptions { source, redirects: None, split: PassageSplit::Page };
        let store = PassageStore::build(&build, folder.path().join("store"), &mut |_| {}).unwrap();
        let output = folder.path().join("out.jsonl");
        let error = synthesise(&store, 3, 0, &output).unwrap_err().to_string();
        assert!(error.contains("came of 1000 pages"), "{error}");
        assert!(!output.exists());
        assert!(questions(&store, 3, 0).unwrap().is_empty());
    }
}
