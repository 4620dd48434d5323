//! Retrieval-augmented generation: answers from the document, the question and retrieved passages, marginalised over the
//! passages (Lewis et al., 2020).

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use candle_core::DType;
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::Tokenizer;
use sporran_config::{Diagnostic, Document};
use sporran_generator::{
    Candidate, Generation, Generator, GeneratorTrainer, GeneratorTraining, LiveRetrieval, Prompt,
    PromptOptions, RagGenerator, RagSequenceOptions, RagTokenOptions, Request, RetrievedExample,
    TrainSettings, ValidationScore,
};
use sporran_kilt::{Example, Output, Passage, Query, korc::Question, observe::Observer, scores::answer_set};
use sporran_reasoner::question::{
    Answers, Background, LivePassages, PassageFinder, QuestionTraining, Reasoner, ReasonerKind, TextAnswers,
    check_trained,
};
use sporran_training::{
    EvaluationError, RagLoss, ScoredQuestion, ScoredRagObjective, TrainingOptions, Variables,
    session::{InitialModel, ShapeOptions, TrainableModel, Trained, TrainingSession},
};
use sporran_transformers::{Checkpoint, DeviceName, Precision, Seq2Seq, decode::RagDecoding};

use super::{
    seq2seq::{fit, generation},
    texts::{AnswerSplitter, outside},
};
use crate::{Error, Result};

/// `kind = "rag-sequence"` or `kind = "rag-token"`. The passages are those of `[retriever]` over `[source]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RagQuestions {
    /// The folder of the model, which training writes.
    pub model: PathBuf,
    /// The folder of the initial T5 or BART. Without it, training starts from a T5 of `shape` with random
    /// weights, and trains its vocabulary.
    pub from: Option<PathBuf>,
    /// The folder of the initial question encoder, which is trained with the generator `from`. Training writes it to
    /// `retriever.model`; `retriever.passage-model` makes the vectors of passages, which stay as they are. Without this key, the
    /// retriever is frozen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question_encoder: Option<PathBuf>,
    /// `[reasoner.shape]`: the sizes of a T5 with random weights.
    #[serde(default)]
    pub shape: ShapeOptions,
    /// The number of passages that are retrieved with document and question.
    #[serde(default = "passages")]
    #[schemars(range(min = 1), extend("x-unit" = "passages"))]
    pub passages: usize,
    /// The largest number of words of a passage.
    #[serde(default = "passage_words")]
    #[schemars(range(min = 1), extend("x-unit" = "words"))]
    pub passage_words: usize,
    /// The largest number of tokens of document, question and one passage. The passage is cut first. The document is cut where
    /// document and question have more than three quarters of the tokens.
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 2), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// The largest number of tokens of the answers.
    #[serde(default = "answer_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub answer_tokens: usize,
    /// The number of beams of the search for answers.
    #[serde(default = "beams")]
    #[schemars(range(min = 1))]
    pub beams: usize,
    /// How the weights are kept when the model answers: `"f32"`, `"int8"` on a CPU, or `"f16"` or `"bf16"` on a GPU.
    #[serde(default)]
    pub precision: Precision,
    /// Where the model computes: `cpu`, `cuda` or `cuda:N`; GPUs need a program that was built with the feature `cuda`.
    #[serde(default)]
    pub device: DeviceName,
    /// `[reasoner.optimizer]`: steps, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
}

fn passages() -> usize {
    5
}

fn passage_words() -> usize {
    100
}

fn max_tokens() -> usize {
    1024
}

fn answer_tokens() -> usize {
    48
}

fn beams() -> usize {
    4
}

/// The mistake of a question encoder without an initial generator.
const FROM: &str = "is missing; the question encoder is trained with an initial generator";

/// The largest number of tokens that are decoded together.
const BATCH_TOKENS: usize = 8192;

/// `kind = "rag-sequence"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct RagSequenceQuestions(pub Box<RagQuestions>);

/// `kind = "rag-token"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct RagTokenQuestions(pub Box<RagQuestions>);

