//! `sporran embed`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use serde::Serialize;
use sporran_retriever::dense::{BiEncoder, BiEncoderOptions, Encoder, Prompt};
use sporran_transformers::{DeviceName, Pooling, Precision};

use super::{
    input::{Lines, at_least_one},
    models,
};
use crate::{
    error::Result,
    outcome::{Context, Outcome},
};

/// `sporran embed`
#[derive(Args)]
#[command(after_help = "Example: sporran embed --model models/minilm --json < texts.txt > vectors.jsonl\n\n\
                  With --json, an output line is {\"vector\": [..]}. Output lines have the order of the input lines.")]
pub(crate) struct Embed {
    /// The model: a folder of sentence-transformers, of DPR, or of another encoder with --pooling; an imported model's
    /// name, or hf:ID[@REV]
    #[arg(long, value_name = "MODEL", value_hint = ValueHint::DirPath)]
    model: PathBuf,
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
        at_least_one("--batch-size", self.batch_size)?;
        let encoder = BiEncoder::load(&BiEncoderOptions {
            folder: models::resolve(&self.model, context.quiet)?,
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
