//! Fact checking by classification: a classifier labels the claim with each piece of retrieved evidence, and the labels
//! are aggregated into a verdict. KILT's BERT + DPR for FEVER reads the first sentence of each page and takes the majority
//! label.

mod kind;
mod labels;
mod matcher;
pub(crate) mod nsmn;
mod options;
mod pages;
mod released;
mod train;
mod unit;
mod verdict;

use std::{path::Path, sync::Arc};

use labels::softmax;
use sporran_kilt::{Dataset, PassageStore};
use sporran_transformers::PairClassifier;

use crate::{
    Candidate, Error, Generation, Generator, Request, Result,
    verifier::nsmn::{NsmnConfig, ReleasedNsmnConfig},
};

pub use labels::{LabelOrder, Labeller, Piece, Reading};
pub use matcher::{Matcher, token_pair};
pub use options::{Aggregate, PageOptions, SelectionOptions, UnitKind, VerifierOptions};
pub use released::ReleasedMatcher;
pub use unit::{Unit, titled, units};
pub use verdict::{Label, Verdict, verdict};

/// Checks claims.
pub struct Verifier<'m> {
    model: Box<dyn Labeller + 'm>,
    order: LabelOrder,
    selectors: Selectors<'m>,
    store: Option<Arc<PassageStore>>,
    options: VerifierOptions,
}

/// Classifiers that select the evidence. Each has two labels; the second one means "selected".
#[derive(Default)]
pub struct Selectors<'m> {
    /// Selects pages.
    pub pages: Option<Box<dyn Labeller + 'm>>,
    /// Selects pieces.
    pub pieces: Option<Box<dyn Labeller + 'm>>,
}

impl Selectors<'_> {
    /// Loads those of a config.
    ///
    /// # Errors
    /// An error in a folder.
    pub fn load(options: &VerifierOptions) -> Result<Self> {
        let pages = |of: &PageOptions| -> Result<Box<dyn Labeller>> {
            if ReleasedNsmnConfig::names(&of.model)? {
                return Ok(Box::new(ReleasedMatcher::for_pages(&of.model, options.batch_tokens)?));
            }
            Verifier::labeller(&of.model, options)
        };
        let pieces = |of: &SelectionOptions| Verifier::labeller(&of.model, options);
        Ok(Self {
            pages: options.pages.as_ref().map(pages).transpose()?,
            pieces: options.selection.as_ref().map(pieces).transpose()?,
        })
    }
}

impl<'m> Verifier<'m> {
    /// Loads the models; `store` holds the pages whose first sentences are read.
    ///
    /// # Errors
    /// An error in a model's folder or an option.
    pub fn load(options: &VerifierOptions, store: Option<Arc<PassageStore>>) -> Result<Self> {
        Self::new(options, Self::labeller(&options.model, options)?, Selectors::load(options)?, store)
    }

    /// Loads a classifier of pairs: an encoder or a matching network.
    ///
    /// # Errors
    /// An error in the folder.
    pub fn labeller(folder: &Path, options: &VerifierOptions) -> Result<Box<dyn Labeller>> {
        if NsmnConfig::names(folder)? {
            return Ok(Box::new(Matcher::load(folder, options.batch_tokens)?));
        }
        if ReleasedNsmnConfig::names(folder)? {
            return Ok(Box::new(ReleasedMatcher::load(folder, options.batch_tokens)?));
        }
        Ok(Box::new(PairClassifier::load(folder, &options.pairs())?))
    }

    /// A verifier over models that are loaded already.
    ///
    /// # Errors
    /// [`Error::Option`] where the model's labels are not those of fact checking, a selector's are not two, a matching network
    /// is to read claims alone, or an option is out of its range.
    pub fn new(
        options: &VerifierOptions,
        model: Box<dyn Labeller + 'm>,
        selectors: Selectors<'m>,
        store: Option<Arc<PassageStore>>,
    ) -> Result<Self> {
        options.check()?;
        let order = LabelOrder::of(model.labels())?;
        if options.claim_only && !model.reads_claims() {
            let expected = "`false`: a matching network compares claims with evidence";
            return Err(Error::Option { option: "claim-only", expected, found: "true".to_owned() });
        }
        for (option, selector) in [("pages.model", &selectors.pages), ("selection.model", &selectors.pieces)]
        {
            if let Some(selector) = selector.as_ref().filter(|selector| selector.labels().len() != 2) {
                let found = format!("{} labels", selector.labels().len());
                return Err(Error::Option { option, expected: "a model of two labels", found });
            }
        }
        if selectors.pages.is_some() && store.is_none() {
            let (option, expected) = ("pages", "a knowledge source, whose pages are read");
            return Err(Error::Option { option, expected, found: "none".to_owned() });
        }
        Ok(Self { model, order, selectors, store, options: options.clone() })
    }

