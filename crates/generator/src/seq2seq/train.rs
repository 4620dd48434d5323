//! Training of an encoder-decoder on prompts and answers.

use std::sync::Arc;

use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_checkpoint::Tokenizer;
use sporran_kilt::observe::Observer;
use sporran_training::{
    EvaluationError, Row, Seq2SeqObjective,
    session::{TrainableModel, Trained},
};

use super::{Seq2SeqGenerator, Seq2SeqOptions};
use crate::{
    Prompt, Result,
    training::{
        GeneratorTrainer, GeneratorTraining, RetrievedExample, Target, Targets, TrainSettings, mean_score,
        with_titles,
    },
};

impl GeneratorTrainer for Seq2SeqOptions {
    fn passages(&self) -> usize {
        self.prompt.passages
    }

    fn adds_gold(&self) -> bool {
        true
    }

    fn train(&self, mut training: GeneratorTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained> {
        if let (Target::Title, Some(store)) = (training.settings.target, training.store.clone()) {
            with_titles(&mut training.examples, &store);
            with_titles(&mut training.validation, &store);
        }
        let TrainableModel { model, tokenizer, variables, extra_files } = training.init_model()?;
        let GeneratorTraining { settings, examples, validation, seed, .. } = &training;
        let prompt = Prompt::new(self.prompt.clone())?;
        let targets = Targets::new(&tokenizer, settings.target_tokens, &self.generation, model.as_ref())?;
        let rows = Rows { examples, prompt, tokenizer: &tokenizer, targets, settings, seed: *seed };
        let generator = Seq2SeqGenerator::new(self, model.clone(), tokenizer.clone())?;
        let evaluate = || mean_score(&generator, validation).map_err(EvaluationError::from);
        let of_epoch = |epoch| rows.of_epoch(epoch);
        let objective = Seq2SeqObjective::new(model.as_ref(), &variables, settings.optimizer, &of_epoch);
        let session = training.session(&variables, &extra_files);
        Ok(session.run(&objective, (!validation.is_empty()).then_some(&evaluate), observe)?)
    }
}

/// The token rows of an epoch: each example with one of its answers, and sometimes with shuffled passages.
struct Rows<'a> {
    examples: &'a [RetrievedExample],
    prompt: Prompt,
    tokenizer: &'a Tokenizer,
    targets: Targets<'a>,
    settings: &'a TrainSettings<'a>,
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
        // The first gold answer is the name of a thing; the others are aliases, which the page need not contain.
        // Gold pages have no such order.
        let first = self.settings.target == Target::Answer && rng.random_bool(self.settings.first_answers);
        let target = answers[if first { 0 } else { rng.random_range(0..answers.len()) }];
        let mut passages = retrieved.passages.clone();
        // Keeps the model from relying on the order of the passages.
        if rng.random_bool(self.settings.shuffled_passages) {
            passages.shuffle(&mut rng);
        }
        let shuffled = RetrievedExample { example: retrieved.example.clone(), passages };
        let source = shuffled.ask(|request| self.prompt.text(request, self.tokenizer)).map_err(|error| {
            sporran_checkpoint::Error::Callback { what: "the prompt", source: error.into() }
        })?;
        let source = self.tokenizer.encode(&source, Some(self.prompt.options().max_tokens))?;
        let target = self.targets.row(target)?;
        Ok(Row { source, target })
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use sporran_kilt::{Example, Output, Passage, Query};
    use sporran_training::{KnowledgeOptions, TrainingOptions, session::ShapeOptions};
    use sporran_transformers::{Checkpoint, DeviceName, GenerationOptions, Precision};

    use super::*;
    use crate::{PromptOptions, training::MatchingOptions};

    /// The numbers of different targets and sources in forty epochs of a record with two answers and two passages.
    fn drawn(first_answers: f64, shuffled_passages: f64) -> (usize, usize) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/bart");
        let checkpoint = Checkpoint::open(&folder).unwrap();
        let tokenizer = checkpoint.tokenizer().unwrap();
        let output = |answer: &str| Output { answer: Some(answer.into()), ..Output::default() };
        let gold = ["tea", "ice"].map(output).to_vec();
        let example = Example { query: Query::of_text(1i64, "who?"), gold };
        let passages = ["Tea is hot.", "Ice is cold."].map(|text| (Passage::of_text(text), 1.0)).to_vec();
        let settings = TrainSettings {
            model: &folder,
            from: None,
            shape: &ShapeOptions::default(),
            optimizer: &TrainingOptions::default(),
            target: Target::Answer,
            add_gold: false,
            matching: MatchingOptions::default(),
            negatives: 0,
            page_negatives: None,
            evidence: None,
            question_encoder: None,
            knowledge: KnowledgeOptions::default(),
            added_tokens: &[],
            target_tokens: 16,
            first_answers,
            shuffled_passages,
            device: DeviceName::Cpu,
        };
        let prompt = Prompt::new(PromptOptions { passages: 2, ..PromptOptions::default() }).unwrap();
        let examples = [RetrievedExample { example, passages }];
        let model = checkpoint.fast(Precision::F32).unwrap();
        let targets = Targets::new(&tokenizer, 16, &GenerationOptions::default(), &model).unwrap();
        let rows = Rows {
            examples: &examples,
            prompt,
            tokenizer: &tokenizer,
            targets,
            settings: &settings,
            seed: 7,
        };
        let (mut targets, mut sources) = (BTreeSet::new(), BTreeSet::new());
        for epoch in 0..40 {
            let row = &rows.of_epoch(epoch).unwrap()[0];
            targets.insert(row.target.clone());
            sources.insert(row.source.clone());
        }
        (targets.len(), sources.len())
    }

    #[test]
    fn shares_say_how_often_answers_and_passages_are_drawn() {
        assert_eq!(drawn(1.0, 0.0), (1, 1));
        assert_eq!(drawn(0.0, 0.0), (2, 1));
        assert_eq!(drawn(1.0, 1.0), (1, 2));
    }
}
