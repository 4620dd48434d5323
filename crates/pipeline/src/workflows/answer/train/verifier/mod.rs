//! Training a verifier: a classifier that says of a claim and a piece of what is retrieved for it whether the piece
//! supports it, refutes it or says nothing; and before it the selectors of pages and pieces, where the config has them.

mod claim;
mod learner;

use std::{path::Path, sync::Arc};

use claim::{Claim, claim};
use learner::{Learner, Lesson};
use sporran_generator::{Generator, Labeller, Selectors, UnitKind, Verifier, VerifierOptions};
use sporran_kilt::PassageStore;

use crate::{
    Error, Result,
    observe::Observer,
    training::outcome::Trained,
    workflows::answer::{
        assemble::assemble_retrieval,
        options::{Options, TrainOptions},
        train::examples::{Reading, readings},
    },
};

/// The verifier's labels in the order of its outputs.
const VERDICTS: [&str; 3] = ["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"];
const NOT_ENOUGH_INFO: u32 = 2;
/// A selector's.
const RELEVANCE: [&str; 2] = ["OTHER", "EVIDENCE"];

/// Trains the models of a `verifier` on the claims of `[train.examples]` and judges them on `[tasks]`: a selector by how
/// often the page or piece that it puts first is or has evidence, the verifier by its verdicts.
///
/// # Errors
/// Whatever is wrong with files, index or training.
pub(crate) fn train_verifier(
    options: &Options,
    train: &TrainOptions,
    verifier: &VerifierOptions,
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let assembly = assemble_retrieval(options, observe)?;
    let Some(store) = &assembly.store else {
        return Err(fault("source", "is missing; claims are checked against its pages"));
    };
    let mut read = |files, table, limit| {
        readings(options, files, table, limit, verifier.passages, false, &assembly, observe)
    };
    let examples = read(&train.examples, "train.examples", None)?;
    let judged = read(&options.general.tasks, "tasks", Some(train.judged))?;
    let claims = claims(&examples, verifier, store)?;
    if claims.is_empty() {
        return Err(fault("train.examples", "expected claims with evidence in the source, found none"));
    }
    let texts = claims.iter().flat_map(|claim| std::iter::once(&claim.text).chain(&claim.evidence));
    let learner = Learner { options, train, verifier, texts: texts.cloned().collect() };

    let mut select = |claims: &[Claim], asked: Vec<Claim>, place: (&Path, &str)| {
        let judge = |model: Box<dyn Labeller + '_>| chosen_right(&*model, &asked);
        let lessons = claims.iter().map(Lesson::of_relevance).collect();
        learner.learn(lessons, &RELEVANCE, place, (!asked.is_empty()).then_some(&judge), observe)
    };
    let mut steps = 0;
    if let Some(pages) = &verifier.pages {
        // Of a page its title and first sentence are read.
        let leads = VerifierOptions { evidence: UnitKind::Lead, titles: true, ..verifier.clone() };
        let [claims, asked] = [&examples, &judged].map(|readings| self::claims(readings, &leads, store));
        steps += select(&claims?, asked?, (&pages.model, "pages"))?.steps;
    }
    if let Some(selection) = &verifier.selection {
        let asked = self::claims(&judged, verifier, store)?;
        steps += select(&claims, asked, (&selection.model, "selector"))?.steps;
    }
    let lessons = claims.iter().map(|claim| Lesson::of_verdict(claim, verifier.selection.as_ref())).collect();
    let judge = |model: Box<dyn Labeller + '_>| {
        let verifier = Verifier::new(verifier, model, Selectors::load(verifier)?, Some(Arc::clone(store)))?;
        accuracy(&verifier, &judged)
    };
    let place = (train.model.as_path(), "training");
    let trained =
        learner.learn(lessons, &VERDICTS, place, (!judged.is_empty()).then_some(&judge), observe)?;
    Ok(Trained { steps: steps + trained.steps, ..trained })
}

fn fault(key: &str, message: &str) -> Error {
    let (origin, key, message) = ("config".into(), key.into(), message.into());
    Error::Config(vec![sporran_config::Diagnostic { origin, line: 0, key, message }])
}

fn claims(readings: &[Reading], verifier: &VerifierOptions, store: &PassageStore) -> Result<Vec<Claim>> {
    readings.iter().filter_map(|reading| claim(reading, verifier, store).transpose()).collect()
}

/// The share of claims whose piece of the greatest probability is evidence.
fn chosen_right(model: &dyn Labeller, claims: &[Claim]) -> Result<f64> {
    let mut right = 0;
    for Claim { text, evidence, others, .. } in claims {
        let pairs: Vec<(&str, &str)> =
            evidence.iter().chain(others).map(|piece| (text.as_str(), piece.as_str())).collect();
        let odds: Vec<f32> = model.logits(&pairs)?.iter().map(|row| row[1] - row[0]).collect();
        let (own, other) = odds.split_at(evidence.len());
        let best = |values: &[f32]| values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        right += usize::from(best(own) > best(other));
    }
    Ok(right as f64 / claims.len() as f64)
}

/// The share of right verdicts.
fn accuracy(verifier: &Verifier<'_>, judged: &[Reading]) -> Result<f64> {
    let mut right = 0;
    for reading in judged {
        let generation = reading.ask(|request| verifier.generate(std::slice::from_ref(request)))?;
        let verdict = generation.first().map(|generation| generation.text.as_str());
        right += usize::from(verdict.is_some_and(|verdict| reading.example.answers().contains(&verdict)));
    }
    Ok(right as f64 / judged.len() as f64)
}
