//! The initial model and the session of a generator's training.

use candle_core::DType;
use sporran_kilt::PassageId;
use sporran_training::{
    Variables,
    session::{InitialModel, TrainableModel, TrainingSession},
};

use super::examples::RetrievedExample;
use crate::{
    Result,
    workflows::answer::{
        assemble::Assembly,
        options::{General, Options, TrainOptions},
    },
};

/// The session of a generator's training. Its checkpoints are in the run's folder.
pub(crate) fn training_session<'a>(
    general: &General,
    train: &'a TrainOptions,
    variables: &'a Variables,
    extra_files: &'a [(String, Vec<u8>)],
) -> TrainingSession<'a> {
    TrainingSession {
        variables,
        options: &train.optimizer,
        folder: general.output.join(&general.name).join("training"),
        model: &train.model,
        dtype: DType::F16,
        extra_files,
        score: "mean score",
    }
}

/// The content of `model.toml`: the model's role, size and origin.
pub(crate) fn card(options: &Options, role: &str, variables: &Variables) -> String {
    let General { name, seed, .. } = &options.general;
    format!(
        "role = \"{role}\"\nparameters = {}\nsource = \"sporran {} train, config {name}, seed {seed}\"\n",
        variables.parameter_count(),
        env!("CARGO_PKG_VERSION"),
    )
}

/// The initial model of `[train]`: from a folder, or with random weights.
pub(crate) fn init_model(
    options: &Options,
    train: &TrainOptions,
    assembly: &Assembly,
    examples: &[RetrievedExample],
) -> Result<TrainableModel> {
    let seed = options.general.seed;
    let start = match &train.from {
        Some(from) => InitialModel::of_folder(from, seed)?,
        None => {
            let store = assembly.store.as_deref();
            let passages = store.into_iter().flat_map(|store| {
                (0..store.len() as u32)
                    .map(PassageId)
                    .map(|id| format!("{} / {}", store.page_title(store.page_of(id)), store.text(id)))
            });
            let pairs = examples.iter().flat_map(|retrieved| {
                let answers = retrieved.example.answers().into_iter().map(str::to_owned).collect::<Vec<_>>();
                std::iter::once(retrieved.example.query.text.clone()).chain(answers)
            });
            let texts: Vec<String> = passages.chain(pairs).collect();
            let marks = ["[START_ENT]", "[END_ENT]", "[SEP]"];
            tracing::info!(examples = examples.len(), "a new model");
            InitialModel::fresh(&train.shape, &texts, &marks, seed)?
        }
    };
    start.build(&train.device.open()?, |variables| card(options, "generator", variables))
}
