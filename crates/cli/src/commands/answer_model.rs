//! The options of a model that writes answers.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use sporran_pipeline::{
    UserOptions,
    workflows::answer::{AskOptions, Endpoint},
};
use sporran_transformers::{DeviceName, Precision};

use crate::{error::Result, outcome::Context, settings};

/// A generator, and how models compute.
#[derive(Args)]
pub(super) struct AnswerModel {
    /// Generator: a GGUF file, a folder, an imported model's name, or hf:ID[@REV]
    #[arg(long, value_name = "MODEL", value_hint = ValueHint::AnyPath)]
    model: Option<PathBuf>,
    /// Generator at an HTTP endpoint in the form of OpenAI's API, such as http://localhost:8000/v1
    #[arg(long, value_name = "URL", conflicts_with = "model")]
    llm: Option<String>,
    /// Name of the model at the endpoint
    #[arg(long, value_name = "NAME", requires = "llm", default_value = "default")]
    llm_model: String,
    /// Environment variable with the key of the endpoint
    #[arg(long, value_name = "VARIABLE", requires = "llm")]
    llm_key_env: Option<String>,
    /// Data type of the models' weights: f32, or int8, which is faster and less exact; on a GPU f32, f16 or bf16
    #[arg(long, default_value = "f32", value_name = "PRECISION")]
    pub(super) precision: Precision,
    /// Device: cpu, cuda or cuda:N
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub(super) device: DeviceName,
}

impl AnswerModel {
    /// Whether the command line names a generator.
    pub(super) fn is_named(&self) -> bool {
        self.model.is_some() || self.llm.is_some()
    }

    /// The keys of the user's config for the generator, if the command line names none.
    pub(super) fn users_keys(&self) -> Vec<&'static str> {
        if self.is_named() { Vec::new() } else { vec!["model", "llm"] }
    }

    /// The options with this generator; with that of the user's config if the command line names none.
    ///
    /// # Errors
    /// A model that cannot be found.
    pub(super) fn of(
        &self,
        options: AskOptions,
        user: Option<&UserOptions>,
        context: &Context,
    ) -> Result<AskOptions> {
        let user = user.filter(|_| !self.is_named());
        let named = self.llm.clone().map(|url| Endpoint {
            url,
            model: self.llm_model.clone(),
            key_variable: self.llm_key_env.clone(),
        });
        let own = user.and_then(|user| user.llm.clone()).map(|own| Endpoint {
            url: own.url,
            model: own.model,
            key_variable: own.api_key_env,
        });
        let (endpoint, default) = (named.or(own), user.and_then(|user| user.model.as_deref()));
        let generator = settings::resolve(self.model.as_deref(), default, "model", context)?;
        Ok(AskOptions { generator, endpoint, precision: self.precision, device: self.device, ..options })
    }
}
