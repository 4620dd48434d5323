//! A decoder-only model that is shown examples in its prompt (Brown et al. 2020, "Language Models are Few-Shot
//! Learners"), then the passages, then the input.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::ChatTemplate;
use sporran_config::{Document, Override, Overrides};
use sporran_kilt::Task;
use sporran_transformers::{
    CandleLm, DeviceName, Engine, GenerationOptions, ModelType, Precision, TakesModel,
};

use crate::{
    ChatPrompt, Conversation, Demonstration, Demonstrations, DemonstrationsOptions, Error, Generation,
    Generator, ModelOptions, Order, Prompt, PromptOptions, Request, Result, RunningBatch, Sink,
    TextGenerator,
    kind::{GeneratorContext, GeneratorKind, GeneratorModel, generation_overrides},
    one_model::{OneModel, answers},
    short_answer::cleaned,
    text::NEW_TOKENS,
};

/// How turns are marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Chat {
    /// By the chat template of the model's folder where it has one, and not at all where it has none.
    #[default]
    Auto,
    /// They are not: examples and the question follow each other, a blank line between them.
    None,
    /// By the chat template of the model's folder, which must have one.
    Template,
    /// `<|im_start|>ROLE`, the text, `<|im_end|>`, as SmolLM2-Instruct and Qwen 2 were trained.
    Chatml,
}

/// `[generator]` with `kind = "causal"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CausalOptions {
    /// The model's folder in the Hugging Face layout (GPT-2, LLaMA, Qwen 2, and the architectures of the engine `candle`),
    /// or a GGUF file.
    pub model: PathBuf,
    /// The engine: `auto`, `packed` or `candle`. `candle` is the crate candle-transformers. It reads one input at a time, by
    /// greedy search or sampling, and a sequence ends at the model's positions or at the window of its attention. Beams are
    /// an error. `auto` is `packed` for the architectures that it has.
    #[serde(default, skip_serializing_if = "is_auto")]
    pub engine: Engine,
    /// `"f32"`, or `"int8"` for models of LLaMA's shape on a CPU; on a GPU `"f16"` or `"bf16"`.
    #[serde(default)]
    pub precision: Precision,
    /// Where the model computes: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// How turns are marked: `auto`, `none`, `template` or `chatml`.
    #[serde(default)]
    pub chat: Chat,
    /// The instruction: the system's turn, or the first paragraph.
    #[serde(default)]
    pub instruction: String,
    /// `[generator.prompt]`: the passages and the input. `max-tokens` is for these alone.
    #[serde(default = "prompt", deserialize_with = "GivenPrompt::deserialize")]
    pub prompt: PromptOptions,
    /// The text before an answer.
    #[serde(default = "answer")]
    pub answer: String,
    /// `[generator.demonstrations]`: examples; none without it.
    #[serde(default)]
    pub demonstrations: Option<DemonstrationsOptions>,
    /// `[generator.generation]`: how the answer is searched for.
    #[serde(default)]
    pub generation: GenerationOptions,
    /// An answer ends before the first of these.
    #[serde(default = "stops")]
    pub stops: Vec<String>,
    /// Tokens of the whole text, at most. Examples are left out, the least similar first, until the text fits into these and,
    /// with the answer, into the positions that the model was trained for. Then the text loses its beginning, or, with a chat
    /// template, the last turn does; models of rotary positions go on beyond those that they were trained for.
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// Inputs that are worked on together, at most.
    #[serde(default = "batch_size")]
    #[schemars(range(min = 1))]
    pub batch_size: usize,
    /// Tokens of a batch, padding included, at most.
    #[serde(default = "batch_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub batch_tokens: usize,
}

fn prompt() -> PromptOptions {
    PromptOptions {
        order: Order::PassagesFirst,
        passage: "{title}: {text}".into(),
        separator: "\n".into(),
        input: "Question: {input}".into(),
        ..PromptOptions::default()
    }
}

/// A prompt with optional fields. Missing fields have this generator's defaults, not those of the type.
#[derive(Deserialize)]
#[serde(remote = "PromptOptions", default = "prompt", deny_unknown_fields, rename_all = "kebab-case")]
struct GivenPrompt {
    passages: usize,
    passage_words: usize,
    passage: String,
    separator: String,
    input: String,
    order: Order,
    mention_context_words: usize,
    max_tokens: usize,
}