macro_rules! reasoner_kind {
    ($kind:ty, $loss:expr) => {
        impl ReasonerKind for $kind {
            fn model(&self) -> &Path {
                &self.0.model
            }

            fn check(&self, key: &str, document: &mut Document<'_>) {
                self.0.check(key, document);
            }

            fn train(
                &self,
                training: &QuestionTraining<'_>,
                observe: &mut Observer<'_>,
            ) -> sporran_reasoner::Result<Trained> {
                match training.live {
                    Some(live) => train_both(&self.0, $loss, (training, live), observe).map_err(outside),
                    None => train(&self.0, $loss, training, observe).map_err(outside),
                }
            }

            fn question_encoder(&self) -> Option<&Path> {
                self.0.question_encoder.as_deref()
            }

            fn reads_passages(&self) -> bool {
                true
            }

            fn open<'a>(
                &self,
                background: Background<'a>,
            ) -> sporran_reasoner::Result<Box<dyn Reasoner + 'a>> {
                check_trained(&self.0.model)?;
                Ok(Box::new(RagReasoner::load(&self.0, $loss, background).map_err(outside)?))
            }
        }
    };
}

reasoner_kind!(RagSequenceQuestions, RagLoss::Sequence);
reasoner_kind!(RagTokenQuestions, RagLoss::Token);

impl RagQuestions {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        if self.question_encoder.is_some() && self.from.is_none() {
            document.report_key(&format!("{key}.from"), FROM);
        }
        if let Err(error) = self.optimizer.check() {
            document.report_key(&format!("{key}.optimizer"), error.to_string());
        }
        if let Err(error) = self.device.check(self.precision) {
            document.report_key(&format!("{key}.device"), error.to_string());
        }
    }

    fn prompt(&self) -> PromptOptions {
        PromptOptions {
            passages: self.passages,
            passage_words: self.passage_words,
            max_tokens: self.max_tokens,
            ..PromptOptions::default()
        }
    }

    /// The generator of a model.
    fn generator(
        &self,
        loss: RagLoss,
        model: Arc<dyn Seq2Seq>,
        tokenizer: Tokenizer,
    ) -> Result<RagGenerator> {
        Ok(match loss {
            RagLoss::Sequence => RagGenerator::sequence(&self.sequence(), model, tokenizer)?,
            RagLoss::Token => RagGenerator::token(&self.token(), model, tokenizer)?,
        })
    }

    /// The generator of `rag-sequence`.
    fn sequence(&self) -> RagSequenceOptions {
        RagSequenceOptions {
            model: self.model.clone(),
            precision: self.precision,
            device: self.device,
            prompt: self.prompt(),
            generation: generation(self.answer_tokens, self.beams),
            decoding: RagDecoding::Thorough,
            batch_tokens: BATCH_TOKENS,
        }
    }

    /// The generator of `rag-token`.
    fn token(&self) -> RagTokenOptions {
        let RagSequenceOptions { model, precision, device, prompt, generation, batch_tokens, .. } =
            self.sequence();
        RagTokenOptions { model, precision, device, prompt, generation, batch_tokens }
    }

    /// The document, then the question.
    fn query(&self, question: &Question, tokenizer: &Tokenizer) -> Result<Query> {
        let around = |document: &str| format!("{document} | {}", question.question);
        let text = fit(question.document_parts(), tokenizer, self.max_tokens * 3 / 4, around)?;
        Ok(Query::of_text(question.id.clone(), text))
    }
}

/// The passages of a config with `[retriever]`.
fn finder(passages: Option<&dyn PassageFinder>) -> Result<&dyn PassageFinder> {
    passages.ok_or_else(|| {
        let message = "is missing; the reasoner reads passages of `[source]`";
        Error::Config(vec![Diagnostic::of_config("retriever", message)])
    })
}

/// The model with its retriever.
struct RagReasoner<'a> {
    options: RagQuestions,
    generator: RagGenerator,
    tokenizer: Tokenizer,
    passages: &'a dyn PassageFinder,
    splitter: AnswerSplitter,
}

impl<'a> RagReasoner<'a> {
    /// Loads the model.
    fn load(options: &RagQuestions, loss: RagLoss, background: Background<'a>) -> Result<Self> {
        let passages = finder(background.passages)?;
        let checkpoint = Checkpoint::open(&options.model)?;
        let model = checkpoint.seq2seq(options.device, options.precision)?;
        let tokenizer = checkpoint.tokenizer()?;
        let generator = options.generator(loss, model.into(), tokenizer.clone())?;
        let splitter = AnswerSplitter::new(background.kb);
        Ok(Self { options: options.clone(), generator, tokenizer, passages, splitter })
    }
}

