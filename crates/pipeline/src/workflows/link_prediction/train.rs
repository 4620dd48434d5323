//! Training and evaluation of embeddings and networks.

use std::{
    fmt, fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use serde::Serialize;
use sporran_kilt::{
    StagedFolder, counted, jsonl,
    kb::{KnowledgeBase, Part},
    observe::{Event, Observer, Unit, begin},
};
use sporran_reasoner::{
    embedding::{
        ClassificationReport, EmbeddingOptions, LinkReport, Mixture, Outcome, Progress, Training,
        TripleScorer, classify, evaluate as rank, train as optimise,
    },
    network::{self, NetworkLearning},
};
use sporran_training::session::Pace;

use super::{
    model::{self, rules_over},
    options::{LinksOptions, NetworkConfig},
    search::{Trial, drawn},
};
use crate::{
    Error, Result,
    run_dir::{manifest::TrainingEntry, training::TrainingFolder},
};

/// The result of a training.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainedLinks {
    /// The folder of the best model.
    pub model: PathBuf,
    /// The number of epochs.
    pub epochs: usize,
    /// The best epoch and its mean reciprocal rank on the validation part.
    pub best: Option<(usize, f64)>,
    /// The trials of `[search]`, in order.
    pub trials: Vec<Trial>,
}

impl fmt::Display for TrainedLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&counted(self.epochs as u64, "epoch"))?;
        match self.best {
            Some((epoch, mrr)) => write!(f, ", best epoch {epoch}: validation MRR {mrr:.4}"),
            None => Ok(()),
        }
    }
}

/// Options that may change when a training resumes: its length, and the number of trials.
const WITHOUT: [&str; 5] = [
    "embedding.training.epochs",
    "embedding.training.patience",
    "network.training.epochs",
    "network.training.patience",
    "search.trials",
];

/// Trains the embedding of a config, or the trials of its `[search]`. A stopped training resumes from its checkpoints.
///
/// # Errors
/// Errors of files or options.
pub fn train(options: &LinksOptions, observe: &mut Observer<'_>) -> Result<TrainedLinks> {
    let folder = options.folder();
    let mut underway = TrainingFolder::begin(folder.clone(), options, &WITHOUT)?;
    let kb = options.data.open(options.seed)?;
    underway.verify()?;
    let kb = options.data.saved(kb, &folder)?;
    let Some(search) = &options.search else {
        let Outcome { epochs, best, model } = one(options, &kb, &options.embedding, &folder, observe)?;
        underway.finish(entry(epochs, best))?;
        return Ok(TrainedLinks { model, epochs, best, trials: Vec::new() });
    };
    let mut trials: Vec<Trial> = Vec::new();
    for trial in 0..search.trials {
        let (values, embedding) = drawn(options, search, trial)?;
        let folder = folder.join(format!("trial-{trial}"));
        let Outcome { epochs, best, model } = one(options, &kb, &embedding, &folder, observe)?;
        tracing::info!(trial, ?best, ?values, "trial");
        trials.push(Trial { trial, drawn: values, best, epochs, model });
        let mut writer = jsonl::Writer::create(folder.with_file_name("search.jsonl"))?;
        trials.iter().try_for_each(|trial| writer.record(trial))?;
        writer.finish()?;
    }
    let score = |trial: &Trial| trial.best.map_or(f64::NEG_INFINITY, |(_, score)| score);
    // The first of equal scores.
    let best = trials.iter().rev().max_by(|a, b| score(a).total_cmp(&score(b))).cloned();
    let Some(best) = best else {
        return Err(sporran_reasoner::Error::Argument("expected at least one trial".into()).into());
    };
    let model = folder.join("model");
    let staged = StagedFolder::create(&model)?;
    for entry in fs::read_dir(&best.model).map_err(Error::io(&best.model, "read"))? {
        let path = entry.map_err(Error::io(&best.model, "read"))?.path();
        if let Some(name) = path.file_name() {
            fs::copy(&path, staged.path().join(name)).map_err(Error::io(&path, "copy"))?;
        }
    }
    staged.commit()?;
    underway.finish(entry(best.epochs, best.best))?;
    Ok(TrainedLinks { model, epochs: best.epochs, best: best.best, trials })
}

fn one(
    options: &LinksOptions,
    kb: &KnowledgeBase,
    embedding: &EmbeddingOptions,
    folder: &Path,
    observe: &mut Observer<'_>,
) -> Result<Outcome> {
    let training = Training { kb, options: embedding, seed: options.seed, folder, storage: options.saved };
    observed(folder, observe, |observe| optimise(&training, observe))
}

