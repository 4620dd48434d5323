//! Training of verifiers. A verifier classifies whether a piece of a passage supports a claim, refutes it, or
//! neither. The config can also have selectors of pages and pieces, which are trained first.

mod claim;
mod classifier;

use std::{path::Path, sync::Arc};

use claim::{Claim, bare_claim, claim};
use classifier::{ClaimExample, ClassifierTrainer, Negatives};
use sporran_kilt::{PassageStore, observe::Observer};
use sporran_training::session::Trained;

use super::{Labeller, Selectors, UnitKind, Verifier, VerifierOptions};
use crate::{
    Error, Generator, Result,
    training::{GeneratorTrainer, GeneratorTraining, RetrievedExample},
};

/// The labels of a verifier, in the order of its outputs.
const VERDICTS: [&str; 3] = ["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"];
const NOT_ENOUGH_INFO: u32 = 2;
/// The labels of a selector.
const RELEVANCE: [&str; 2] = ["OTHER", "EVIDENCE"];

impl GeneratorTrainer for VerifierOptions {
    fn passages(&self) -> usize {
        self.most_passages()
    }

    /// The score of a selector is the share of claims whose first page or piece is evidence. The score of the verifier is the
    /// accuracy of its verdicts.
    fn train(&self, training: GeneratorTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained> {
        let GeneratorTraining { settings, examples, validation, store, .. } = &training;
        let fault = |option, problem| Error::Training { option, problem };
        let store = store.as_ref();
        if store.is_none() && !self.claim_only {
            return Err(fault("source", "is missing; claims are verified with its pages"));
        }
        if self.claim_only && settings.from.is_none() {
            return Err(fault(
                "train.from",
                "is missing; an encoder reads claims alone, and not a matching network",
            ));
        }
        let trained_on =
            VerifierOptions { evidence: settings.evidence.unwrap_or(self.evidence), ..self.clone() };
        let claims = claims_of(examples, &trained_on, store)?;
        if claims.is_empty() {
            return Err(fault("train.examples", "expected claims with evidence in the source, found none"));
        }
        let texts = claims.iter().flat_map(|claim| std::iter::once(&claim.text).chain(&claim.evidence));
        let trainer =
            ClassifierTrainer { training: &training, verifier: self, texts: texts.cloned().collect() };

        let mut select = |claims: &[Claim], validation_claims: Vec<Claim>, place: (&Path, &str)| {
            let evaluate = |model: Box<dyn Labeller + '_>| selection_accuracy(&*model, &validation_claims);
            let examples =
                claims.iter().map(|claim| ClaimExample::of_relevance(claim, settings.negatives)).collect();
            trainer.train(
                examples,
                &RELEVANCE,
                place,
                (!validation_claims.is_empty()).then_some(&evaluate),
                observe,
            )
        };
        let mut steps = 0;
        if let Some(pages) = &self.pages {
            // A page is represented by its title and first sentence.
            let leads = VerifierOptions { evidence: UnitKind::Lead, titles: true, ..self.clone() };
            let [claims, validation_claims] =
                [examples, validation].map(|examples| claims_of(examples, &leads, store));
            steps += select(&claims?, validation_claims?, (&pages.model, "pages"))?.steps;
        }
        if let Some(selection) = &self.selection {
            let validation_claims = claims_of(validation, self, store)?;
            steps += select(&claims, validation_claims, (&selection.model, "selector"))?.steps;
        }
        let negatives = Negatives { count: settings.negatives, of_gold_pages: settings.page_negatives };
        let examples = claims
            .iter()
            .map(|claim| ClaimExample::of_verdict(claim, self.selection.as_ref(), negatives))
            .collect();
        let evaluate = |model: Box<dyn Labeller + '_>| {
            let verifier = Verifier::new(self, model, Selectors::load(self)?, store.map(Arc::clone))?;
            accuracy(&verifier, validation)
        };
        let place = (settings.model, "training");
        let trained = trainer.train(
            examples,
            &VERDICTS,
            place,
            (!validation.is_empty()).then_some(&evaluate),
            observe,
        )?;
        Ok(Trained { steps: steps + trained.steps, ..trained })
    }
}

fn claims_of(
    examples: &[RetrievedExample],
    verifier: &VerifierOptions,
    store: Option<&Arc<PassageStore>>,
) -> Result<Vec<Claim>> {
    match store.filter(|_| !verifier.claim_only) {
        Some(store) => {
            examples.iter().filter_map(|retrieved| claim(retrieved, verifier, store).transpose()).collect()
        }
        None => Ok(examples.iter().filter_map(bare_claim).collect()),
    }
}

/// The share of claims whose most probable piece is evidence.
fn selection_accuracy(model: &dyn Labeller, claims: &[Claim]) -> Result<f64> {
    let mut correct = 0;
    for Claim { text, evidence, others, .. } in claims {
        let pieces = evidence.iter().chain(others.iter().map(|other| &other.text));
        let pairs: Vec<(&str, &str)> = pieces.map(|piece| (text.as_str(), piece.as_str())).collect();
        let odds: Vec<f32> = model.logits(&pairs)?.iter().map(|row| row[1] - row[0]).collect();
        let (own, other) = odds.split_at(evidence.len());
        let best = |values: &[f32]| values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        correct += usize::from(best(own) > best(other));
    }
    Ok(correct as f64 / claims.len() as f64)
}

/// The share of correct verdicts.
fn accuracy(verifier: &Verifier<'_>, validation: &[RetrievedExample]) -> Result<f64> {
    let mut correct = 0;
    for retrieved in validation {
        let generation = retrieved.ask(|request| verifier.generate(std::slice::from_ref(request)))?;
        let verdict = generation.first().map(|generation| generation.text.as_str());
        correct += usize::from(verdict.is_some_and(|verdict| retrieved.example.answers().contains(&verdict)));
    }
    Ok(correct as f64 / validation.len() as f64)
}
