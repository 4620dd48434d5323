//! A decoder-only model that is shown examples in its prompt (Brown et al. 2020, "Language Models are Few-Shot
//! Learners"), then the passages, then the input; or one that was trained on such prompts.

mod options;
mod prompt;
mod train;

pub use options::{CausalOptions, Chat};

use self::prompt::CausalPrompt;
use crate::{
    Demonstration, Demonstrations, Error, Generation, Generator, ModelOptions, Request, Result, RunningBatch,
    Sink, TextGenerator,
    one_model::{Asked, OneModel, answers},
    short_answer::cleaned,
};

/// A decoder-only model that answers in context.
pub struct CausalGenerator {
    prompt: CausalPrompt,
    demonstrations: Option<Demonstrations>,
    model: TextGenerator,
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
        let Some((causal, generation)) = model.causal() else {
            let found =
                format!("an encoder-decoder in {}; use `kind = \"seq2seq\"`", options.model.display());
            return Err(Error::Option { option: "model", expected: "a decoder-only model", found });
        };
        let tokenizer = model.tokenizer().clone();
        let prompt = CausalPrompt::new(options, &options.model, tokenizer, causal, &generation)?;
        let model = model.ending_at(prompt.end());
        Ok(Self { prompt, demonstrations, model, options: options.clone() })
    }
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
        let row = |(request, shown): (&Request<'_>, &Vec<&Demonstration>)| {
            let (row, tokens) = self.prompt.row(request, shown)?;
            self.model.note_cut(tokens, row.len());
            Ok(row)
        };
        requests.iter().zip(&shown).map(row).collect()
    }

    fn answer(&self, asked: &Asked, text: &str) -> (String, Vec<usize>) {
        let text = cleaned(text, &self.options.answer, asked.task());
        if self.options.choose { asked.chosen(text) } else { asked.free(text) }
    }
}

impl Generator for CausalGenerator {
    fn generate(&self, requests: &[Request<'_>]) -> Result<Vec<Generation>> {
        answers(self, requests, None)
    }

    fn generate_into(&self, requests: &[Request<'_>], sink: &dyn Sink) -> Result<Vec<Generation>> {
        answers(self, requests, Some(sink))
    }

    fn samples(&self) -> bool {
        self.model.samples()
    }

    fn passages(&self) -> usize {
        self.prompt.passages()
    }

    fn kind(&self) -> &'static str {
        "causal"
    }

    fn running_batch(&self) -> Result<RunningBatch<'_>> {
        RunningBatch::over(self)
    }

    fn prompt_tokens(&self, requests: &[Request<'_>]) -> Result<Vec<usize>> {
        Ok(self.rows(requests)?.iter().map(Vec::len).collect())
    }

    fn prompts(&self, request: &Request<'_>) -> Result<Vec<String>> {
        let shown = match &self.demonstrations {
            Some(demonstrations) => demonstrations.choose(&[request.query])?.pop().unwrap_or_default(),
            None => Vec::new(),
        };
        Ok(vec![self.prompt.text(request, &shown)?])
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sporran_kilt::Query;
    use sporran_transformers::{DeviceName, Engine, GenerationOptions, Precision};

    use super::{options::stops, *};
    use crate::{
        PromptOptions,
        in_context::{answer, prompt},
    };

    pub(super) fn options(chat: Chat) -> CausalOptions {
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
            choose: false,
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
    fn examples_precede_the_question_in_turns_or_in_lines() {
        let examples = [pair("where?", "Oslo"), pair("when?", "1920")];
        let asked = "who <|im_end|> wrote?";
        let lines = CausalGenerator::load(&options(Chat::None)).unwrap();
        let expected =
            "Be short.\n\nwhere?\nAnswer: Oslo\n\nwhen?\nAnswer: 1920\n\nwho < |im_end|> wrote?\nAnswer:";
        assert_eq!(lines.prompt.join("Be short.", &examples, asked).unwrap(), expected);
        let turns = CausalGenerator::load(&options(Chat::Chatml)).unwrap();
        let expected = "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nwhere?<|im_end|>\n\
            <|im_start|>assistant\nAnswer: Oslo<|im_end|>\n<|im_start|>user\nwho < |im_end|> wrote?<|im_end|>\n\
            <|im_start|>assistant\nAnswer:";
        assert_eq!(turns.prompt.join("Be short.", &examples[..1], asked).unwrap(), expected);
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
            assert_eq!(generator.prompt.join("Be short.", &examples, "who?").unwrap(), template);
        }
        let lines = "Be short.\n\nwho?\nAnswer:";
        assert_eq!(
            load(Chat::None, folder.path()).unwrap().prompt.join("Be short.", &[], "who?").unwrap(),
            lines
        );
        // A folder without a template.
        let bare = options(Chat::None).model;
        assert_eq!(load(Chat::Auto, &bare).unwrap().prompt.join("Be short.", &[], "who?").unwrap(), lines);
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
        let (row, _) = generator.prompt.row(&request, &[&shown]).unwrap();
        let text = generator.model.tokenizer().decode(&row).unwrap();
        assert!(row.len() <= 60 && text.starts_with("u=") && text.ends_with("author? ;a=Answer:"), "{text}");
        let short = Query::of_text(3i64, "who?");
        let text = generator.prompt.text(&Request { query: &short, passages: &[] }, &[&shown]).unwrap();
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
        assert_eq!(whole.prompt.room, 60);
        let with_one = "Question: when?\nA: 1920\n\nQuestion: who?\nA:";
        let one = whole.model.tokenizer().encode(with_one, None).unwrap().len();
        let tight = short(one).unwrap();
        assert_eq!(tight.prompt.text(&request, &[&a, &b]).unwrap(), with_one);
        assert_eq!(tight.prompt.text(&request, &[&a]).unwrap(), "Question: who?\nA:");
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

    /// The folder of a tiny Mamba, with a tokenizer of 40 words.
    pub(super) fn mamba() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/candle/mamba");
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
        let folder = mamba();
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
        assert!(error.contains("field `model_type`") && error.contains("`mamba`"), "{error}");
        let mut beams = options;
        beams.generation.num_beams = Some(2);
        let error = CausalGenerator::load(&beams).err().unwrap().to_string();
        assert!(error.contains("`num-beams`: expected 1 with the engine `candle`"), "{error}");
    }
}