impl Reasoner for RagReasoner<'_> {
    fn answer(&self, questions: &[Question], most: usize) -> sporran_reasoner::Result<Vec<Answers>> {
        let found = self.passages.find(questions, self.options.passages)?;
        let query = |question: &Question| self.options.query(question, &self.tokenizer);
        let queries: Vec<Query> = questions.par_iter().map(query).collect::<Result<_>>().map_err(outside)?;
        let generated = generate(&self.generator, &queries, &found).map_err(outside)?;
        let texts = |(generation, found): (Generation, Vec<(Passage, f32)>)| {
            Answers::Texts(TextAnswers {
                answers: self.splitter.answers(&generation.text, most),
                score: generation.score,
                triples: Vec::new(),
                passages: found,
            })
        };
        Ok(generated.into_iter().zip(found).map(texts).collect())
    }
}

/// Answers queries with these passages.
fn generate(
    generator: &RagGenerator,
    queries: &[Query],
    found: &[Vec<(Passage, f32)>],
) -> Result<Vec<Generation>> {
    let candidates: Vec<Vec<Candidate<'_>>> = found
        .iter()
        .map(|found| found.iter().map(|(passage, score)| Candidate { passage, score: *score }).collect())
        .collect();
    let requests: Vec<Request<'_>> =
        queries.iter().zip(&candidates).map(|(query, passages)| Request { query, passages }).collect();
    Ok(generator.generate(&requests)?)
}

/// The questions of a training with their passages and answers in tokens.
fn scored(
    options: &RagQuestions,
    questions: &[Question],
    found: &[Vec<(Passage, f32)>],
    tokenizer: &Tokenizer,
    max_tokens: usize,
) -> Result<Vec<ScoredQuestion>> {
    let prompt = Prompt::new(options.prompt())?;
    let one = |(question, found): (&Question, &Vec<(Passage, f32)>)| -> Result<ScoredQuestion> {
        let query = options.query(question, tokenizer)?;
        let text = |rank: usize, candidates: &[Candidate<'_>]| -> Result<Vec<u32>> {
            let request = Request { query: &query, passages: candidates };
            let text = prompt.text_from(rank, &request, tokenizer)?;
            Ok(tokenizer.encode(&text, Some(max_tokens))?)
        };
        let mut texts = Vec::with_capacity(found.len());
        for (rank, (passage, score)) in (1..).zip(found) {
            texts.push((text(rank, &[Candidate { passage, score: *score }])?, *score));
        }
        if texts.is_empty() {
            // Without passages the input alone is certain.
            texts.push((text(1, &[])?, 0.0));
        }
        let target = tokenizer.encode(&question.labels().join(", "), Some(options.answer_tokens))?;
        Ok(ScoredQuestion { texts, target })
    };
    questions.par_iter().zip(found).map(one).collect()
}

