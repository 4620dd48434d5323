//! `sporran rerank`.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::{Args, ValueHint};
use serde::{Deserialize, Serialize};
use sporran_checkpoint::ScoreActivation;
use sporran_kilt::{
    Passage, PassageStore, Query,
    jsonl::plain_json,
    scores::ranking::{RELEVANT, Report},
    wowpp,
};
use sporran_pipeline::knowledge_selection;
use sporran_reranker::{
    Computing, CrossEncoder, CrossEncoderOptions, LlmFormat, LlmOptions, LlmReranker, Reranker, Saved,
};
use sporran_transformers::{DeviceName, Precision};

use super::{
    input::{Lines, at_least_one},
    models,
};
use crate::{
    error::{Error, Result},
    interrupt::{self, Kept},
    outcome::{Context, Outcome},
    paths,
};

/// `sporran rerank`
#[derive(Args)]
#[command(after_help = "Examples:\n  \
        sporran rerank --model models/ms-marco-MiniLM-L-6-v2 --json < queries.jsonl\n  \
        sporran rerank --model runs/wowpp-tfidf/model --wowpp test.json --output ranking.jsonl\n\
        \n\
        An input line is {\"query\": \"..\", \"passages\": [\"..\"]}. With --json, an output line is {\"scores\": [..]}.\n\
        A score is a number, or a list of two for a model with two labels; null if query and passage are empty.\n\
        \n\
        The scores of a cross-encoder are those of CrossEncoder.predict in sentence-transformers. They pass through the activation\n\
        of the folder; by default the sigmoid for one label, and none for two. Of a language model, they are the probability of\n\
        yes against no.\n\
        \n\
        Output lines have the order of the input lines.")]
pub(crate) struct Rerank {
    /// The model: a folder of a reranker that `sporran train` wrote, or of a cross-encoder or a decoder-only language model in
    /// the Hugging Face layout; an imported model's name, or hf:ID[@REV]
    #[arg(long, value_name = "MODEL", value_hint = ValueHint::DirPath)]
    model: PathBuf,
    /// Rank the annotated sentences of dialogues in WOW++'s layout, instead of passages from standard input
    #[arg(
        long,
        value_name = "FILE",
        requires = "output",
        conflicts_with_all = ["max_tokens", "raw_scores", "batch_size"],
        value_hint = ValueHint::FilePath
    )]
    wowpp: Option<PathBuf>,
    /// Ranking to write: lines of `{id, candidates: [{id, confidence, score}]}`
    #[arg(long, value_name = "FILE", requires = "wowpp", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Predictions to write in KILT's layout: the best sentence, with the page of its article if `--store` has it
    #[arg(long, value_name = "FILE", requires = "wowpp", value_hint = ValueHint::FilePath)]
    predictions: Option<PathBuf>,
    /// Passage store of the knowledge source, such as `indexes/store-KEY`, for the provenance of predictions
    #[arg(long, value_name = "DIR", requires = "predictions", value_hint = ValueHint::DirPath)]
    store: Option<PathBuf>,
    /// Data type of the weights: f32, or int8, which is faster and less exact; on a GPU f32, f16 or bf16
    #[arg(long, default_value = "f32", value_name = "PRECISION")]
    precision: Precision,
    /// Device: cpu, cuda or cuda:N
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    device: DeviceName,
    /// Maximum tokens of a query with a passage; the longer of the two is cut. The folder's setting by default
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
    /// Maximum lines to read before they are answered; with 1, each line is answered before the next is read
    #[arg(long, default_value_t = 64, value_name = "N")]
    batch_size: usize,
    /// Maximum tokens of a batch, padding included
    #[arg(long, default_value_t = 4096, value_name = "N")]
    batch_tokens: usize,
    /// Print the model's logits, without an activation; of a language model, the logit of yes less that of no
    #[arg(long)]
    raw_scores: bool,
    /// What makes a passage relevant, for a language model. The folder's by default, else that of Qwen 3's rerankers
    #[arg(long, value_name = "TEXT")]
    instruction: Option<String>,
    /// Prompt of a language model: folder, qwen3 or mxbai
    #[arg(long, value_name = "FORMAT")]
    format: Option<LlmFormat>,
    /// Token for a passage, for a language model [default: yes, or 1 with the format mxbai]
    #[arg(long, value_name = "TOKEN")]
    yes_token: Option<String>,
    /// Token against a passage, for a language model; empty for the logit of the other alone [default: no, or 0 with the
    /// format mxbai]
    #[arg(long, value_name = "TOKEN")]
    no_token: Option<String>,
}