/// Trains the network of a config. A stopped training resumes from its checkpoint.
///
/// # Errors
/// Errors of files or options.
pub fn train_network(options: &NetworkConfig, observe: &mut Observer<'_>) -> Result<TrainedLinks> {
    let folder = options.output.join(&options.name);
    let mut underway = TrainingFolder::begin(folder.clone(), options, &WITHOUT)?;
    let kb = options.data.open(options.seed)?;
    underway.verify()?;
    let kb = options.data.saved(kb, &folder)?;
    let training =
        NetworkLearning { kb: &kb, options: &options.network, seed: options.seed, folder: &folder };
    let Outcome { epochs, best, model } =
        observed(&folder, observe, |observe| network::train(&training, observe))?;
    underway.finish(entry(epochs, best))?;
    Ok(TrainedLinks { model, epochs, best, trials: Vec::new() })
}

/// The entry for the manifest.
fn entry(epochs: usize, best: Option<(usize, f64)>) -> TrainingEntry {
    TrainingEntry { steps: epochs as u64, best: best.map(|(_, mrr)| mrr) }
}

/// Runs a training and reports each epoch.
fn observed(
    folder: &Path,
    observe: &mut Observer<'_>,
    run: impl FnOnce(&mut dyn FnMut(&Progress) -> ControlFlow<()>) -> sporran_reasoner::Result<Outcome>,
) -> Result<Outcome> {
    let (mut begun, mut pace) = (false, Pace::default());
    let outcome = run(&mut |progress| {
        if !begun {
            begin(observe, format!("train {}", folder.display()), progress.epochs as u64, Unit::Steps);
            begun = true;
        }
        let score = progress.valid.map_or_else(String::new, |valid| format!(", MRR {:.4}", valid.mrr));
        let note = format!("loss {:.4}, {:.1} s{score}", progress.loss, progress.seconds);
        if progress.valid.is_some() {
            let best = progress.best.map_or(0.0, |(_, best)| best);
            tracing::info!(epoch = progress.epoch, rate = progress.rate, best, "{note}");
        }
        if let Some(text) = pace.after(progress.epoch as u64, progress.epochs as u64, "epochs") {
            observe(Event::Note { text: format!("{}: {text}", folder.display()) });
        }
        observe(Event::Advance { done: progress.epoch as u64, note: Some(note) });
        ControlFlow::Continue(())
    })?;
    if begun {
        observe(Event::End);
    }
    Ok(outcome)
}

/// The scores of a model on a part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scored {
    /// The evaluated part.
    pub part: Part,
    /// Link prediction.
    #[serde(flatten)]
    pub links: LinkReport,
    /// The weight of the rules; the model has the remainder. `None` without rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule_weight: Option<f32>,
    /// Triple classification on the hard negatives of the test part; `None` if not requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classification: Option<ClassificationReport>,
}

/// The candidate weights of the rules; the model has the remainder.
const RULE_WEIGHTS: [f32; 5] = [0.1, 0.2, 0.3, 0.5, 0.7];

/// Evaluates the model of a folder on a part of a knowledge base. Rankings are filtered: known answers of any
/// part do not count as wrong. With a file of `rules`, the score is a weighted sum, with the weight that is
/// best on the validation part.
///
/// # Errors
/// Errors of files, and a model of another knowledge base.
pub fn evaluate(
    model: &Path,
    kb: &Path,
    part: Part,
    classification: bool,
    rules: Option<&Path>,
) -> Result<Scored> {
    let kb = KnowledgeBase::open(kb)?;
    let model = model::open(model, &kb)?;
    let model = model.scorer();
    let triples = |part: Part| match kb.triples(part) {
        [] => {
            let message = format!("expected triples in the part `{}`, found none", part.name());
            Err(Error::from(sporran_reasoner::Error::Argument(message)))
        }
        triples => Ok(triples),
    };
    let known = kb.index(&Part::ALL);
    let ranked =
        |scorer: &dyn TripleScorer, part: Part| Ok::<_, Error>(rank(scorer, &kb, triples(part)?, &known)?);
    let classification = classification.then(|| classify(model, &kb)).transpose()?;
    let Some(rules) = rules else {
        return Ok(Scored { part, links: ranked(model, part)?, rule_weight: None, classification });
    };
    let rules = rules_over(&kb, rules)?;
    let mixture = |weight: f32| Mixture::new(vec![(model, 1.0 - weight), (&rules, weight)]);
    let mut best = (f64::NEG_INFINITY, 0.0);
    for weight in RULE_WEIGHTS {
        let found = ranked(&mixture(weight)?, Part::Valid)?.all.mrr.or_zero();
        tracing::info!(weight, mrr = found, "weight of the rules, validation part");
        if found > best.0 {
            best = (found, weight);
        }
    }
    let links = ranked(&mixture(best.1)?, part)?;
    Ok(Scored { part, links, rule_weight: Some(best.1), classification })
}