/// The default is left out of the keys of runs.
fn is_auto(engine: &Engine) -> bool {
    *engine == Engine::Auto
}

fn answer() -> String {
    "Answer:".into()
}

fn stops() -> Vec<String> {
    vec!["\n".into()]
}

fn max_tokens() -> usize {
    1024
}

fn batch_size() -> usize {
    8
}

fn batch_tokens() -> usize {
    8192
}

/// A decoder-only model that answers in context.
pub struct CausalGenerator {
    prompt: Prompt,
    demonstrations: Option<Demonstrations>,
    model: TextGenerator,
    /// Tokens of a text with examples, at most.
    room: usize,
    /// The model's own template, where turns are marked by it.
    template: Option<ChatPrompt>,
    options: CausalOptions,
}

impl CausalGenerator {
    /// Loads the model and the examples.
    ///
    /// # Errors
    /// An error in the model, a file of examples or an option.
    pub fn load(options: &CausalOptions) -> Result<Self> {
        Self::showing(options, options.demonstrations.as_ref().map(Demonstrations::load).transpose()?)
    }

    /// Loads the model, which is shown these examples instead of those that the options name.
    ///
    /// # Errors
    /// An error in the model or an option.
    pub fn showing(options: &CausalOptions, demonstrations: Option<Demonstrations>) -> Result<Self> {
        if options.max_tokens < 2 {
            let found = options.max_tokens.to_string();
            return Err(Error::Option { option: "max-tokens", expected: "at least 2", found });
        }
        let model = TextGenerator::load(&ModelOptions {
            folder: options.model.clone(),
            precision: options.precision,
            generation: options.generation.clone(),
            max_tokens: options.max_tokens,
            batch_size: options.batch_size,
            batch_tokens: options.batch_tokens,
            device: options.device,
            engine: options.engine,
            stops: options.stops.clone(),
        })?;
        if !model.is_causal() {
            let found =
                format!("an encoder-decoder in {}; use `kind = \"seq2seq\"`", options.model.display());
            return Err(Error::Option { option: "model", expected: "a decoder-only model", found });
        }
        let prompt = Prompt::new(options.prompt.clone())?;
        let answer = options.generation.max_new_tokens.unwrap_or(NEW_TOKENS);
        let trained = model.trained_length().saturating_sub(answer);
        let room = trained.min(model.max_tokens()).max(1);
        let template = match options.chat {
            Chat::Auto | Chat::Template => ChatPrompt::open(&options.model, model.tokenizer())?,
            Chat::None | Chat::Chatml => None,
        };
        if options.chat == Chat::Template && template.is_none() {
            let found = format!("`template`, and {} has none", options.model.display());
            return Err(Error::Option { option: "chat", expected: "a model with a chat template", found });
        }
        let model = model.ending_at(template.as_ref().and_then(ChatPrompt::end));
        Ok(Self { prompt, demonstrations, model, room, template, options: options.clone() })
    }

    /// The turns of a request: the examples that there is room for, and the question.
    fn turns(
        &self,
        request: &Request<'_>,
        shown: &[&Demonstration],
    ) -> Result<(Vec<(String, String)>, String)> {
        let tokenizer = self.model.tokenizer();
        let turn = |request: &Request<'_>| self.prompt.text(request, tokenizer);
        let asked = turn(request)?;
        let examples: Result<Vec<(String, String)>> = shown
            .iter()
            .map(|shown| {
                let output = match (&self.template, self.options.answer.trim_end()) {
                    (Some(_), label) if !label.is_empty() => format!("{label} {}", shown.answer),
                    _ => shown.answer.clone(),
                };
                Ok((turn(&Request { query: &shown.query, passages: &[] })?, output))
            })
            .collect();
        let mut examples = examples?;
        while !examples.is_empty() {
            let text = self.join(&examples, &asked)?;
            let tokens = match self.template {
                Some(_) => tokenizer.encode_plain(&text)?,
                None => tokenizer.encode(&text, None)?,
            };
            if tokens.len() <= self.room {
                break;
            }
            examples.remove(0);
        }
        Ok((examples, asked))
    }

    /// The text that the model reads for a request.
    fn text(&self, request: &Request<'_>, shown: &[&Demonstration]) -> Result<String> {
        let (examples, asked) = self.turns(request, shown)?;
        self.join(&examples, &asked)
    }

