//! Training of a decoder-only model on prompts and answers.

use std::sync::Arc;

use sporran_checkpoint::Tokenizer;
use sporran_kilt::observe::Observer;
use sporran_training::{
    CausalObjective, EvaluationError, Row, mean_loss,
    session::{TrainableModel, Trained, TrainingSession},
};
use sporran_transformers::TrainableCausal;

use super::{options::CausalOptions, prompt::CausalPrompt};
use crate::{
    Error, Result,
    text::continuing,
    training::{GeneratorTrainer, GeneratorTraining, RetrievedExample, Target, with_titles},
};

impl GeneratorTrainer for CausalOptions {
    fn passages(&self) -> usize {
        self.prompt.passages
    }

    fn adds_gold(&self) -> bool {
        true
    }

    fn needs_from(&self) -> bool {
        true
    }

    fn adds_tokens(&self) -> bool {
        true
    }

    /// Teacher forcing on the tokens of the first gold answer. The validation score is the reciprocal of the perplexity of
    /// the validation answers.
    fn train(&self, mut training: GeneratorTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained> {
        let wrong = |option, problem| Err(Error::Training { option, problem });
        let Some(from) = training.settings.from else {
            return wrong("train.from", "is missing; a decoder-only model is trained from a folder");
        };
        if self.demonstrations.is_some() {
            return wrong(
                "generator.demonstrations",
                "expected none; training shows no examples in a prompt",
            );
        }
        if let (Target::Title, Some(store)) = (training.settings.target, training.store.clone()) {
            with_titles(&mut training.examples, &store);
            with_titles(&mut training.validation, &store);
        }
        let TrainableModel { model, tokenizer, variables, extra_files } = training.init_causal(from)?;
        let model = &*model;
        let tokenizer = continuing(tokenizer);
        let generation = self.generation.or(model.generation_defaults());
        let rows = Rows {
            prompt: CausalPrompt::new(self, from, tokenizer.clone(), model, &generation)?,
            tokenizer: &tokenizer,
            model,
            target_tokens: training.settings.target_tokens,
        };
        let examples = Arc::new(rows.of(&training.examples)?);
        let validation = rows.of(&training.validation)?;
        if examples.is_empty() {
            return wrong("train", "expected a record with an answer; the training records have none");
        }
        let evaluate = || -> Result<f64, EvaluationError> {
            let loss = mean_loss(model, &validation)?;
            tracing::info!(loss, perplexity = loss.exp(), "validation");
            Ok((-loss).exp())
        };
        let of_epoch = |_| Ok(examples.clone());
        let objective = CausalObjective::new(model, &variables, training.settings.optimizer, &of_epoch);
        let session =
            TrainingSession { score: "1 / perplexity", ..training.session(&variables, &extra_files) };
        Ok(session.run(&objective, (!validation.is_empty()).then_some(&evaluate), observe)?)
    }
}

/// Makes the token rows of records.
struct Rows<'a> {
    prompt: CausalPrompt,
    tokenizer: &'a Tokenizer,
    model: &'a dyn TrainableCausal,
    target_tokens: usize,
}

