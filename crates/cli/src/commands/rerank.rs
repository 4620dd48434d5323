//! `sporran rerank`.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::ScoreActivation;
use sporran_kilt::{
    PassageStore,
    scores::ranking::{RELEVANT, Report},
    wowpp,
};
use sporran_pipeline::selection;
use sporran_reranker::{Computing, CrossEncoder, CrossEncoderOptions};
use sporran_transformers::{DeviceName, Precision};

use super::{input::Lines, models, print, print_json};
use crate::{error::Result, progress::Progress};

/// `sporran rerank`
#[derive(Args)]
pub(crate) struct Rerank {
    /// The folder of a reranker that `sporran train` made, or of a cross-encoder in the Hugging Face layout
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Rank the judged sentences of dialogues in WOW++'s layout, rather than the passages of standard input
    #[arg(
        long,
        value_name = "FILE",
        requires = "output",
        conflicts_with_all = ["json", "max_tokens", "raw_scores"]
    )]
    wowpp: Option<PathBuf>,
    /// Where the ranking goes: lines of `{id, candidates: [{id, confidence, score}]}`
    #[arg(long, value_name = "FILE", requires = "wowpp")]
    output: Option<PathBuf>,
    /// Where predictions go in KILT's layout: the best sentence, with the page of its article as the provenance where `--store`
    /// has one
    #[arg(long, value_name = "FILE", requires = "wowpp")]
    predictions: Option<PathBuf>,
    /// The passage store of the knowledge source, such as `indexes/store-KEY`: its pages are the provenance of predictions
    #[arg(long, value_name = "DIR", requires = "predictions")]
    store: Option<PathBuf>,
    /// How the weights are kept: f32, or int8, which is faster and less exact
    #[arg(long, default_value = "f32", value_name = "PRECISION")]
    precision: Precision,
    /// Where the model computes: cpu, cuda or cuda:N; on a GPU the precision can be f32, f16 or bf16
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    device: DeviceName,
    /// Tokens of a query with a passage, at most; the longer of the two is cut. By default as many as the folder says
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
    /// Tokens that are worked on together, padding included, at most
    #[arg(long, default_value_t = 4096, value_name = "N")]
    batch_tokens: usize,
    /// Print the model's logits, without the activation of the folder: by default scores are those of
    /// sentence-transformers' CrossEncoder.predict, with the activation that the folder names, or else the sigmoid for a
    /// model with one label and nothing for one with two
    #[arg(long)]
    raw_scores: bool,
    /// Print one JSON object a line: {"scores": [..]}, a number for each passage, or a list of two for a model with two
    /// labels; null where query and passage have no tokens
    #[arg(long)]
    json: bool,
}

/// Lines that are read before the first of them is answered.
const LINES: usize = 64;

#[derive(Default, Deserialize)]
struct Request {
    query: String,
    passages: Vec<String>,
    /// The line that it stands on.
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

    /// As it is printed between blanks.
    fn text(&self) -> String {
        match self {
            Self::One(score) => score.to_string(),
            Self::Labels(scores) => scores.iter().map(f32::to_string).collect::<Vec<_>>().join(","),
        }
    }
}

impl Rerank {
    pub(crate) fn run(self, quiet: bool) -> Result<()> {
        if let (Some(dialogues), Some(output)) = (&self.wowpp, &self.output) {
            return self.select(dialogues, output, quiet);
        }
        let model = CrossEncoder::load(&CrossEncoderOptions {
            precision: self.precision,
            device: self.device,
            max_tokens: self.max_tokens,
            batch_tokens: self.batch_tokens,
            ..CrossEncoderOptions::new(models::resolve(&self.model, quiet)?)
        })?;
        let activation = if self.raw_scores { ScoreActivation::Identity } else { model.activation()? };
        let mut blank = 0usize;
        let mut line = 0;
        let parse = |text: String| {
            line += 1;
            if text.trim().is_empty() {
                blank += 1;
                return Ok(Request::default());
            }
            serde_json::from_str::<Request>(&text)
                .map(|request| Request { line, ..request })
                .map_err(|error| format!("expected {{\"query\": text, \"passages\": [texts]}}: {error}"))
        };
        let done = Lines::stdin(LINES).each_portion(parse, |requests| {
            let pairs: Vec<(&str, &str)> = requests
                .iter()
                .flat_map(|request| {
                    request.passages.iter().map(|passage| (request.query.as_str(), passage.as_str()))
                })
                .collect();
            let mut logits = model.logits_where_read(&pairs)?.into_iter();
            for request in requests {
                let rows = logits.by_ref().take(request.passages.len());
                let score = |row: Option<Vec<f32>>| row.map(|row| Score::of(activation.scores(&row)));
                let scores: Vec<Option<Score>> = rows.map(score).collect();
                if scores.iter().any(Option::is_none) {
                    tracing::warn!(
                        "standard input:{}: an empty query and an empty passage have no tokens, and no score",
                        request.line
                    );
                }
                if self.json {
                    print_json(&Answer { scores })?;
                } else {
                    let text = |score: &Option<Score>| score.as_ref().map_or_else(|| "-".into(), Score::text);
                    let scores: Vec<String> = scores.iter().map(text).collect();
                    print(&format!("{}\n", scores.join(" ")))?;
                }
            }
            Ok(())
        });
        if blank > 0 {
            tracing::warn!("standard input: blank lines have no scores: {blank} of them");
        }
        done
    }

    /// Ranks the sentences of dialogues, and says how the crowd's judgements score that.
    fn select(&self, dialogues: &Path, output: &Path, quiet: bool) -> Result<()> {
        let computing =
            Computing { precision: self.precision, device: self.device, batch_tokens: self.batch_tokens };
        let store = self.store.as_ref().map(PassageStore::open).transpose()?.map(Arc::new);
        let reranker = sporran_reranker::open(&models::resolve(&self.model, quiet)?, computing)
            .map_err(sporran_pipeline::Error::from)?;
        let dialogues = wowpp::load(dialogues)?;
        let mut progress = Progress::new(quiet);
        let ranked = selection::rank(&dialogues.0, &*reranker, &mut |event| progress.event(event))?;
        selection::write_ranking(output, &ranked)?;
        if let Some(path) = &self.predictions {
            selection::write_predictions(path, &dialogues, &ranked, store)?;
        }
        print(&format!("{}\n", Report::of(&ranked, RELEVANT)))
    }
}
