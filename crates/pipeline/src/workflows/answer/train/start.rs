//! The model that the training of a generator starts from, and where its checkpoints go.

use candle_core::DType;
use sporran_kilt::PassageId;
use sporran_training::Variables;

use super::examples::Reading;
use crate::{
    Result,
    training::{
        model::{Pupil, Start},
        session::Learning,
    },
    workflows::answer::{
        assemble::Assembly,
        options::{General, Options, TrainOptions},
    },
};

/// The training of a generator's model, whose checkpoints go into the run's folder.
pub(crate) fn learning<'a>(
    general: &General,
    train: &'a TrainOptions,
    variables: &'a Variables,
    companions: &'a [(String, Vec<u8>)],
) -> Learning<'a> {
    Learning {
        variables,
        options: &train.optimizer,
        folder: general.output.join(&general.name).join("training"),
        model: &train.model,
        dtype: DType::F16,
        companions,
        score: "mean score",
    }
}

/// The model's card: what it is and where it comes from.
pub(crate) fn card(options: &Options, role: &str, variables: &Variables) -> String {
    let General { name, seed, .. } = &options.general;
    format!(
        "role = \"{role}\"\nparameters = {}\nsource = \"sporran {} train, config {name}, seed {seed}\"\n",
        variables.parameter_count(),
        env!("CARGO_PKG_VERSION"),
    )
}

/// The model that `[train]` starts from: a folder's, or one with random weights.
pub(crate) fn pupil(
    options: &Options,
    train: &TrainOptions,
    assembly: &Assembly,
    examples: &[Reading],
) -> Result<Pupil> {
    let seed = options.general.seed;
    let start = match &train.from {
        Some(from) => Start::of_folder(from, seed)?,
        None => {
            let store = assembly.store.as_deref();
            let passages = store.into_iter().flat_map(|store| {
                (0..store.len() as u32)
                    .map(PassageId)
                    .map(|id| format!("{} / {}", store.page_title(store.page_of(id)), store.text(id)))
            });
            let pairs = examples.iter().flat_map(|reading| {
                let answers = reading.example.answers().into_iter().map(str::to_owned).collect::<Vec<_>>();
                std::iter::once(reading.example.query.text.clone()).chain(answers)
            });
            let texts: Vec<String> = passages.chain(pairs).collect();
            let marks = ["[START_ENT]", "[END_ENT]", "[SEP]"];
            tracing::info!(examples = examples.len(), "a new model");
            Start::fresh(&train.shape, &texts, &marks, seed)?
        }
    };
    start.pupil(&train.device.open()?, |variables| card(options, "generator", variables))
}