    /// The tokens of that text, as many as the model reads at most.
    fn row(&self, request: &Request<'_>, shown: &[&Demonstration]) -> Result<Vec<u32>> {
        let (examples, asked) = self.turns(request, shown)?;
        let (row, tokens) = match &self.template {
            Some(template) => {
                let conversation = self.conversation(&examples, &asked);
                template.encode(&conversation, self.model.tokenizer(), self.model.max_tokens())?
            }
            None => self.model.encode(&self.join(&examples, &asked)?)?,
        };
        self.model.note_cut(tokens, row.len());
        Ok(row)
    }

    fn conversation<'a>(&'a self, turns: &'a [(String, String)], asked: &'a str) -> Conversation<'a> {
        let CausalOptions { instruction, answer, .. } = &self.options;
        Conversation { system: instruction, turns, asked, answer: answer.trim_end() }
    }

    fn join(&self, examples: &[(String, String)], asked: &str) -> Result<String> {
        let CausalOptions { chat, instruction, answer, .. } = &self.options;
        if let Some(template) = &self.template {
            return template.text(&self.conversation(examples, asked));
        }
        let asked = quoted(asked);
        let examples = examples.iter().map(|(input, output)| (quoted(input), quoted(output)));
        let mut text = String::new();
        match chat {
            Chat::Auto | Chat::Template | Chat::None => {
                if !instruction.is_empty() {
                    text.push_str(&format!("{instruction}\n\n"));
                }
                for (input, output) in examples {
                    text.push_str(&format!("{input}\n{answer} {output}\n\n"));
                }
                text.push_str(&format!("{asked}\n{answer}"));
            }
            Chat::Chatml => {
                let mut turn = |role: &str, content: &str| {
                    text.push_str(&format!("<|im_start|>{role}\n{content}<|im_end|>\n"));
                };
                if !instruction.is_empty() {
                    turn("system", instruction);
                }
                let answer = if answer.is_empty() { String::new() } else { format!("{answer} ") };
                for (input, output) in examples {
                    turn("user", &input);
                    turn("assistant", &format!("{answer}{output}"));
                }
                turn("user", &asked);
                text.push_str(&format!("<|im_start|>assistant\n{}", answer.trim_end()));
            }
        }
        Ok(text)
    }
}

/// Text that cannot end a turn: the marks of turns are split.
fn quoted(text: &str) -> String {
    text.replace("<|", "< |")
}

impl OneModel for CausalGenerator {
    fn model(&self) -> &TextGenerator {
        &self.model
    }

    fn rows(&self, requests: &[Request<'_>]) -> Result<Vec<Vec<u32>>> {
        let queries: Vec<_> = requests.iter().map(|request| request.query).collect();
        let shown = match &self.demonstrations {
            Some(demonstrations) => demonstrations.choose(&queries)?,
            None => vec![Vec::new(); queries.len()],
        };
        requests.iter().zip(&shown).map(|(request, shown)| self.row(request, shown)).collect()
    }

    fn answer(&self, task: Option<Task>, text: &str) -> String {
        cleaned(text, &self.options.answer, task)
    }
}

impl Generator for CausalGenerator {
    fn generate(&self, requests: &[Request<'_>]) -> Result<Vec<Generation>> {
        answers(self, requests, None)
    }

    fn generate_into(&self, requests: &[Request<'_>], sink: &dyn Sink) -> Result<Vec<Generation>> {
        answers(self, requests, Some(sink))
    }

    fn passages(&self) -> usize {
        self.prompt.options().passages
    }

    fn kind(&self) -> &'static str {
        "causal"
    }

    fn running_batch(&self) -> Result<RunningBatch<'_>> {
        RunningBatch::over(self)
    }

