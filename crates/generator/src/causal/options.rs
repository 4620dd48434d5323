//! `[generator]` with `kind = "causal"`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::ChatTemplate;
use sporran_config::{Document, Override, Overrides};
use sporran_transformers::{
    CandleLm, DeviceName, Engine, GenerationOptions, ModelType, Precision, TakesModel,
};

use super::CausalGenerator;
use crate::{
    DemonstrationsOptions, Generator, PromptOptions, Result,
    in_context::{GivenPrompt, answer, check_files, is_off, prompt},
    kind::{GeneratorContext, GeneratorKind, GeneratorModel, generation_overrides},
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
    /// The model's folder in the Hugging Face layout (GPT-2, LLaMA or a decoder of its shape, and the architectures of the
    /// engine `candle`), or a GGUF file.
    pub model: PathBuf,
    /// The engine: `auto`, `packed` or `candle`. `candle` is the crate candle-transformers. It reads one input at a time, by
    /// greedy search or sampling, and a sequence ends at the model's positions or at the window of its attention. Beams are
    /// an error. `auto` is `packed` for the architectures that it has. A training does not read it.
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
    /// Claims and mentions have a choice: the answer to a claim is the one of `SUPPORTS` and `REFUTES` that the text names
    /// first, the answer to a tagged mention the title of one of the passages in the prompt. A text that names no title, by its
    /// words or its rank, chooses that of the best passage.
    #[serde(default, skip_serializing_if = "is_off")]
    pub choose: bool,
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

/// The default is left out of the keys of runs.
fn is_auto(engine: &Engine) -> bool {
    *engine == Engine::Auto
}

pub(super) fn stops() -> Vec<String> {
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
        check_files(key, self.demonstrations.as_ref(), document);
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

    use super::*;
    use crate::causal::tests::mamba;

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
    fn beams_and_int8_of_candle_and_unknown_architectures_are_reported() {
        let folder = mamba();
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
