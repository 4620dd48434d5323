//! `sporran generate`.

use std::{
    io::{self, BufRead},
    path::PathBuf,
};

use clap::Args;
use serde_json::json;
use sporran_generator::{ModelOptions, TextGenerator};
use sporran_transformers::{EarlyStopping, GenerationOptions};

use super::{print, print_json};
use crate::error::{Error, Result};

/// `sporran generate`
#[derive(Args)]
pub(crate) struct Generate {
    /// The model's folder, in the Hugging Face layout
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Sequences that are followed for each input; 1 is greedy search
    #[arg(long, value_name = "N")]
    num_beams: Option<usize>,
    /// The most tokens to generate
    #[arg(long, value_name = "N")]
    max_new_tokens: Option<usize>,
    /// The fewest tokens to generate
    #[arg(long, value_name = "N")]
    min_new_tokens: Option<usize>,
    /// The power of the length that a sequence's log-probability is divided by
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    length_penalty: Option<f64>,
    /// Runs of this many tokens occur once at most
    #[arg(long, value_name = "N")]
    no_repeat_ngram_size: Option<usize>,
    /// Sequences that come back for each input
    #[arg(long, value_name = "N")]
    num_return_sequences: Option<usize>,
    /// End as soon as there are enough finished sequences
    #[arg(long)]
    early_stopping: bool,
    /// Inputs that are worked on together, at most
    #[arg(long, default_value_t = 16, value_name = "N")]
    batch_size: usize,
    /// Print one JSON object a line: {"outputs": [{"text", "score"}]}
    #[arg(long)]
    json: bool,
}

/// Lines that are read before the first of them is answered.
const LINES: usize = 512;

impl Generate {
    pub(crate) fn run(self) -> Result<()> {
        let generation = GenerationOptions {
            num_beams: self.num_beams,
            max_new_tokens: self.max_new_tokens,
            min_new_tokens: self.min_new_tokens,
            length_penalty: self.length_penalty,
            no_repeat_ngram_size: self.no_repeat_ngram_size,
            num_return_sequences: self.num_return_sequences,
            early_stopping: self.early_stopping.then_some(EarlyStopping::Yes),
            ..GenerationOptions::default()
        };
        if self.batch_size == 0 {
            return Err(Error::Usage("--batch-size: expected at least 1, found 0".into()));
        }
        let options =
            ModelOptions { batch_size: self.batch_size, ..ModelOptions::new(self.model, generation) };
        let generator = TextGenerator::load(&options)?;
        let mut lines = io::stdin().lock().lines();
        loop {
            let texts: Vec<String> = lines
                .by_ref()
                .take(LINES)
                .collect::<io::Result<_>>()
                .map_err(|source| Error::Stream { stream: "standard input", source })?;
            if texts.is_empty() {
                return Ok(());
            }
            let refs: Vec<&str> = texts.iter().map(String::as_str).collect();
            for outputs in generator.generate(&refs)? {
                if self.json {
                    let outputs: Vec<_> = outputs
                        .iter()
                        .map(|output| json!({ "text": output.text, "score": output.score }))
                        .collect();
                    print_json(&json!({ "outputs": outputs }))?;
                } else {
                    for output in outputs {
                        print(&format!("{}\n", output.text.replace('\n', " ")))?;
                    }
                }
            }
        }
    }
}
