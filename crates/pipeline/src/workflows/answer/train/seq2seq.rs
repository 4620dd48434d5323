//! Training of an encoder-decoder on prompts and answers.

use std::sync::Arc;

use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_checkpoint::Tokenizer;
use sporran_generator::{Prompt, Seq2SeqGenerator, Seq2SeqOptions};
use sporran_kilt::observe::Observer;
use sporran_training::{
    EvaluationError, Row, Seq2SeqObjective,
    session::{TrainableModel, Trained},
};

use super::{
    examples::{RetrievedExample, mean_score, retrieved_examples, with_titles},
    start::{init_model, training_session},
};
use crate::{
    Result,
    run_dir::training::TrainingFolder,
    workflows::answer::{
        options::{Options, Target, TrainOptions},
        train::remembered::assemble_remembering,
    },
};

/// Trains the model of a generator of kind `seq2seq`.
pub(super) fn train(
    options: &Options,
    train: &TrainOptions,
    generator: &Seq2SeqOptions,
    underway: &TrainingFolder,
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let assembly = assemble_remembering(options, underway, observe)?;
    let mut examples = retrieved_examples(
        options,
        &train.examples,
        "train.examples",
        None,
        generator.prompt.passages,
        train.add_gold,
        &assembly,
        observe,
    )?;
    let mut validation = retrieved_examples(
        options,
        &options.general.tasks,
        "tasks",
        Some(train.validation_records),
        generator.prompt.passages,
        false,
        &assembly,
        observe,
    )?;
    if let (Target::Title, Some(store)) = (train.target, &assembly.store) {
        with_titles(&mut examples, store);
        with_titles(&mut validation, store);
    }

    let TrainableModel { model, tokenizer, variables, extra_files } =
        init_model(options, train, &assembly, &examples)?;

    let rows = Rows {
        examples: &examples,
        prompt: Prompt::new(generator.prompt.clone())?,
        tokenizer: &tokenizer,
        train,
        seed: options.general.seed,
    };
    let generator = Seq2SeqGenerator::new(generator, model.clone(), tokenizer.clone())?;
    let evaluate = || mean_score(&generator, &validation).map_err(EvaluationError::from);
    let of_epoch = |epoch| rows.of_epoch(epoch);
    let objective = Seq2SeqObjective::new(model.as_ref(), &variables, &train.optimizer, &of_epoch);
    let session = training_session(&options.general, train, &variables, &extra_files);
    session.run(&objective, (!validation.is_empty()).then_some(&evaluate), observe)
}

/// The token rows of an epoch: each example with one of its answers, and sometimes with shuffled passages.
struct Rows<'a> {
    examples: &'a [RetrievedExample],
    prompt: Prompt,
    tokenizer: &'a Tokenizer,
    train: &'a TrainOptions,
    seed: u64,
}

impl Rows<'_> {
    fn of_epoch(&self, epoch: u64) -> sporran_checkpoint::Result<Arc<Vec<Row>>> {
        use rayon::prelude::*;
        let rows: sporran_checkpoint::Result<Vec<Row>> = self
            .examples
            .par_iter()
            .enumerate()
            .map(|(number, retrieved)| self.row(retrieved, epoch, number as u64))
            .collect();
        Ok(Arc::new(rows?))
    }

    fn row(&self, retrieved: &RetrievedExample, epoch: u64, number: u64) -> sporran_checkpoint::Result<Row> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ 0x5eed);
        rng.set_stream(epoch << 32 | number);
        let answers = retrieved.example.answers();
        // The first gold answer is the usual target: the others are aliases, which the page need not contain.
        // Gold pages have no such order.
        let first = self.train.target == Target::Answer && rng.random_bool(0.9);
        let target = answers[if first { 0 } else { rng.random_range(0..answers.len()) }];
        let mut passages = retrieved.passages.clone();
        // Keeps the model from relying on the order of the passages.
        if rng.random_bool(0.3) {
            passages.shuffle(&mut rng);
        }
        let shuffled = RetrievedExample { example: retrieved.example.clone(), passages };
        let source = shuffled.ask(|request| self.prompt.text(request, self.tokenizer)).map_err(|error| {
            sporran_checkpoint::Error::Callback { what: "the prompt", source: error.into() }
        })?;
        let source = self.tokenizer.encode(&source, Some(self.prompt.options().max_tokens))?;
        let target = self.tokenizer.encode(target, Some(self.train.target_tokens))?;
        Ok(Row { source, target })
    }
}
