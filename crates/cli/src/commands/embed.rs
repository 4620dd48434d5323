//! `sporran embed`.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use sporran_retriever::dense::{BiEncoder, BiEncoderOptions, Encoder, Prompt};
use sporran_transformers::{DeviceName, Pooling, Precision};

use super::{input::Lines, models, print, print_json};
use crate::error::Result;

/// `sporran embed`
#[derive(Args)]
pub(crate) struct Embed {
    /// The model's folder: of sentence-transformers, of DPR, or another encoder's with --pooling
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// How the weights are kept: f32, or int8, which is faster and less exact
    #[arg(long, default_value = "f32", value_name = "PRECISION")]
    precision: Precision,
    /// Where the model computes: cpu, cuda or cuda:N; on a GPU the precision can be f32, f16 or bf16
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    device: DeviceName,
    /// How the states of a text become its vector, in the place of what the folder says: cls, max, mean, mean_sqrt_len,
    /// weightedmean or lasttoken
    #[arg(long, value_name = "POOLING")]
    pooling: Option<Pooling>,
    /// The folder's prompt that is put before every text, such as query or document; by default the one that the folder
    /// names as its default
    #[arg(long, value_name = "NAME", conflicts_with = "prompt")]
    prompt_name: Option<String>,
    /// What is put before every text, in the place of the folder's prompts
    #[arg(long, value_name = "TEXT", visible_alias = "prefix")]
    prompt: Option<String>,
    /// Values of a vector that are kept, from the first on; by default as many as the folder says
    #[arg(long, value_name = "N")]
    dimensions: Option<usize>,
    /// Tokens of a text, at most; the rest is cut. By default as many as the folder says
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
    /// Tokens that are worked on together, padding included, at most
    #[arg(long, default_value_t = 4096, value_name = "N")]
    batch_tokens: usize,
    /// Print one JSON object a line: {"vector": [..]}
    #[arg(long)]
    json: bool,
}

/// Lines that are read before the first of them is answered.
const LINES: usize = 1024;

#[derive(Serialize)]
struct Answer<'a> {
    vector: &'a [f32],
}

impl Embed {
    pub(crate) fn run(self, quiet: bool) -> Result<()> {
        let encoder = BiEncoder::load(&BiEncoderOptions {
            folder: models::resolve(&self.model, quiet)?,
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
        Lines::stdin(LINES).each_portion(Ok, |texts| {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            for vector in encoder.encode(&texts)?.rows() {
                if self.json {
                    print_json(&Answer { vector })?;
                } else {
                    let values: Vec<String> = vector.iter().map(f32::to_string).collect();
                    print(&format!("{}\n", values.join(" ")))?;
                }
            }
            Ok(())
        })
    }
}
