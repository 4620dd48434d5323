//! `sporran generate`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use sporran_generator::{ChatPrompt, Conversation, GeneratedText, ModelOptions, TextGenerator};
use sporran_transformers::{DeviceName, EarlyStopping, GenerationOptions, Precision};

use super::{input::Lines, models, print, print_json};
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
    /// Write each line as a user's turn by the model's own chat template, and print the answer
    #[arg(long)]
    chat: bool,
    /// The system's turn before each line
    #[arg(long, value_name = "TEXT", requires = "chat", default_value = "", hide_default_value = true)]
    system: String,
    /// Tokens of an input, at most; the rest is cut off, with a warning. By default only learned positions (GPT-2, BART) are a
    /// bound, and they leave room for the answer
    #[arg(long, value_name = "N")]
    max_input_tokens: Option<usize>,
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
            [("--batch-size", Some(self.batch_size)), ("--max-input-tokens", self.max_input_tokens)]
        {
            if value == Some(0) {
                return Err(Error::Usage(format!("{option}: expected at least 1, found 0")));
            }
        }
        self.model = models::resolve(&self.model, quiet)?;
        let options = ModelOptions {
            precision: self.precision,
            batch_size: self.batch_size,
            max_tokens: self.max_input_tokens.unwrap_or(usize::MAX),
            device: self.device,
            ..ModelOptions::new(self.model.clone(), self.generation())
        };
        let generator = TextGenerator::load(&options)?;
        let chat = self.chat.then(|| self.chat_prompt(&generator)).transpose()?;
        let generator = generator.ending_at(chat.as_ref().and_then(ChatPrompt::end));
        let portion = if self.batch_size == 1 { 1 } else { self.batch_size.saturating_mul(BATCHES) };
        let (mut read, mut blank) = (0usize, 0usize);
        let done = Lines::stdin(portion).each_portion(Ok, |texts| {
            let mut rows = Vec::with_capacity(texts.len());
            // The lines before one that cannot be used are answered.
            let mut end = Ok(());
            for text in texts {
                read += 1;
                blank += usize::from(text.trim().is_empty());
                match self.row(&generator, chat.as_ref(), text) {
                    Ok((row, tokens)) if tokens > row.len() => {
                        let kept = row.len();
                        tracing::warn!(
                            "standard input:{read}: the text has {tokens} tokens, of which {kept} are read"
                        );
                        rows.push(row);
                    }
                    Ok((row, _)) => rows.push(row),
                    Err(error) => {
                        end = Err(error);
                        break;
                    }
                }
            }
            generator.generate_from(&rows)?.iter().try_for_each(|outputs| self.print(outputs))?;
            end
        });
        if blank > 0 {
            tracing::warn!("standard input: blank lines have an empty answer: {blank} of {read} lines");
        }
        done
    }

    /// The tokens of a line, as many as the model reads, and how many it has; none of a blank line.
    fn row(
        &self,
        generator: &TextGenerator,
        chat: Option<&ChatPrompt>,
        text: &str,
    ) -> Result<(Vec<u32>, usize)> {
        if text.trim().is_empty() {
            return Ok((Vec::new(), 0));
        }
        Ok(match chat {
            Some(chat) => {
                let conversation =
                    Conversation { system: &self.system, asked: text, ..Conversation::default() };
                chat.encode(&conversation, generator.tokenizer(), generator.max_tokens())?
            }
            None => generator.encode(text)?,
        })
    }

    /// The model's chat template.
    fn chat_prompt(&self, generator: &TextGenerator) -> Result<ChatPrompt> {
        let model = self.model.display();
        if !generator.is_causal() {
            let message =
                format!("--chat: expected a decoder-only model, found an encoder-decoder in {model}");
            return Err(Error::Usage(message));
        }
        let message = format!(
            "--chat: expected a chat template in {model} (chat_template.jinja, tokenizer_config.json, \
             chat_template.json, or a GGUF file's tokenizer.chat_template), found none"
        );
        ChatPrompt::open(&self.model, generator.tokenizer())?.ok_or(Error::Usage(message))
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