    fn prompts(&self, request: &Request<'_>) -> Result<Vec<String>> {
        let shown = match &self.demonstrations {
            Some(demonstrations) => demonstrations.choose(&[request.query])?.pop().unwrap_or_default(),
            None => Vec::new(),
        };
        Ok(vec![self.text(request, &shown)?])
    }
}

impl TakesModel for CausalOptions {
    const TAKES: &'static [ModelType] = &[ModelType::DecoderOnly];
}

impl GeneratorKind for CausalOptions {
    fn models(&self, key: &str) -> Vec<GeneratorModel<'_>> {
        GeneratorModel::only::<Self>(key, &self.model, (self.device, self.precision), self.prompt.passages)
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        if self.model.exists() {
            match self.engine.is_candle(&self.model) {
                Ok(true) => {
                    if let Err(error) = CandleLm::check_options(&self.generation) {
                        document.report_key(&format!("{key}.generation"), error.to_string());
                    }
                    if self.precision == Precision::Int8 {
                        let message = "expected `f32` with the engine `candle`, found `int8`".to_owned();
                        document.report_key(&format!("{key}.precision"), message);
                    }
                }
                Ok(false) => {}
                Err(error) => document.report_key(&format!("{key}.model"), error.to_string()),
            }
        }
        for file in self.demonstrations.iter().flat_map(|shown| &shown.files).filter(|file| !file.is_file()) {
            let message = format!("no file {}", file.display());
            document.report_key(&format!("{key}.demonstrations.files"), message);
        }
        if self.chat == Chat::Template && self.model.exists() {
            let message = match ChatTemplate::open(&self.model) {
                Ok(Some(_)) => return,
                Ok(None) => format!("{} has no chat template", self.model.display()),
                Err(error) => error.to_string(),
            };
            document.report_key(&format!("{key}.chat"), message);
        }
    }

    /// Adds another marking of turns than the folder's template, and another system message than the template's.
    fn overrides(&self, key: &str, found: &mut Overrides) -> Result<()> {
        if let Some(template) = ChatTemplate::open(&self.model)? {
            let mut push = |option: &str, folder: String, config: &str| {
                found.insert(format!("{key}.{option}"), Override { folder, config: config.to_owned() });
            };
            match self.chat {
                Chat::None => push("chat", "template".to_owned(), "none"),
                Chat::Chatml => push("chat", "template".to_owned(), "chatml"),
                Chat::Auto | Chat::Template => {}
            }
            if let Some(system) = template.default_system()
                && !self.instruction.is_empty()
                && self.instruction != system
            {
                push("instruction", system, &self.instruction);
            }
        }
        generation_overrides(&self.generation, &self.model, key, found)
    }

