//! Page selection: a classifier reads the claim with a page's title and first sentence, as in NSMN's document retrieval
//! (Nie, Chen and Bansal, 2019).

use sporran_kilt::PassageStore;

use super::{Labeller, PageOptions, Piece, Reading, UnitKind, labels::softmax, units};
use crate::{Candidate, Request, Result};

/// The passages of each request to read: those of the best page first, each page's passages in the retriever's order.
///
/// # Errors
/// Where the model fails, or a page's first sentence cannot be read.
pub(super) fn chosen(
    requests: &[Request<'_>],
    model: &dyn Labeller,
    options: &PageOptions,
    store: Option<&PassageStore>,
) -> Result<Vec<Vec<usize>>> {
    let leads: Vec<_> =
        requests.iter().map(|request| units(request, UnitKind::Lead, store)).collect::<Result<_>>()?;
    let mut readings = Vec::new();
    let mut pages: Vec<Vec<Page>> = Vec::with_capacity(requests.len());
    for (request, leads) in requests.iter().zip(&leads) {
        let claim = request.query.text.as_str();
        let page = |lead| {
            let priority = priority_of(request, lead, options);
            if priority == PagePriority::Scored {
                let piece =
                    Piece { passage: request.passages[lead.passage].passage, unit: lead, relevance: 1.0 };
                readings.push(Reading { claim, pieces: vec![piece] });
            }
            Page { passage: lead.passage, priority, probability: 1.0 }
        };
        pages.push(leads.iter().map(page).collect());
    }
    let mut logits = model.read(&readings, true)?;
    logits.iter_mut().for_each(|row| softmax(row));
    let scored = pages.iter_mut().flatten().filter(|page| page.priority == PagePriority::Scored);
    for (page, row) in scored.zip(&logits) {
        page.probability = row[1];
    }
    Ok(requests.iter().zip(pages).map(|(request, pages)| kept(request.passages, pages, options)).collect())
}

/// A retrieved page.
struct Page {
    /// Its first passage among the request's.
    passage: usize,
    priority: PagePriority,
    /// The probability that it has evidence.
    probability: f32,
}

/// The rank class of a page; earlier variants come first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PagePriority {
    /// The claim contains the title with its disambiguation.
    ExactTitle,
    /// The title has no disambiguation.
    Unambiguous,
    /// The model scores the page.
    Scored,
}

fn priority_of(request: &Request<'_>, lead: &super::Unit, options: &PageOptions) -> PagePriority {
    let title = &request.passages[lead.passage].passage.title;
    match (options.ambiguous_only, title.contains('(')) {
        (false, _) => PagePriority::Scored,
        (true, false) => PagePriority::Unambiguous,
        (true, true) if request.query.text.contains(title.as_str()) => PagePriority::ExactTitle,
        (true, true) => PagePriority::Scored,
    }
}