#[derive(Default, Deserialize)]
struct Request {
    query: String,
    passages: Vec<String>,
    /// Its line number.
    #[serde(skip)]
    line: u64,
}

#[derive(Serialize)]
struct Answer {
    scores: Vec<Option<Score>>,
}

/// The score of a passage: one number, or one for each label.
#[derive(Serialize)]
#[serde(untagged)]
enum Score {
    One(f32),
    Labels(Vec<f32>),
}

impl Score {
    fn of(scores: Vec<f32>) -> Self {
        if let [score] = scores[..] { Self::One(score) } else { Self::Labels(scores) }
    }

    /// The text form, without blanks.
    fn text(&self) -> String {
        match self {
            Self::One(score) => score.to_string(),
            Self::Labels(scores) => scores.iter().map(f32::to_string).collect::<Vec<_>>().join(","),
        }
    }
}

/// A reranker, as its folder has it.
enum Model {
    /// Its logits pass through an activation, and a pair without tokens has none.
    CrossEncoder(Box<CrossEncoder>, ScoreActivation),
    /// Its log odds pass through an activation.
    Llm(Box<LlmReranker>, ScoreActivation),
    Other(Box<dyn Reranker>),
}

/// The pairs of the requests, one request after the other.
fn pairs_of(requests: &[Request]) -> Vec<(&str, &str)> {
    let passages = requests.iter().flat_map(|request| {
        request.passages.iter().map(|passage| (request.query.as_str(), passage.as_str()))
    });
    passages.collect()
}

impl Model {
    /// The scores of each request's passages.
    fn scores(&self, requests: &[Request]) -> Result<Vec<Vec<Option<Score>>>> {
        match self {
            Self::CrossEncoder(model, activation) => {
                let mut logits = model.logits_where_read(&pairs_of(requests))?.into_iter();
                let score = |row: Option<Vec<f32>>| row.map(|row| Score::of(activation.scores(&row)));
                let scores =
                    |request: &Request| logits.by_ref().take(request.passages.len()).map(score).collect();
                Ok(requests.iter().map(scores).collect())
            }
            Self::Llm(model, activation) => {
                let mut odds = model.log_odds(&pairs_of(requests))?.into_iter();
                let score = |odds: f32| Some(Score::of(activation.scores(&[odds])));
                let scores =
                    |request: &Request| odds.by_ref().take(request.passages.len()).map(score).collect();
                Ok(requests.iter().map(scores).collect())
            }
            Self::Other(model) => {
                let scores = |request: &Request| {
                    let passages: Vec<Passage> =
                        request.passages.iter().map(|text| Passage::of_text(text.as_str())).collect();
                    let passages: Vec<&Passage> = passages.iter().collect();
                    let query = Query::of_text("", request.query.as_str());
                    let scores = model.score(&query, &passages)?;
                    Ok(scores.into_iter().map(|score| Some(Score::One(score))).collect())
                };
                requests.iter().map(scores).collect()
            }
        }
    }
}

