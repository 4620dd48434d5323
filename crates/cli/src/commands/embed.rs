//! `sporran embed`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use serde::Serialize;
use sporran_kilt::folder::Shard;
use sporran_pipeline::shards::{self, Indexing};
use sporran_retriever::dense::{BiEncoder, BiEncoderOptions, Encoder, Prompt};
use sporran_transformers::{DeviceName, Pooling, Precision};

use super::{
    ConfigArgs,
    index::indexed,
    input::{Lines, at_least_one},
    models,
    shard::{ShardArgs, done},
};
use crate::{
    error::{Error, Result},
    outcome::{Context, Outcome},
};

/// `sporran embed`
#[derive(Args)]
#[command(
    after_help = "Example: sporran embed --model models/all-MiniLM-L6-v2 --json < texts.txt > vectors.jsonl\n\n\
                  With --json, an output line is {\"vector\": [..]}. Output lines have the order of the input lines."
)]
pub(crate) struct Embed {
    /// A config whose passages are embedded: builds the passage store and the indexes of vectors
    #[arg(value_name = "CONFIG", value_hint = ValueHint::FilePath, conflicts_with = "model", required_unless_present = "model")]
    config: Option<PathBuf>,
    /// Overrides of config values, such as `retriever.precision=int8`; `~KEY` takes a key out
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    #[command(flatten)]
    shard: ShardArgs,
    /// The model for lines: a folder of sentence-transformers, of DPR, or of another encoder with --pooling; an imported
    /// model's name, or hf:ID[@REV]
    #[arg(long, value_name = "MODEL", value_hint = ValueHint::DirPath)]
    model: Option<PathBuf>,
    /// Data type of the weights: f32, or int8, which is faster and less exact; on a GPU f32, f16 or bf16
    #[arg(long, default_value = "f32", value_name = "PRECISION")]
    precision: Precision,
    /// Device: cpu, cuda or cuda:N
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    device: DeviceName,
    /// Pooling of hidden states: cls, max, mean, mean_sqrt_len, weightedmean or lasttoken; the folder's by default
    #[arg(long, value_name = "POOLING")]
    pooling: Option<Pooling>,
    /// Name of the folder's prompt to put before every text, such as query or document; the folder's default prompt by
    /// default
    #[arg(long, value_name = "NAME", conflicts_with = "prompt")]
    prompt_name: Option<String>,
    /// Text to put before every text; replaces the folder's prompts
    #[arg(long, value_name = "TEXT", visible_alias = "prefix")]
    prompt: Option<String>,
    /// Keep the first N values of each vector; the folder's setting by default
    #[arg(long, value_name = "N")]
    dimensions: Option<usize>,
    /// Maximum tokens of a text; the rest is cut. The folder's setting by default
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
    /// Maximum lines to read before they are answered; with 1, each line is answered before the next is read
    #[arg(long, default_value_t = 1024, value_name = "N")]
    batch_size: usize,
    /// Maximum tokens of a batch, padding included
    #[arg(long, default_value_t = 4096, value_name = "N")]
    batch_tokens: usize,
}

#[derive(Serialize)]
struct Answer<'a> {
    vector: &'a [f32],
}

impl Embed {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        let model = match (self.config, self.model) {
            (None, Some(model)) => model,
            (config, _) => {
                let config = ConfigArgs { config: config.unwrap_or_default(), overrides: self.overrides };
                return passages(&config, self.shard.get()?, context);
            }
        };
        if self.shard.get()?.is_some() {
            return Err(Error::Usage(
                "--shard: expected a CONFIG; lines of standard input have no shards".into(),
            ));
        }
        at_least_one("--batch-size", self.batch_size)?;
        let encoder = BiEncoder::load(&BiEncoderOptions {
            folder: models::resolve(&model, context.quiet)?,
            pooling: self.pooling,
            dimensions: self.dimensions,
            prompt: match (self.prompt_name, self.prompt) {
                (Some(name), _) => Prompt::Named(name),
                (None, Some(text)) => Prompt::Text(text),
                (None, None) => Prompt::Default,
            },
            precision: self.precision,
            device: self.device,
            max_tokens: self.max_tokens,
            batch_tokens: self.batch_tokens,
        })?;
        Lines::stdin(self.batch_size).each_portion(Ok, |texts| {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            for vector in encoder.encode(&texts)?.rows() {
                context.row(&Answer { vector }, |answer| {
                    answer.vector.iter().map(f32::to_string).collect::<Vec<_>>().join(" ")
                })?;
            }
            Ok(())
        })?;
        Ok(Outcome::default())
    }
}

/// Builds the indexes of vectors of a config, or a shard of their vectors.
fn passages(config: &ConfigArgs, shard: Option<Shard>, context: &Context) -> Result<Outcome> {
    let options = config.load_without_tasks()?;
    match shard {
        Some(shard) => {
            done(&shards::index_shard(&options, Indexing::Vectors, shard, &mut context.observer())?)
        }
        None => indexed(&shards::index_vectors(&options, &mut context.observer())?),
    }
}