/// The passages of the pages that are kept.
fn kept(passages: &[Candidate<'_>], mut pages: Vec<Page>, options: &PageOptions) -> Vec<usize> {
    pages.sort_by(|a, b| a.priority.cmp(&b.priority).then(b.probability.total_cmp(&a.probability)));
    let likely = pages.iter().take_while(|page| page.probability >= options.threshold).count();
    pages.truncate(likely.clamp(1, options.pages));
    let id = |at: usize| passages[at].passage.page_id.as_str();
    let of_page = |page: Page| (0..passages.len()).filter(move |&at| id(at) == id(page.passage));
    pages.into_iter().flat_map(of_page).collect()
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, sync::Arc};

    use sporran_kilt::{Passage, PassageId, PassageSplit, Query, jsonl, store::BuildOptions};

    use super::*;
    use crate::{Generator, Selectors, Verifier, VerifierOptions};

    /// Gives a page the probability that its first sentence states.
    struct AsItSays([String; 2]);

    impl Labeller for AsItSays {
        fn labels(&self) -> &[String] {
            &self.0
        }

        fn logits(&self, pairs: &[(&str, &str)]) -> Result<Vec<Vec<f32>>> {
            let sure =
                |text: &str| text.rsplit(' ').next().unwrap().trim_end_matches('.').parse::<f32>().unwrap();
            let row = |text: &str| vec![(1.0 - sure(text)).ln(), sure(text).ln()];
            Ok(pairs.iter().map(|(_, text)| row(text)).collect())
        }
    }

    /// Calls `ask` with a claim and retrieved pages of these titles and first sentences; each has two passages.
    fn with<T>(claim: &str, pages: &[(&str, &str)], ask: impl FnOnce(Request<'_>, PassageStore) -> T) -> T {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("pages.jsonl");
        let line = |(id, (title, first)): (usize, &(&str, &str))| {
            let words = "word ".repeat(100);
            format!(
                r#"{{"wikipedia_id":"{id}","wikipedia_title":"{title}","text":["{title}","{first} It goes on: {words}."]}}"#
            )
        };
        let lines: Vec<String> = pages.iter().enumerate().map(line).collect();
        jsonl::write(&source, lines.join("\n").as_bytes()).unwrap();
        let build = BuildOptions { source, redirects: None, split: PassageSplit::Words };
        let store = PassageStore::build(&build, folder.path().join("store"), &mut |_| {}).unwrap();
        let found: Vec<Passage> =
            (0..2 * pages.len() as u32).map(|id| store.passage(PassageId(id))).collect();
        let passages: Vec<Candidate<'_>> =
            found.iter().map(|passage| Candidate { passage, score: 1.0 }).collect();
        ask(Request { query: &Query::of_text("1", claim), passages: &passages }, store)
    }

    fn model() -> AsItSays {
        AsItSays(["other", "evidence"].map(str::to_owned))
    }

    /// The passages that are read.
    fn read(claim: &str, pages: &[(&str, &str)], options: &PageOptions) -> Vec<usize> {
        with(claim, pages, |request, store| {
            let empty = Request { passages: &[], ..request };
            let mut read = chosen(&[empty, request], &model(), options, Some(&store)).unwrap();
            assert_eq!(read[0], [0; 0]);
            read.remove(1)
        })
    }

    fn options() -> PageOptions {
        PageOptions { model: PathBuf::from("p"), pages: 10, threshold: 0.5, ambiguous_only: false }
    }

    #[test]
    fn likely_pages_are_read_with_all_their_passages() {
        let pages = [("Ark", "Sure 0.6."), ("Zoo", "Sure 0.2."), ("Elk", "Sure 0.9.")];
        assert_eq!(read("It is so.", &pages, &options()), [4, 5, 0, 1]);
        assert_eq!(read("It is so.", &pages, &PageOptions { pages: 1, ..options() }), [4, 5]);
        // At least one page is read, even if none is likely.
        assert_eq!(read("It is so.", &pages[1..2], &options()), [0, 1]);
    }

    #[test]
    fn evidence_refers_to_the_passages_of_the_request() {
        /// Labels every claim as supported.
        struct Sure([String; 3]);
        impl Labeller for Sure {
            fn labels(&self) -> &[String] {
                &self.0
            }

            fn logits(&self, pairs: &[(&str, &str)]) -> Result<Vec<Vec<f32>>> {
                Ok(pairs.iter().map(|_| vec![1.0, 0.0, 0.0]).collect())
            }
        }
        let pages = [("Ark", "Sure 0.6."), ("Zoo", "Sure 0.2."), ("Elk", "Sure 0.9.")];
        with("It is so.", &pages, |request, store| {
            let checks = VerifierOptions {
                pages: Some(options()),
                evidence: UnitKind::Passage,
                ..VerifierOptions::new(PathBuf::from("m"))
            };
            let sure = Sure(["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"].map(str::to_owned));
            let selectors = Selectors { pages: Some(Box::new(model())), pieces: None };
            let verifier = Verifier::new(&checks, Box::new(sure), selectors, Some(Arc::new(store))).unwrap();
            let found = verifier.generate(&[request]).unwrap();
            assert_eq!(found[0].evidence, [4, 5, 0, 1]);
        });
    }

    #[test]
    fn unambiguous_pages_are_not_scored() {
        let pages = [
            ("Ark (ship)", "Sure 0.6."),
            ("Zoo", "Sure 0.2."),
            ("Ark (band)", "Sure 0.1."),
            ("Elk", "Sure 0."),
        ];
        let options = PageOptions { ambiguous_only: true, ..options() };
        assert_eq!(read("Ark sings.", &pages, &options), [2, 3, 6, 7, 0, 1]);
        assert_eq!(read("Ark (band) sings.", &pages, &options), [4, 5, 2, 3, 6, 7, 0, 1]);
    }
}