    fn open(&self, _: &GeneratorContext) -> Result<Box<dyn Generator>> {
        Ok(Box::new(CausalGenerator::load(self)?))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sporran_kilt::Query;

    use super::*;

    fn options(chat: Chat) -> CausalOptions {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/llama");
        CausalOptions {
            model: data,
            precision: Precision::F32,
            device: DeviceName::Cpu,
            engine: Engine::Auto,
            chat,
            instruction: "Be short.".into(),
            prompt: PromptOptions { max_tokens: 200, ..prompt() },
            answer: answer(),
            demonstrations: None,
            generation: GenerationOptions { max_new_tokens: Some(4), ..GenerationOptions::default() },
            stops: stops(),
            max_tokens: 400,
            batch_size: 2,
            batch_tokens: 1000,
        }
    }

    fn pair(input: &str, answer: &str) -> (String, String) {
        (input.into(), answer.into())
    }

    #[test]
    fn a_prompt_that_is_given_in_part_keeps_the_other_defaults_of_this_generator() {
        let read = |json: serde_json::Value| serde_json::from_value::<CausalOptions>(json);
        let options = read(serde_json::json!({ "model": "m", "prompt": { "passages": 1 } })).unwrap();
        assert_eq!(options.prompt, PromptOptions { passages: 1, ..prompt() });
        let wrong = read(serde_json::json!({ "model": "m", "prompt": { "passage-count": 1 } })).unwrap_err();
        assert!(wrong.to_string().contains("unknown field `passage-count`"), "{wrong}");
        let wrong = read(serde_json::json!({ "model": "m", "prompt": { "passages": -1 } })).unwrap_err();
        assert!(wrong.to_string().contains("invalid value: integer `-1`"), "{wrong}");
    }

    #[test]
    fn examples_precede_the_question_in_turns_or_in_lines() {
        let examples = [pair("where?", "Oslo"), pair("when?", "1920")];
        let asked = "who <|im_end|> wrote?";
        let lines = CausalGenerator::load(&options(Chat::None)).unwrap();
        let expected =
            "Be short.\n\nwhere?\nAnswer: Oslo\n\nwhen?\nAnswer: 1920\n\nwho < |im_end|> wrote?\nAnswer:";
        assert_eq!(lines.join(&examples, asked).unwrap(), expected);
        let turns = CausalGenerator::load(&options(Chat::Chatml)).unwrap();
        let expected = "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nwhere?<|im_end|>\n\
            <|im_start|>assistant\nAnswer: Oslo<|im_end|>\n<|im_start|>user\nwho < |im_end|> wrote?<|im_end|>\n\
            <|im_start|>assistant\nAnswer:";
        assert_eq!(turns.join(&examples[..1], asked).unwrap(), expected);
    }

    /// The fixture with a different chat template.
    fn with_template(text: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in ["config.json", "model.safetensors", "vocab.json", "merges.txt", "tokenizer_config.json"]
        {
            std::fs::copy(options(Chat::None).model.join(file), folder.path().join(file)).unwrap();
        }
        std::fs::write(folder.path().join("chat_template.jinja"), text).unwrap();
        folder
    }

    #[test]
    fn a_folders_own_template_marks_the_turns_unless_the_options_say_otherwise() {
        let turns = "{% for message in messages %}{{ message.role[0] }}={{ message.content }};{% endfor %}a=";
        let folder = with_template(turns);
        let load = |chat, folder: &Path| {
            CausalGenerator::load(&CausalOptions { model: folder.into(), ..options(chat) })
        };
        let examples = [pair("where?", "Answer: Oslo")];
        let template = "s=Be short.;u=where?;a=Answer: Oslo;u=who?;a=Answer:";
        for chat in [Chat::Auto, Chat::Template] {
            let generator = load(chat, folder.path()).unwrap();
            assert_eq!(generator.join(&examples, "who?").unwrap(), template);
        }
        let lines = "Be short.\n\nwho?\nAnswer:";
        assert_eq!(load(Chat::None, folder.path()).unwrap().join(&[], "who?").unwrap(), lines);
        // A folder without a template.
        let bare = options(Chat::None).model;
        assert_eq!(load(Chat::Auto, &bare).unwrap().join(&[], "who?").unwrap(), lines);
        let error = load(Chat::Template, &bare).err().unwrap().to_string();
        assert!(
            error.starts_with("chat: expected a model with a chat template, found `template`"),
            "{error}"
        );
        // The folder's template must be usable.
        assert!(load(Chat::Auto, with_template("{% if %}").path()).is_err());
    }

    #[test]
    fn examples_and_long_questions_give_way_inside_a_template() {
        let turns = "{% for message in messages %}{{ message.role[0] }}={{ message.content }};{% endfor %}a=";
        let folder = with_template(turns);
        let mut options = CausalOptions { model: folder.path().into(), ..options(Chat::Auto) };
        (options.instruction, options.max_tokens) = (String::new(), 60);
        let generator = CausalGenerator::load(&options).unwrap();
        let query = Query::of_text(2i64, "who was it that wrote the book of the author? ".repeat(9));
        let request = Request { query: &query, passages: &[] };
        let shown = Demonstration { query: Query::of_text(1i64, "when?"), answer: "1920".into() };
        let row = generator.row(&request, &[&shown]).unwrap();
        let text = generator.model.tokenizer().decode(&row).unwrap();
        assert!(row.len() <= 60 && text.starts_with("u=") && text.ends_with("author? ;a=Answer:"), "{text}");
        let short = Query::of_text(3i64, "who?");
        let text = generator.text(&Request { query: &short, passages: &[] }, &[&shown]).unwrap();
        assert_eq!(text, "u=Question: when?;a=Answer: 1920;u=Question: who?;a=Answer:");
    }

    #[test]
    fn the_least_similar_examples_give_way_where_the_text_is_too_long() {
        let query = Query::of_text(2i64, "who?");
        let request = Request { query: &query, passages: &[] };
        let example = |input: &str, answer: &str| Demonstration {
            query: Query::of_text(1i64, input),
            answer: answer.into(),
        };
        let (a, b) = (example("where was that again?", "Oslo"), example("when?", "1920"));
        let short = |max_tokens| {
            let (instruction, answer) = (String::new(), "A:".into());
            CausalGenerator::load(&CausalOptions { max_tokens, instruction, answer, ..options(Chat::None) })
        };
        let whole = short(400).unwrap();
        // The fixture has 64 positions, four of which are the answer's.
        assert_eq!(whole.room, 60);
        let with_one = "Question: when?\nA: 1920\n\nQuestion: who?\nA:";
        let one = whole.model.tokenizer().encode(with_one, None).unwrap().len();
        let tight = short(one).unwrap();
        assert_eq!(tight.text(&request, &[&a, &b]).unwrap(), with_one);
        assert_eq!(tight.text(&request, &[&a]).unwrap(), "Question: who?\nA:");
    }

    #[test]
    fn a_batch_equals_its_single_members_and_ends_before_a_stop() {
        let generator = CausalGenerator::load(&options(Chat::None)).unwrap();
        let queries = [Query::of_text(1i64, "who?"), Query::of_text(2i64, "where was it, and when?")];
        let requests: Vec<_> = queries.iter().map(|query| Request { query, passages: &[] }).collect();
        let together = generator.generate(&requests).unwrap();
        for (request, together) in requests.iter().zip(&together) {
            let alone = generator.generate(std::slice::from_ref(request)).unwrap();
            assert_eq!(alone[0].text, together.text);
            assert!(!together.text.contains('\n'));
        }
    }

    /// The folder of a tiny Phi, with a tokenizer of 40 words.
    fn phi() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/candle/phi");
        for name in ["config.json", "generation_config.json", "model.safetensors"] {
            std::fs::copy(data.join(name), folder.path().join(name)).unwrap();
        }
        let words = ["[UNK]", "Question", ":", "who", "?", "where", "Answer"];
        let word = |at: usize| words.get(at).map_or_else(|| format!("w{at}"), |word| (*word).to_owned());
        let vocab: serde_json::Map<String, serde_json::Value> =
            (0..40).map(|at| (word(at), at.into())).collect();
        let tokenizer = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"},
        });
        std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
        folder
    }

    #[test]
    fn a_model_of_candle_answers_one_request_after_another() {
        let folder = phi();
        let options = CausalOptions { model: folder.path().into(), ..options(Chat::None) };
        let generator = CausalGenerator::load(&options).unwrap();
        let queries = [Query::of_text(1i64, "who?"), Query::of_text(2i64, "where? who?")];
        let requests: Vec<_> = queries.iter().map(|query| Request { query, passages: &[] }).collect();
        let together = generator.generate(&requests).unwrap();
        for (request, together) in requests.iter().zip(&together) {
            let alone = generator.generate(std::slice::from_ref(request)).unwrap();
            assert_eq!(alone[0].text, together.text);
        }
        let packed = CausalGenerator::load(&CausalOptions { engine: Engine::Packed, ..options.clone() });
        let error = packed.err().unwrap().to_string();
        assert!(error.contains("field `model_type`") && error.contains("`phi`"), "{error}");
        let mut beams = options;
        beams.generation.num_beams = Some(2);
        let error = CausalGenerator::load(&beams).err().unwrap().to_string();
        assert!(error.contains("`num-beams`: expected 1 with the engine `candle`"), "{error}");
    }

    #[test]
    fn beams_and_int8_of_candle_and_unknown_architectures_are_reported() {
        let folder = phi();
        let check = |keys: &str| {
            let model = folder.path();
            let keys = format!("[generator]\nkind = \"causal\"\nmodel = {model:?}\n{keys}");
            let text = sporran_config::Text::new(Path::new("c.toml"), keys, &[]);
            let mut document = Document::parse(&text);
            let written = document.clone();
            let generator: crate::GeneratorOptions = document.read_stage("generator").ok().flatten().unwrap();
            document.restore(written);
            generator.check("generator", &mut document);
            document.into_diagnostics().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(check("").is_empty());
        let found = check("generation.num-beams = 4\n");
        assert!(found.len() == 1 && found[0].contains("expected 1 with the engine `candle`"), "{found:?}");
        let found = check("precision = \"int8\"\n");
        assert!(found.len() == 1 && found[0].contains("`generator.precision`"), "{found:?}");
        std::fs::write(folder.path().join("config.json"), r#"{"model_type": "rwkv9"}"#).unwrap();
        let found = check("");
        assert!(found.len() == 1 && found[0].contains("or, with the engine `candle`"), "{found:?}");
    }
}