/// Trains the generator together with the question encoder of the retriever, and saves both. The score is the P-F1 on the
/// validation questions.
fn train_both(
    options: &RagQuestions,
    loss: RagLoss,
    (training, live): (&QuestionTraining<'_>, LivePassages<'_>),
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let from = options.from.as_deref();
    let from = from.ok_or_else(|| Error::Config(vec![Diagnostic::of_config("reasoner.from", FROM)]))?;
    let tokenizer = Checkpoint::open(from)?.tokenizer()?;
    // Questions of both files may have the same id.
    let id = |split: &str, question: &Question| format!("{split} {}", question.id.text());
    let example = |split: &str, question: &Question| -> Result<RetrievedExample> {
        let query = Query { id: id(split, question).into(), ..options.query(question, &tokenizer)? };
        let gold = Output { answer: Some(question.labels().join(", ")), ..Output::default() };
        Ok(RetrievedExample { example: Example { query, gold: vec![gold] }, passages: Vec::new() })
    };
    let examples = |split: &str, questions: &[&Question]| -> Result<Vec<RetrievedExample>> {
        questions.par_iter().map(|question| example(split, question)).collect()
    };
    let learned: Vec<&Question> =
        training.questions.iter().filter(|question| !question.labels().is_empty()).collect();
    let valid: Vec<&Question> = training.valid.iter().collect();
    let of = |split: &'static str, questions: &[&Question]| -> Vec<(String, Query)> {
        questions.iter().map(|question| (id(split, question), (live.query)(question))).collect()
    };
    let searched: FxHashMap<String, Query> =
        of("train", &learned).into_iter().chain(of("valid", &valid)).collect();
    let query = |query: &Query| searched.get(&*query.id.text()).unwrap_or(query).clone();
    let splitter = AnswerSplitter::new(training.kb);
    let score = |at: usize, text: &str| {
        let answers = splitter.answers(text, training.max_answers);
        answer_set::score(&answers, valid[at].labels(), answer_set::words).p_f1
    };
    let settings = TrainSettings {
        from: Some(from),
        question_encoder: options.question_encoder.as_deref(),
        target_tokens: options.answer_tokens,
        device: options.device,
        ..TrainSettings::new(&options.model, &options.shape, &options.optimizer)
    };
    let generator_training = GeneratorTraining {
        settings,
        examples: examples("train", &learned)?,
        validation: examples("valid", &valid)?,
        store: Some(live.store.clone()),
        name: training.config,
        seed: training.seed,
        // It adds `training`.
        folder: training.folder.parent().unwrap_or(training.folder).to_owned(),
        live: Some(LiveRetrieval { index: live.index, query: &query }),
        score: Some(ValidationScore { name: "validation P-F1", of: &score }),
    };
    Ok(match loss {
        RagLoss::Sequence => options.sequence().train(generator_training, observe)?,
        RagLoss::Token => options.token().train(generator_training, observe)?,
    })
}

/// Trains a model and saves it. The score is the P-F1 on the validation questions.
fn train(
    options: &RagQuestions,
    loss: RagLoss,
    training: &QuestionTraining<'_>,
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let finder = finder(training.passages)?;
    let questions: Vec<Question> =
        training.questions.iter().filter(|question| !question.labels().is_empty()).cloned().collect();
    let found = finder.find(&questions, options.passages)?;
    let start = match &options.from {
        Some(from) => InitialModel::of_folder(from, training.seed)?,
        None => {
            let mut texts: Vec<&str> = Vec::new();
            for (question, found) in questions.iter().zip(&found) {
                texts.extend([question.question.as_str(), question.document()]);
                texts.extend(question.labels().iter().map(String::as_str));
                let passages = found.iter().flat_map(|(passage, _)| [&passage.title, &passage.text]);
                texts.extend(passages.map(String::as_str));
            }
            InitialModel::fresh(&options.shape, &texts, &[], training.seed)?
        }
    };
    let card = |variables: &Variables| training.card(variables);
    let TrainableModel { model, tokenizer, variables, extra_files } =
        start.build(&options.device.open()?, card)?;
    let room = model.max_input_length().unwrap_or(usize::MAX).min(options.max_tokens);
    let learned = scored(options, &questions, &found, &tokenizer, room)?;
    let objective = ScoredRagObjective::new(model.as_ref(), &variables, &learned, loss, &options.optimizer)?;

    let generator = options.generator(loss, model.clone(), tokenizer.clone())?;
    let splitter = AnswerSplitter::new(training.kb);
    let shown = finder.find(training.valid, options.passages)?;
    let queries: Vec<Query> =
        training.valid.iter().map(|question| options.query(question, &tokenizer)).collect::<Result<_>>()?;
    let score = || -> Result<f64> {
        let score = |(generation, question): (Generation, &Question)| {
            let answers = splitter.answers(&generation.text, training.max_answers);
            answer_set::score(&answers, question.labels(), answer_set::words).p_f1
        };
        let total: f64 =
            generate(&generator, &queries, &shown)?.into_iter().zip(training.valid).map(score).sum();
        Ok(total / training.valid.len().max(1) as f64)
    };
    let evaluate = || score().map_err(EvaluationError::from);
    let session = TrainingSession {
        variables: &variables,
        options: &options.optimizer,
        folder: training.folder.to_owned(),
        model: &options.model,
        dtype: DType::F16,
        extra_files: &extra_files,
        score: "validation P-F1",
    };
    Ok(session.run(&objective, (!training.valid.is_empty()).then_some(&evaluate), observe)?)
}
