//! `sporran generate`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use serde_json::json;
use sporran_generator::{ChatPrompt, Conversation, GeneratedText, ModelOptions, TextGenerator};
use sporran_kilt::counted;
use sporran_transformers::{DeviceName, EarlyStopping, Engine, GenerationOptions, Precision};

use super::{
    input::{Lines, at_least_one},
    models,
};
use crate::{
    error::{Error, Result},
    outcome::{Context, Outcome},
};

/// `sporran generate`
#[derive(Args)]
#[command(
    after_help = "Example: sporran generate --model models/minikilt-reader --num-beams 4 --json < questions.txt\n\n\
                  With --json, an output line is {\"outputs\": [{\"text\", \"score\"}]}. Output lines have the order of the input lines."
)]
pub(crate) struct Generate {
    /// The model: a folder in the Hugging Face layout, a GGUF file, an imported model's name, or hf:ID[@REV]
    #[arg(long, value_name = "MODEL", value_hint = ValueHint::AnyPath)]
    model: PathBuf,
    /// Data type of the weights: f32, or int8, which is faster and less exact; on a GPU f32, f16 or bf16
    #[arg(long, default_value = "f32", value_name = "PRECISION")]
    precision: Precision,
    /// Engine of a decoder-only model: auto, packed, or candle, which has more architectures and no beams
    #[arg(long, default_value = "auto", value_name = "ENGINE")]
    engine: Engine,
    /// Number of beams; 1 is greedy search
    #[arg(long, value_name = "N")]
    num_beams: Option<usize>,
    /// Maximum number of new tokens
    #[arg(long, value_name = "N")]
    max_new_tokens: Option<usize>,
    /// Minimum number of new tokens
    #[arg(long, value_name = "N")]
    min_new_tokens: Option<usize>,
    /// Exponent of the length by which a sequence's log-probability is divided
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    length_penalty: Option<f64>,
    /// N-grams of this size occur once at most
    #[arg(long, value_name = "N")]
    no_repeat_ngram_size: Option<usize>,
    /// Divisor for the scores of tokens that have already occurred
    #[arg(long, value_name = "X")]
    repetition_penalty: Option<f64>,
    /// Sequences returned for each input
    #[arg(long, value_name = "N")]
    num_return_sequences: Option<usize>,
    /// Stop as soon as there are as many finished sequences as beams
    #[arg(long)]
    early_stopping: bool,
    /// Number of beam groups; a later group avoids the tokens of earlier ones
    #[arg(long, value_name = "N", requires = "diversity_penalty")]
    num_beam_groups: Option<usize>,
    /// Subtracted from a token's score for each beam of an earlier group that chose it
    #[arg(long, value_name = "X")]
    diversity_penalty: Option<f64>,
    /// Sample tokens by their probability
    #[arg(long)]
    do_sample: bool,
    /// Divisor for scores before sampling
    #[arg(long, value_name = "X", requires = "do_sample")]
    temperature: Option<f64>,
    /// Sample from the N most probable tokens; 0 for all
    #[arg(long, value_name = "N", requires = "do_sample")]
    top_k: Option<usize>,
    /// Sample from the most probable tokens whose probabilities add up to P
    #[arg(long, value_name = "P", requires = "do_sample")]
    top_p: Option<f64>,
    /// Sample from the tokens whose probability is at least P of the largest one
    #[arg(long, value_name = "P", requires = "do_sample")]
    min_p: Option<f64>,
    /// Seed of sampling
    #[arg(long, value_name = "N", requires = "do_sample")]
    seed: Option<u64>,
    /// Send each line as a user turn in the model's chat template, and print the answer
    #[arg(long)]
    chat: bool,
    /// System turn before each line. A chat template without a place for one has the text before the line in the user's turn,
    /// with a warning
    #[arg(long, value_name = "TEXT", requires = "chat", default_value = "", hide_default_value = true)]
    system: String,
    /// Maximum tokens of an input; the rest is cut, with a warning. By default only learned positions (GPT-2, BART) limit
    /// inputs, and leave room for the answer
    #[arg(long, value_name = "N")]
    max_input_tokens: Option<usize>,
    /// Maximum inputs of a batch; with 1, each line is answered before the next is read
    #[arg(long, default_value_t = 16, value_name = "N")]
    batch_size: usize,
    /// Device: cpu, cuda or cuda:N
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    device: DeviceName,
}

/// Batches to read before the first one is answered, so that lines of similar length share a batch.
const BATCHES: usize = 32;

impl Generate {
    pub(crate) fn run(mut self, context: &Context) -> Result<Outcome> {
        at_least_one("--batch-size", self.batch_size)?;
        self.max_input_tokens.map_or(Ok(()), |tokens| at_least_one("--max-input-tokens", tokens))?;
        self.model = models::resolve(&self.model, context.quiet)?;
        let options = ModelOptions {
            engine: self.engine,
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
            // Lines before an unusable line are still answered.
            let mut end = Ok(());
            for text in texts {
                read += 1;
                blank += usize::from(text.trim().is_empty());
                match self.row(&generator, chat.as_ref(), text) {
                    Ok((row, tokens)) if tokens > row.len() => {
                        let kept = row.len();
                        tracing::warn!(
                            "standard input:{read}: the model reads only {kept} of the {tokens} tokens of the text"
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
            generator.generate_from(&rows, None)?.iter().try_for_each(|outputs| print(context, outputs))?;
            end
        });
        if blank > 0 {
            tracing::warn!(
                "standard input: blank lines have an empty answer: {blank} of {}",
                counted(read as u64, "line")
            );
        }
        done.map(|()| Outcome::default())
    }

    /// The tokens of a line, cut to the model's maximum, and their number before the cut. A blank line has none.
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
            min_p: self.min_p,
            seed: self.seed,
            ..GenerationOptions::default()
        }
    }
}

/// One line of JSON, or one line of text for each sequence.
fn print(context: &Context, outputs: &[GeneratedText]) -> Result<()> {
    let value = |output: &GeneratedText| json!({ "text": output.text, "score": output.score });
    let text = |output: &GeneratedText| output.text.replace('\n', " ");
    context.row(&json!({ "outputs": outputs.iter().map(value).collect::<Vec<_>>() }), |_| {
        outputs.iter().map(text).collect::<Vec<_>>().join("\n")
    })
}