impl Rows<'_> {
    /// The rows of the records that have an answer.
    fn of(&self, examples: &[RetrievedExample]) -> Result<Vec<Row>> {
        use rayon::prelude::*;
        let rows: Result<Vec<Option<Row>>> =
            examples.par_iter().map(|retrieved| self.row(retrieved)).collect();
        Ok(rows?.into_iter().flatten().collect())
    }

    /// The prompt of a run, and the first answer with the end token. The target has at most `target_tokens` tokens, and as
    /// many as the model has positions for; one that is cut has no end token.
    fn row(&self, retrieved: &RetrievedExample) -> Result<Option<Row>> {
        let Some(answer) = retrieved.example.answers().into_iter().find(|answer| !answer.trim().is_empty())
        else {
            return Ok(None);
        };
        let (source, mut target) = retrieved.ask(|request| -> Result<_> {
            Ok((self.prompt.row(request, &[])?.0, self.prompt.continuation(request, answer)?))
        })?;
        target.extend(self.end());
        let mut most = self.target_tokens.max(1);
        if self.model.has_learned_positions() {
            // The last token is not read.
            most = most.min((self.model.max_length() + 1).saturating_sub(source.len()).max(1));
        }
        target.truncate(most);
        Ok(Some(Row { source, target }))
    }

    /// The token that ends an answer in a run: that of the chat template, or the model's first end token.
    fn end(&self) -> Option<u32> {
        let of_template = self.prompt.end().and_then(|end| self.tokenizer.token_id(end));
        of_template.or(self.model.special_tokens().eos.first().copied())
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use candle_core::{DType, Device};
    use sporran_kilt::{Example, Output, Passage, Query};
    use sporran_training::{KnowledgeOptions, TrainingOptions, session::ShapeOptions};
    use sporran_transformers::{Checkpoint, DeviceName};

    use super::*;
    use crate::{
        CausalGenerator, Generator, MatchingOptions, TrainSettings,
        causal::{Chat, tests::options},
    };

    fn folder(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data").join(name)
    }

    fn example(input: &str, answer: &str) -> RetrievedExample {
        let output = Output { answer: Some(answer.into()), ..Output::default() };
        let example = Example { query: Query::of_text(1i64, input), gold: vec![output] };
        RetrievedExample { example, passages: vec![(Passage::of_text("Tea is hot."), 1.0)] }
    }

    fn rows_of(
        name: &str,
        options: &CausalOptions,
        target_tokens: usize,
        of: &[RetrievedExample],
    ) -> Vec<Row> {
        let checkpoint = Checkpoint::open(&folder(name)).unwrap();
        let model = checkpoint.causal_model(DType::F32, &Device::Cpu).unwrap();
        let tokenizer = continuing(checkpoint.tokenizer().unwrap());
        let generation = options.generation.or(model.generation_defaults());
        let prompt =
            CausalPrompt::new(options, &folder(name), tokenizer.clone(), &*model, &generation).unwrap();
        Rows { prompt, tokenizer: &tokenizer, model: &*model, target_tokens }.of(of).unwrap()
    }

    fn settings<'a>(
        model: &'a Path,
        from: Option<&'a Path>,
        shape: &'a ShapeOptions,
        optimizer: &'a TrainingOptions,
    ) -> TrainSettings<'a> {
        TrainSettings {
            model,
            from,
            shape,
            optimizer,
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
            first_answers: 1.0,
            shuffled_passages: 0.0,
            device: DeviceName::Cpu,
        }
    }

    #[test]
    fn a_row_is_the_prompt_of_a_run_and_the_answer_with_the_end_token() {
        let options = options(Chat::None);
        let examples = [example("who?", "the author"), example("when?", "  ")];
        let rows = rows_of("llama", &options, 64, &examples);
        // The second record has no answer.
        assert_eq!(rows.len(), 1);
        let tokenizer = Checkpoint::open(&folder("llama")).unwrap().tokenizer().unwrap();
        let text = "Be short.\n\n: Tea is hot.\nQuestion: who?\nAnswer:";
        assert_eq!(rows[0].source, tokenizer.encode(text, None).unwrap());
        let target = tokenizer.encode_plain(" the author").unwrap();
        // The fixtures end with token 0.
        assert_eq!(rows[0].target, [target, vec![0]].concat());
        let generator = CausalGenerator::load(&options).unwrap();
        assert_eq!(examples[0].ask(|request| generator.prompts(request)).unwrap(), [text]);
    }

    #[test]
    fn an_answer_after_a_line_break_has_no_space() {
        let mut options = options(Chat::Chatml);
        options.answer = String::new();
        let rows = rows_of("llama", &options, 64, &[example("who?", "the author")]);
        let tokenizer = Checkpoint::open(&folder("llama")).unwrap().tokenizer().unwrap();
        let target = tokenizer.encode_plain("the author").unwrap();
        assert_eq!(rows[0].target, [target, vec![0]].concat());
    }

    #[test]
    fn targets_are_cut_to_their_option_and_to_the_positions_of_the_model() {
        let long = example("who?", &"the author of the book ".repeat(40));
        let options = options(Chat::None);
        let of = |name, tokens| rows_of(name, &options, tokens, std::slice::from_ref(&long)).remove(0);
        assert_eq!(of("llama", 7).target.len(), 7);
        // Rotary positions go on.
        assert_eq!(of("llama", 90).target.len(), 90);
        // Of 64 learned positions, the last token of a row needs none.
        let row = of("gpt2", 90);
        assert_eq!(row.source.len() + row.target.len(), 65);
    }

    #[test]
    fn a_trained_model_writes_the_answers_that_it_has_learned() {
        let place = tempfile::tempdir().unwrap();
        let model = place.path().join("model");
        let optimizer = TrainingOptions {
            steps: 60,
            warmup_steps: Some(5),
            learning_rate: 1e-2,
            tokens_per_batch: 400,
            ..TrainingOptions::default()
        };
        let shape = ShapeOptions::default();
        let from = folder("gpt2");
        let settings = settings(&model, Some(&from), &shape, &optimizer);
        let mut options = options(Chat::None);
        options.instruction = String::new();
        options.prompt.passages = 0;
        let examples = || vec![example("who?", "a"), example("where?", "b")];
        let training = GeneratorTraining {
            settings,
            examples: examples(),
            validation: examples(),
            store: None,
            live: None,
            score: None,
            name: "tiny",
            seed: 1,
            folder: place.path().to_path_buf(),
        };
        let trained = options.train(training, &mut |_| {}).unwrap();
        let (_, score) = trained.best.unwrap();
        assert!(score > 0.9, "{score}");
        options.model = model;
        let generator = CausalGenerator::load(&options).unwrap();
        let texts: Vec<String> = examples()
            .iter()
            .map(|example| {
                example.ask(|request| generator.generate(std::slice::from_ref(request))).unwrap()[0]
                    .text
                    .clone()
            })
            .collect();
        assert_eq!(texts, ["a", "b"]);
    }

    #[test]
    fn a_training_needs_an_initial_folder_and_no_demonstrations() {
        let (shape, optimizer) = (ShapeOptions::default(), TrainingOptions::default());
        let training = || GeneratorTraining {
            settings: settings(Path::new("unused"), None, &shape, &optimizer),
            examples: Vec::new(),
            validation: Vec::new(),
            store: None,
            live: None,
            score: None,
            name: "tiny",
            seed: 1,
            folder: PathBuf::from("unused"),
        };
        let error = options(Chat::None).train(training(), &mut |_| {}).unwrap_err().to_string();
        assert!(error.starts_with("`train.from`: is missing"), "{error}");
    }
}
