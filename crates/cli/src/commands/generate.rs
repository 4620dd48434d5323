//! `sporran generate`.

use std::{
    io::{self, BufRead},
    path::PathBuf,
};

use clap::Args;
use serde_json::json;
use sporran_generator::{GeneratedText, ModelOptions, TextGenerator};
use sporran_transformers::{DeviceName, EarlyStopping, GenerationOptions, Precision};

use super::{models, print, print_json};
use crate::error::{Error, Result};

/// `sporran generate`
#[derive(Args)]
pub(crate) struct Generate {
    /// The model: a folder in the Hugging Face layout, a GGUF file, an imported model's name, or hf:ID[@REV]
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// How the weights are kept: f32, or int8, which is faster and less exact
    #[arg(long, default_value = "f32", value_name = "PRECISION")]
    precision: Precision,
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
    /// What the score of a token that was said already is divided by
    #[arg(long, value_name = "X")]
    repetition_penalty: Option<f64>,
    /// Sequences that come back for each input
    #[arg(long, value_name = "N")]
    num_return_sequences: Option<usize>,
    /// End as soon as there are enough finished sequences
    #[arg(long)]
    early_stopping: bool,
    /// Follow the beams in so many groups that avoid each other's tokens
    #[arg(long, value_name = "N", requires = "diversity_penalty")]
    num_beam_groups: Option<usize>,
    /// What a token loses for each earlier group's beam that took it
    #[arg(long, value_name = "X")]
    diversity_penalty: Option<f64>,
    /// Draw tokens by their probability
    #[arg(long)]
    do_sample: bool,
    /// What scores are divided by before tokens are drawn
    #[arg(long, value_name = "X", requires = "do_sample")]
    temperature: Option<f64>,
    /// Draw from this many of the most probable tokens; 0 for all
    #[arg(long, value_name = "N", requires = "do_sample")]
    top_k: Option<usize>,
    /// Draw from the most probable tokens that make up this probability
    #[arg(long, value_name = "P", requires = "do_sample")]
    top_p: Option<f64>,
    /// Decides what is drawn
    #[arg(long, value_name = "N", requires = "do_sample")]
    seed: Option<u64>,
    /// Tokens of an input, at most; what is over is cut off, with a warning
    #[arg(long, value_name = "N", default_value_t = 1024)]
    max_input_tokens: usize,
    /// Inputs that are worked on together, at most; with 1 each line is answered before the next is read
    #[arg(long, default_value_t = 16, value_name = "N")]
    batch_size: usize,
    /// Where the model computes: cpu, cuda or cuda:N; on a GPU the precision can be f32, f16 or bf16
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    device: DeviceName,
    /// Print one JSON object a line: {"outputs": [{"text", "score"}]}
    #[arg(long)]
    json: bool,
}

/// Batches that are read before the first of them is answered, so that lines of like length can go together.
const BATCHES: usize = 32;

impl Generate {
    pub(crate) fn run(mut self, quiet: bool) -> Result<()> {
        for (option, value) in
            [("--batch-size", self.batch_size), ("--max-input-tokens", self.max_input_tokens)]
        {
            if value == 0 {
                return Err(Error::Usage(format!("{option}: expected at least 1, found 0")));
            }
        }
        self.model = models::resolve(&self.model, quiet)?;
        let options = ModelOptions {
            precision: self.precision,
            batch_size: self.batch_size,
            max_tokens: self.max_input_tokens,
            device: self.device,
            ..ModelOptions::new(self.model.clone(), self.generation())
        };
        let generator = TextGenerator::load(&options)?;
        let mut lines = Lines { input: io::stdin().lock(), number: 0 };
        let portion = if self.batch_size == 1 { 1 } else { self.batch_size.saturating_mul(BATCHES) };
        loop {
            let rows = (0..portion).map_while(|_| lines.row(&generator).transpose());
            let rows: Vec<Vec<u32>> = rows.collect::<Result<_>>()?;
            if rows.is_empty() {
                return Ok(());
            }
            for outputs in generator.generate_from(&rows)? {
                self.print(&outputs)?;
            }
        }
    }

    fn generation(&self) -> GenerationOptions {
        GenerationOptions {
            num_beams: self.num_beams,
            max_new_tokens: self.max_new_tokens,
            min_new_tokens: self.min_new_tokens,
            length_penalty: self.length_penalty,
            no_repeat_ngram_size: self.no_repeat_ngram_size,
            repetition_penalty: self.repetition_penalty,
            num_return_sequences: self.num_return_sequences,
            early_stopping: self.early_stopping.then_some(EarlyStopping::Yes),
            num_beam_groups: self.num_beam_groups,
            diversity_penalty: self.diversity_penalty,
            do_sample: self.do_sample.then_some(true),
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            seed: self.seed,
            ..GenerationOptions::default()
        }
    }

    fn print(&self, outputs: &[GeneratedText]) -> Result<()> {
        if self.json {
            let output = |output: &GeneratedText| json!({ "text": output.text, "score": output.score });
            let outputs: Vec<_> = outputs.iter().map(output).collect();
            return print_json(&json!({ "outputs": outputs }));
        }
        outputs.iter().try_for_each(|output| print(&format!("{}\n", output.text.replace('\n', " "))))
    }
}

/// The lines of standard input, with their numbers. An empty line is an empty text; the end of the last line is none.
struct Lines<R> {
    input: R,
    number: usize,
}

impl<R: BufRead> Lines<R> {
    /// The tokens of the next line.
    fn row(&mut self, generator: &TextGenerator) -> Result<Option<Vec<u32>>> {
        let Some(text) = self.text()? else { return Ok(None) };
        let (row, tokens) = generator.encode(&text)?;
        if row.is_empty() {
            return Err(self.wrong("expected at least one token, found none"));
        }
        if tokens > row.len() {
            let (line, read) = (self.number, row.len());
            tracing::warn!("standard input:{line}: the text has {tokens} tokens, of which {read} are read");
        }
        Ok(Some(row))
    }

    fn text(&mut self) -> Result<Option<String>> {
        let mut bytes = Vec::new();
        self.input
            .read_until(b'\n', &mut bytes)
            .map_err(|source| Error::Stream { stream: "standard input", source })?;
        if bytes.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        for end in [b'\n', b'\r'] {
            if bytes.last() == Some(&end) {
                bytes.pop();
            }
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to() + 1;
            self.wrong(&format!("invalid UTF-8 at byte {at}"))
        })?;
        Ok(Some(text))
    }

    fn wrong(&self, what: &str) -> Error {
        Error::Usage(format!("standard input:{}: {what}", self.number))
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    #[test]
    fn lines_end_in_either_way_and_an_empty_line_is_a_text() {
        let mut lines = Lines { input: &b"a\r\n\nb\n \nc"[..], number: 0 };
        let mut texts = Vec::new();
        while let Some(text) = lines.text().unwrap() {
            texts.push(text);
        }
        assert_eq!(texts, ["a", "", "b", " ", "c"]);
        let mut wrong = Lines { input: &b"a\nb\xffc\n"[..], number: 0 };
        wrong.text().unwrap();
        assert_eq!(wrong.text().unwrap_err().to_string(), "standard input:2: invalid UTF-8 at byte 2");
    }
}