    /// The passages of each request to read, in order.
    fn read(&self, requests: &[Request<'_>]) -> Result<Vec<Vec<usize>>> {
        let first: Vec<Request<'_>> = requests
            .iter()
            .map(|request| {
                let count = request.passages.len().min(self.options.most_passages());
                Request { query: request.query, passages: &request.passages[..count] }
            })
            .collect();
        match (&self.selectors.pages, &self.options.pages) {
            (Some(model), Some(options)) => pages::chosen(&first, &**model, options, self.store.as_deref()),
            _ => Ok(first.iter().map(|request| (0..request.passages.len()).collect()).collect()),
        }
    }

    /// The pieces of evidence of each request.
    fn units(&self, requests: &[Request<'_>]) -> Result<Vec<Vec<Unit>>> {
        let of = |request| units(request, self.options.evidence, self.store.as_deref());
        requests.iter().map(of).collect()
    }

    /// The best pieces of each request as one reading, with the passages that they come from in the selector's order.
    fn select<'a>(
        &self,
        selector: &dyn Labeller,
        selection: &SelectionOptions,
        requests: &[Request<'a>],
        units: &'a [Vec<Unit>],
    ) -> Result<Vec<(Vec<Reading<'a>>, Vec<usize>)>> {
        let apart = apart(requests, units);
        let relevance = self.probabilities(selector, &apart)?;
        let mut chosen = Vec::with_capacity(units.len());
        for (readings, relevance) in apart.into_iter().zip(relevance) {
            let mut pieces: Vec<Piece<'a>> = readings
                .iter()
                .zip(&relevance)
                .flat_map(|(reading, row)| {
                    reading.pieces.iter().map(|piece| Piece { relevance: row[1], ..*piece })
                })
                .collect();
            pieces.sort_by(|a, b| b.relevance.total_cmp(&a.relevance));
            let mut ranking: Vec<usize> = Vec::new();
            for piece in &pieces {
                if !ranking.contains(&piece.unit.passage) {
                    ranking.push(piece.unit.passage);
                }
            }
            // At least one piece is read, even if none is relevant.
            let wanted = pieces.iter().take(selection.sentences);
            let least = wanted.filter(|piece| piece.relevance >= selection.threshold).count().max(1);
            pieces.truncate(least);
            let joined = readings.first().map(|reading| Reading { claim: reading.claim, pieces });
            chosen.push((joined.into_iter().collect(), ranking));
        }
        Ok(chosen)
    }

    /// The probabilities of each request's readings.
    fn probabilities(
        &self,
        model: &dyn Labeller,
        readings: &[Vec<Reading<'_>>],
    ) -> Result<Vec<Vec<Vec<f32>>>> {
        let all: Vec<Reading<'_>> = readings.iter().flatten().cloned().collect();
        let mut found = model.read(&all, self.options.titles)?;
        found.iter_mut().for_each(|row| softmax(row));
        let mut found = found.into_iter();
        Ok(readings.iter().map(|readings| found.by_ref().take(readings.len()).collect()).collect())
    }
}

/// Each piece as a separate reading.
fn apart<'a>(requests: &[Request<'a>], units: &'a [Vec<Unit>]) -> Vec<Vec<Reading<'a>>> {
    let of = |(request, units): (&Request<'a>, &'a Vec<Unit>)| {
        let reading = |unit: &'a Unit| Reading {
            claim: &request.query.text,
            pieces: vec![Piece { passage: request.passages[unit.passage].passage, unit, relevance: 1.0 }],
        };
        units.iter().map(reading).collect()
    };
    requests.iter().zip(units).map(of).collect()
}

impl Generator for Verifier<'_> {
    fn generate(&self, requests: &[Request<'_>]) -> Result<Vec<Generation>> {
        if let Some(other) = requests
            .iter()
            .find_map(|request| request.query.dataset.filter(|dataset| *dataset != Dataset::Fever))
        {
            let expected = "only `fever`, whose claims it checks; see the kind `by-dataset`";
            return Err(Error::Option { option: "tasks.datasets", expected, found: other.stem().to_owned() });
        }
        let read = self.read(requests)?;
        let passages: Vec<Vec<Candidate<'_>>> = requests
            .iter()
            .zip(&read)
            .map(|(request, read)| read.iter().map(|&at| request.passages[at]).collect())
            .collect();
        let requests: Vec<Request<'_>> = requests
            .iter()
            .zip(&passages)
            .map(|(request, passages)| Request { query: request.query, passages })
            .collect();
        let units = self.units(&requests)?;
        let (readings, rankings) = match (&self.selectors.pieces, &self.options.selection) {
            (Some(selector), Some(selection)) => {
                let chosen = self.select(&**selector, selection, &requests, &units)?;
                let (readings, rankings): (Vec<_>, Vec<_>) = chosen.into_iter().unzip();
                (readings, Some(rankings))
            }
            _ if self.options.claim_only => {
                let claims = requests.iter().map(|request| request.query.text.as_str());
                (claims.map(|claim| vec![Reading { claim, pieces: Vec::new() }]).collect(), None)
            }
            _ => (apart(&requests, &units), None),
        };
        let probabilities = self.probabilities(&*self.model, &readings)?;
        let mut answers = Vec::with_capacity(requests.len());
        for (at, (units, rows)) in units.iter().zip(&probabilities).enumerate() {
            let opinions: Vec<[f32; 3]> = rows.iter().map(|row| self.order.sorted(row)).collect();
            let Verdict { label, score } = verdict(&opinions, self.options.aggregate);
            let evidence = match &rankings {
                Some(rankings) => rankings[at].clone(),
                None => by_probability(units, &opinions, label),
            };
            let evidence = evidence.into_iter().map(|passage| read[at][passage]).collect();
            let alternatives = vec![(label.other().answer().to_owned(), 1.0 - score)];
            answers.push(Generation {
                text: label.answer().to_owned(),
                score,
                alternatives,
                evidence,
                tokens: 0,
            });
        }
        Ok(answers)
    }

    fn kind(&self) -> &'static str {
        "verifier"
    }