impl Rerank {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        if let (Some(dialogues), Some(output)) = (&self.wowpp, &self.output) {
            return self.select(dialogues, output, context);
        }
        at_least_one("--batch-size", self.batch_size)?;
        let model = self.open(models::resolve(&self.model, context.quiet)?)?;
        let mut blank = 0usize;
        let mut line = 0;
        let parse = |text: String| {
            line += 1;
            if text.trim().is_empty() {
                blank += 1;
                return Ok(Request::default());
            }
            serde_json::from_str::<Request>(&text).map(|request| Request { line, ..request }).map_err(
                |error| {
                    let wrong = plain_json(&error.to_string());
                    format!("expected {{\"query\": text, \"passages\": [texts]}}: {wrong}")
                },
            )
        };
        let done = Lines::stdin(self.batch_size).each_portion(parse, |requests| {
            for (request, scores) in requests.iter().zip(model.scores(requests)?) {
                if scores.iter().any(Option::is_none) {
                    tracing::warn!(
                        "standard input:{}: query and passage are both empty, so there is no score",
                        request.line
                    );
                }
                let text = |score: &Option<Score>| score.as_ref().map_or_else(|| "-".into(), Score::text);
                context.row(&Answer { scores }, |answer| {
                    answer.scores.iter().map(text).collect::<Vec<_>>().join(" ")
                })?;
            }
            Ok(())
        });
        if blank > 0 {
            tracing::warn!("standard input: blank lines have no scores: {blank} of them");
        }
        done.map(|()| Outcome::default())
    }

    /// Loads the reranker of a folder.
    fn open(&self, folder: PathBuf) -> Result<Model> {
        let Self { precision, device, batch_tokens, .. } = *self;
        let saved = Saved::read(&folder)?;
        let given = [
            ("--instruction", self.instruction.is_some()),
            ("--format", self.format.is_some()),
            ("--yes-token", self.yes_token.is_some()),
            ("--no-token", self.no_token.is_some()),
        ];
        let surplus = given.into_iter().find(|(_, is_given)| *is_given);
        if let Some((flag, _)) = surplus.filter(|_| !matches!(saved, Saved::Llm { .. })) {
            let message = format!("{flag} is for a language model, and {} has", folder.display());
            return Err(Error::Usage(format!("{message} a reranker of kind `{}`", saved.kind())));
        }
        if let Saved::CrossEncoder { .. } = saved {
            let model = CrossEncoder::load(&CrossEncoderOptions {
                precision,
                device,
                max_tokens: self.max_tokens,
                batch_tokens,
                ..CrossEncoderOptions::new(folder)
            })?;
            let activation = if self.raw_scores { ScoreActivation::Identity } else { model.activation()? };
            return Ok(Model::CrossEncoder(Box::new(model), activation));
        }
        if let Saved::Llm { .. } = saved {
            let model = LlmReranker::load(&LlmOptions {
                precision,
                device,
                max_tokens: self.max_tokens,
                batch_tokens,
                instruction: self.instruction.clone(),
                format: self.format.unwrap_or_default(),
                yes_token: self.yes_token.clone(),
                no_token: self.no_token.clone(),
                ..LlmOptions::new(folder)
            })?;
            let activation = if self.raw_scores { ScoreActivation::Identity } else { model.activation()? };
            return Ok(Model::Llm(Box::new(model), activation));
        }
        for (flag, is_given) in
            [("--max-tokens", self.max_tokens.is_some()), ("--raw-scores", self.raw_scores)]
        {
            if is_given {
                let message = format!("{flag} is for a cross-encoder, and {} has", folder.display());
                return Err(Error::Usage(format!("{message} a reranker of kind `{}`", saved.kind())));
            }
        }
        Ok(Model::Other(sporran_reranker::open(&folder, Computing { precision, device, batch_tokens })?))
    }

    /// Ranks the sentences of dialogues, and scores the ranking by the annotators' confidence.
    fn select(&self, dialogues: &Path, output: &Path, context: &Context) -> Result<Outcome> {
        paths::file(dialogues)?;
        self.store.as_deref().map_or(Ok(()), paths::folder)?;
        let computing =
            Computing { precision: self.precision, device: self.device, batch_tokens: self.batch_tokens };
        let store = self.store.as_ref().map(PassageStore::open).transpose()?.map(Arc::new);
        let reranker = sporran_reranker::open(&models::resolve(&self.model, context.quiet)?, computing)?;
        let dialogues = wowpp::load(dialogues)?;
        interrupt::keep(Kept::Output(output.to_owned()));
        let ranked = knowledge_selection::rank(&dialogues.0, &*reranker, &mut context.observer())?;
        knowledge_selection::write_ranking(output, &ranked)?;
        if let Some(path) = &self.predictions {
            knowledge_selection::write_predictions(path, &dialogues, &ranked, store)?;
        }
        Outcome::of(&Report::of(&ranked, RELEVANT))
    }
}
