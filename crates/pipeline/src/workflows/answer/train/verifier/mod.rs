//! Training of verifiers. A verifier classifies whether a piece of a passage supports a claim, refutes it, or
//! neither. The config can also have selectors of pages and pieces, which are trained first.

mod claim;
mod learner;

use std::{path::Path, sync::Arc};

use claim::{Claim, claim};
use learner::{ClaimExample, ClassifierTrainer};
use sporran_generator::{Generator, Labeller, Selectors, UnitKind, Verifier, VerifierOptions};
use sporran_kilt::{PassageStore, observe::Observer};
use sporran_training::session::Trained;

use crate::{
    Error, Result,
    run_dir::training::TrainingFolder,
    workflows::answer::{
        options::{Options, TrainOptions},
        train::{
            examples::{RetrievedExample, retrieved_examples},
            remembered::assemble_remembering,
        },
    },
};

/// The labels of a verifier, in the order of its outputs.
const VERDICTS: [&str; 3] = ["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"];
const NOT_ENOUGH_INFO: u32 = 2;
/// The labels of a selector.
const RELEVANCE: [&str; 2] = ["OTHER", "EVIDENCE"];

/// Trains the models of a `verifier` on the claims of `[train.examples]` and validates them on `[tasks]`. The
/// score of a selector is the share of claims whose first page or piece is evidence. The score of the
/// verifier is the accuracy of its verdicts.
///
/// # Errors
/// Errors of files, index or training.
pub(crate) fn train_verifier(
    options: &Options,
    train: &TrainOptions,
    verifier: &VerifierOptions,
    underway: &TrainingFolder,
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let assembly = assemble_remembering(options, underway, observe)?;
    let Some(store) = &assembly.store else {
        return Err(fault("source", "is missing; claims are verified with its pages"));
    };
    let mut read = |files, table, limit| {
        retrieved_examples(options, files, table, limit, verifier.passages, false, &assembly, observe)
    };
    let retrieved = read(&train.examples, "train.examples", None)?;
    let validation = read(&options.general.tasks, "tasks", Some(train.validation_records))?;
    let claims = claims(&retrieved, verifier, store)?;
    if claims.is_empty() {
        return Err(fault("train.examples", "expected claims with evidence in the source, found none"));
    }
    let texts = claims.iter().flat_map(|claim| std::iter::once(&claim.text).chain(&claim.evidence));
    let trainer = ClassifierTrainer { options, train, verifier, texts: texts.cloned().collect() };

    let mut select = |claims: &[Claim], validation_claims: Vec<Claim>, place: (&Path, &str)| {
        let evaluate = |model: Box<dyn Labeller + '_>| selection_accuracy(&*model, &validation_claims);
        let examples = claims.iter().map(ClaimExample::of_relevance).collect();
        trainer.train(
            examples,
            &RELEVANCE,
            place,
            (!validation_claims.is_empty()).then_some(&evaluate),
            observe,
        )
    };
    let mut steps = 0;
    if let Some(pages) = &verifier.pages {
        // A page is represented by its title and first sentence.
        let leads = VerifierOptions { evidence: UnitKind::Lead, titles: true, ..verifier.clone() };
        let [claims, validation_claims] =
            [&retrieved, &validation].map(|examples| self::claims(examples, &leads, store));
        steps += select(&claims?, validation_claims?, (&pages.model, "pages"))?.steps;
    }
    if let Some(selection) = &verifier.selection {
        let validation_claims = self::claims(&validation, verifier, store)?;
        steps += select(&claims, validation_claims, (&selection.model, "selector"))?.steps;
    }
    let examples =
        claims.iter().map(|claim| ClaimExample::of_verdict(claim, verifier.selection.as_ref())).collect();
    let evaluate = |model: Box<dyn Labeller + '_>| {
        let verifier = Verifier::new(verifier, model, Selectors::load(verifier)?, Some(Arc::clone(store)))?;
        accuracy(&verifier, &validation)
    };
    let place = (train.model.as_path(), "training");
    let trained =
        trainer.train(examples, &VERDICTS, place, (!validation.is_empty()).then_some(&evaluate), observe)?;
    Ok(Trained { steps: steps + trained.steps, ..trained })
}

fn fault(key: &str, message: &str) -> Error {
    let (origin, key, message) = ("config".into(), key.into(), message.into());
    Error::Config(vec![sporran_config::Diagnostic { origin, line: 0, key, message }])
}

fn claims(
    examples: &[RetrievedExample],
    verifier: &VerifierOptions,
    store: &PassageStore,
) -> Result<Vec<Claim>> {
    examples.iter().filter_map(|retrieved| claim(retrieved, verifier, store).transpose()).collect()
}

/// The share of claims whose most probable piece is evidence.
fn selection_accuracy(model: &dyn Labeller, claims: &[Claim]) -> Result<f64> {
    let mut correct = 0;
    for Claim { text, evidence, others, .. } in claims {
        let pairs: Vec<(&str, &str)> =
            evidence.iter().chain(others).map(|piece| (text.as_str(), piece.as_str())).collect();
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