    fn passages(&self) -> usize {
        self.options.most_passages()
    }
}

/// The passages, ordered by the highest probability of the verdict among their pieces. Ties keep the retriever's order.
fn by_probability(units: &[Unit], opinions: &[[f32; 3]], label: Label) -> Vec<usize> {
    let mut best: Vec<(usize, f32)> = Vec::new();
    for (unit, opinion) in units.iter().zip(opinions) {
        let value = opinion[label as usize];
        match best.iter_mut().find(|(passage, _)| *passage == unit.passage) {
            Some((_, known)) => *known = known.max(value),
            None => best.push((unit.passage, value)),
        }
    }
    best.sort_by(|a, b| b.1.total_cmp(&a.1));
    best.into_iter().map(|(passage, _)| passage).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use sporran_kilt::{Passage, Query};

    use super::*;
    use crate::{Candidate, by_dataset::tests::passage};

    /// Labels a piece by the words in it.
    struct ByWord(Vec<String>);

    impl Labeller for ByWord {
        fn labels(&self) -> &[String] {
            &self.0
        }

        fn logits(&self, pairs: &[(&str, &str)]) -> Result<Vec<Vec<f32>>> {
            let of = |text: &str| -> Vec<f32> {
                if self.0.len() == 2 {
                    let relevant = if text.contains("relevant") { 0.9 } else { 0.2 };
                    return vec![1.0 - relevant, relevant];
                }
                // In the model's order: refutes, not enough info, supports.
                match (text.contains("no"), text.contains("yes")) {
                    (true, _) => vec![0.7, 0.2, 0.1],
                    (_, true) => vec![0.1, 0.1, 0.8],
                    _ => vec![0.1, 0.8, 0.1],
                }
            };
            let logits = |text: &str| of(text).into_iter().map(f32::ln).collect();
            let read = |(claim, text): &(&str, &str)| logits(if text.is_empty() { claim } else { text });
            Ok(pairs.iter().map(read).collect())
        }

        fn reads_claims(&self) -> bool {
            true
        }
    }

    fn three() -> Box<dyn Labeller> {
        Box::new(ByWord(["REFUTES", "NOT ENOUGH INFO", "SUPPORTS"].map(str::to_owned).to_vec()))
    }

    fn options(evidence: UnitKind) -> VerifierOptions {
        VerifierOptions { evidence, titles: false, ..VerifierOptions::new(PathBuf::from("m")) }
    }

    fn ask(verifier: &Verifier<'_>, texts: &[&str]) -> Generation {
        let passages: Vec<Passage> = texts
            .iter()
            .enumerate()
            .map(|(id, text)| Passage { text: (*text).to_owned(), ..passage(id as u32) })
            .collect();
        let candidates: Vec<Candidate<'_>> =
            passages.iter().map(|passage| Candidate { passage, score: 1.0 }).collect();
        let query = Query::of_text("1", "A claim.");
        verifier.generate(&[Request { query: &query, passages: &candidates }]).unwrap().remove(0)
    }

    #[test]
    fn the_majority_decides_and_its_passages_come_first() {
        let verifier =
            Verifier::new(&options(UnitKind::Passage), three(), Selectors::default(), None).unwrap();
        let found = ask(&verifier, &["maybe", "no", "yes", "no", "perhaps"]);
        assert_eq!((found.text.as_str(), &found.evidence[..2]), ("REFUTES", &[1, 3][..]));
        // Two votes of three.
        assert!((found.score - 2.0 / 3.0).abs() < 1e-6);
        assert_eq!(found.alternatives[0].0, "SUPPORTS");
    }

    #[test]
    fn sentences_are_read_apart() {
        let verifier =
            Verifier::new(&options(UnitKind::Sentence), three(), Selectors::default(), None).unwrap();
        let found = ask(&verifier, &["It rained. They said yes.", "Well, no. It was yes. And yes again."]);
        assert_eq!(found.text, "SUPPORTS");
    }

    #[test]
    fn a_selector_joins_what_is_relevant_before_it_is_read() {
        let selection = SelectionOptions { model: PathBuf::from("s"), sentences: 2, threshold: 0.5 };
        let options = VerifierOptions { selection: Some(selection), ..options(UnitKind::Passage) };
        let two = ByWord(["other", "evidence"].map(str::to_owned).to_vec());
        let verifier =
            Verifier::new(&options, three(), Selectors { pieces: Some(Box::new(two)), pages: None }, None)
                .unwrap();
        // The first is not relevant, though it says no.
        let found = ask(&verifier, &["no", "relevant: yes", "relevant"]);
        assert_eq!((found.text.as_str(), found.evidence), ("SUPPORTS", vec![1, 2, 0]));
    }

    #[test]
    fn without_passages_a_claim_is_refuted() {
        let verifier =
            Verifier::new(&options(UnitKind::Passage), three(), Selectors::default(), None).unwrap();
        let found = ask(&verifier, &[]);
        assert_eq!((found.text.as_str(), found.evidence.len()), ("REFUTES", 0));
    }

    #[test]
    fn a_claim_can_be_read_without_evidence() {
        let alone = VerifierOptions { claim_only: true, ..options(UnitKind::Lead) };
        let verifier = Verifier::new(&alone, three(), Selectors::default(), None).unwrap();
        assert_eq!(verifier.passages(), 0);
        let passage = passage(1);
        let candidates = [Candidate { passage: &passage, score: 1.0 }];
        for (claim, expected) in [("yes, it is", "SUPPORTS"), ("no", "REFUTES")] {
            let query = Query::of_text("1", claim);
            let found =
                verifier.generate(&[Request { query: &query, passages: &candidates }]).unwrap().remove(0);
            assert_eq!((found.text.as_str(), found.evidence.len()), (expected, 0));
            // 0.8 against 0.1, and 0.7 against 0.1, are one vote of one.
            assert!((found.score - 1.0).abs() < 1e-6);
        }
        let selection = SelectionOptions { model: PathBuf::from("s"), sentences: 2, threshold: 0.5 };
        let wrong = VerifierOptions { selection: Some(selection), ..alone };
        assert!(wrong.check().unwrap_err().to_string().contains("found true"), "{:?}", wrong.check());
    }

    #[test]
    fn another_datasets_questions_and_other_labels_are_refused() {
        let verifier =
            Verifier::new(&options(UnitKind::Passage), three(), Selectors::default(), None).unwrap();
        let mut query = Query::of_text("1", "who");
        query.dataset = Some(Dataset::Nq);
        let found = verifier.generate(&[Request { query: &query, passages: &[] }]).unwrap_err().to_string();
        assert!(found.contains("`fever`") && found.contains("found nq"), "{found}");
        let names = Box::new(ByWord(["a", "b", "c"].map(str::to_owned).to_vec()));
        let found = Verifier::new(&options(UnitKind::Passage), names, Selectors::default(), None)
            .err()
            .unwrap()
            .to_string();
        assert!(found.contains("SUPPORTS, REFUTES and NOT ENOUGH INFO"), "{found}");
        let lead = Verifier::new(&options(UnitKind::Lead), three(), Selectors::default(), None).unwrap();
        let query = Query::of_text("1", "who");
        let passage = passage(1);
        let candidates = [Candidate { passage: &passage, score: 1.0 }];
        let found = lead.generate(&[Request { query: &query, passages: &candidates }]).unwrap_err();
        assert!(found.to_string().contains("a knowledge source"), "{found}");
    }
}
