//! The settings of a cross-encoder's folder: the model's subfolder in the layout of sentence-transformers, the prompt
//! before queries, and the activation over logits.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{
    SentenceSettings,
    modules::{CONFIG, encoder_folder, module_config, modules, unexpected},
};
use crate::{
    error::{Error, Result},
    json::{self, parse},
};

/// The activation over the logits of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScoreActivation {
    /// Nothing.
    Identity,
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// `tanh(x)`
    Tanh,
    /// `max(x, 0)`
    Relu,
    /// `exp(x)` over the sum of all labels' `exp(x)`.
    Softmax,
}

impl ScoreActivation {
    /// The logits of a pair, one for each label, to its scores.
    #[must_use]
    pub fn scores(self, logits: &[f32]) -> Vec<f32> {
        let each = |function: fn(f32) -> f32| logits.iter().map(|logit| function(*logit)).collect();
        match self {
            Self::Identity => logits.to_vec(),
            Self::Sigmoid => each(|x| 1.0 / (1.0 + (-x).exp())),
            Self::Tanh => each(f32::tanh),
            Self::Relu => each(|x| x.max(0.0)),
            Self::Softmax => {
                let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let powers: Vec<f32> = logits.iter().map(|logit| (logit - most).exp()).collect();
                let sum: f32 = powers.iter().sum();
                powers.iter().map(|power| power / sum).collect()
            }
        }
    }
}

/// An activation by its path in Python, and where it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    path: PathBuf,
    field: &'static str,
    name: String,
}

/// The settings of a cross-encoder's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrossEncoderFolder {
    /// The folder of the model itself.
    pub model: PathBuf,
    /// The prompt before the first text of every pair.
    pub prompt: String,
    /// The tokens whose logits make the score, for a language model.
    pub logit_score: Option<LogitScore>,
    /// Whether the modules after the model make the scores: a pooling of states, and layers after it.
    pub is_pooled: bool,
    activation: Option<Named>,
}

/// The module `LogitScore`: the score is the logit of a token, less that of another if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct LogitScore {
    /// The token for the passage.
    pub true_token_id: u32,
    /// The token against it.
    #[serde(default)]
    pub false_token_id: Option<u32>,
}

/// The fields of a `config.json` that name an activation.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Fields {
    sentence_transformers: Option<Inner>,
    sbert_ce_default_activation_function: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Inner {
    activation_fn: Option<String>,
}

impl CrossEncoderFolder {
    /// Whether a folder in the layout of sentence-transformers is a cross-encoder; `None` for a folder of another layout.
    ///
    /// # Errors
    /// [`Error::Json`] for wrong settings.
    pub fn is_of_layout(folder: &Path) -> Result<Option<bool>> {
        if modules(folder)?.is_none() {
            return Ok(None);
        }
        Ok(Some(SentenceSettings::open(folder)?.model_type.as_deref() == Some("CrossEncoder")))
    }

    /// Reads a folder: one in the layout of sentence-transformers, or one of a model alone.
    ///
    /// # Errors
    /// [`Error::Json`], and [`Error::Config`] for modules other than the model.
    pub fn open(folder: &Path) -> Result<Self> {
        let mut found = Self {
            model: folder.into(),
            prompt: String::new(),
            logit_score: None,
            is_pooled: false,
            activation: None,
        };
        if let Some((path, modules)) = modules(folder)? {
            let settings = SentenceSettings::open(folder)?;
            // In the folder of another kind of model the settings are not a cross-encoder's.
            if settings.model_type.as_deref() == Some("CrossEncoder") {
                found.model = encoder_folder(folder, &path, &modules)?;
                match modules.get(1) {
                    Some(module) if module.kind() == "LogitScore" => {
                        let (path, text) = module_config(&folder.join(&module.path))?;
                        found.logit_score = Some(parse(&path, &text)?);
                    }
                    Some(module) if module.kind() == "Pooling" => found.is_pooled = true,
                    Some(module) => {
                        let expected =
                            "a `Transformer` alone, or with a `LogitScore`, or with a `Pooling` and layers";
                        return Err(unexpected(&path, 1, expected, &module.r#type));
                    }
                    None => {}
                }
                if let Some(module) = modules.get(2)
                    && !found.is_pooled
                {
                    return Err(unexpected(&path, 2, "no further module", &module.r#type));
                }
                settings.default_prompt().clone_into(&mut found.prompt);
                let path = folder.join(SentenceSettings::FILE);
                found.activation =
                    settings.activation.map(|name| Named { path, field: "activation_fn", name });
            }
        }
        let path = found.model.join(CONFIG);
        if found.activation.is_none()
            && let Some(text) = json::text(&path)?
        {
            let fields: Fields = parse(&path, &text)?;
            let newer = fields.sentence_transformers.unwrap_or_default().activation_fn;
            let newer = newer.map(|name| ("sentence_transformers.activation_fn", name));
            let older = fields.sbert_ce_default_activation_function;
            let older = older.map(|name| ("sbert_ce_default_activation_function", name));
            found.activation = newer.or(older).map(|(field, name)| Named { path, field, name });
        }
        Ok(found)
    }

    /// The activation over the logits of a model with this number of labels: the one that the folder names, or else the
    /// sigmoid for one label and none for several.
    ///
    /// # Errors
    /// [`Error::Config`] for a function that is not one of this crate.
    pub fn activation(&self, labels: usize) -> Result<ScoreActivation> {
        let Some(Named { path, field, name }) = &self.activation else {
            return Ok(if labels == 1 { ScoreActivation::Sigmoid } else { ScoreActivation::Identity });
        };
        let known = name.strip_prefix("torch.nn.").and_then(|name| name.rsplit('.').next());
        Ok(match known {
            Some("Identity") => ScoreActivation::Identity,
            Some("Sigmoid") => ScoreActivation::Sigmoid,
            Some("Tanh") => ScoreActivation::Tanh,
            Some("ReLU") => ScoreActivation::Relu,
            Some("Softmax") => ScoreActivation::Softmax,
            _ => {
                let (path, field, found) = (path.clone(), (*field).to_owned(), format!("`{name}`"));
                let expected = "Identity, Sigmoid, Tanh, ReLU or Softmax of torch.nn";
                return Err(Error::Config { path, field, expected: expected.into(), found });
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(files: &[(&str, &str)]) -> Result<CrossEncoderFolder> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let mut found = CrossEncoderFolder::open(folder.path())?;
        found.model = found.model.strip_prefix(folder.path()).unwrap().into();
        Ok(found)
    }

    fn activation(config: &str, labels: usize) -> Result<ScoreActivation> {
        read(&[("config.json", config)])?.activation(labels)
    }

    #[test]
    fn the_folder_s_activation_counts_and_else_the_number_of_labels() {
        assert_eq!(activation("{}", 1).unwrap(), ScoreActivation::Sigmoid);
        assert_eq!(activation("{}", 2).unwrap(), ScoreActivation::Identity);
        let newer = r#"{"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"},
                        "sbert_ce_default_activation_function": "torch.nn.modules.activation.Tanh"}"#;
        assert_eq!(activation(newer, 1).unwrap(), ScoreActivation::Identity);
        let older = r#"{"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}"#;
        assert_eq!(activation(older, 2).unwrap(), ScoreActivation::Sigmoid);
        let softmax = older.replace("Sigmoid", "Softmax");
        assert_eq!(activation(&softmax, 2).unwrap(), ScoreActivation::Softmax);
        for unknown in ["torch.nn.modules.activation.Mish", "my_code.Sigmoid"] {
            let config = older.replace("torch.nn.modules.activation.Sigmoid", unknown);
            let error = activation(&config, 1).unwrap_err().to_string();
            assert!(error.contains("config.json: field `sbert_ce_default_activation_function`"), "{error}");
        }
    }

    #[test]
    fn a_folder_of_sentence_transformers_names_its_model_prompt_and_activation() {
        let modules =
            r#"[{"path": "inner", "type": "sentence_transformers.base.modules.transformer.Transformer"}]"#;
        let settings = r#"{"model_type": "CrossEncoder", "prompts": {"ask": "Q: "}, "default_prompt_name": "ask",
                           "activation_fn": "torch.nn.modules.activation.ReLU"}"#;
        let of = |modules: &str, settings: &str| {
            read(&[
                ("modules.json", modules),
                ("config_sentence_transformers.json", settings),
                ("inner/config.json", r#"{"sentence_transformers": {"activation_fn": "torch.nn.Tanh"}}"#),
            ])
        };
        let found = of(modules, settings).unwrap();
        assert_eq!((found.model.to_str(), found.prompt.as_str()), (Some("inner"), "Q: "));
        assert_eq!(found.activation(1).unwrap(), ScoreActivation::Relu);
        let found = of(modules, r#"{"model_type": "CrossEncoder"}"#).unwrap();
        assert_eq!(found.activation(1).unwrap(), ScoreActivation::Tanh);
        let scored = modules.replace("}]", r#"}, {"path": "1", "type": "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"}]"#);
        let scored = read(&[
            ("modules.json", &scored),
            ("config_sentence_transformers.json", r#"{"model_type": "CrossEncoder"}"#),
            (
                "1/config.json",
                r#"{"true_token_id": 7, "false_token_id": null, "module_input_name": "causal_logits"}"#,
            ),
        ]);
        let expected = LogitScore { true_token_id: 7, false_token_id: None };
        assert_eq!(scored.unwrap().logit_score, Some(expected));
        // The settings of a bi-encoder are not for a cross-encoder.
        let found = of(modules, &settings.replace("CrossEncoder", "SentenceTransformer")).unwrap();
        assert_eq!((found.model.to_str(), found.prompt.as_str()), (Some(""), ""));
        let further =
            modules.replace("}]", r#"}, {"path": "1", "type": "sentence_transformers.models.Dense"}]"#);
        let error = of(&further, settings).unwrap_err().to_string();
        assert!(error.contains("modules.json: field `[1].type`"), "{error}");
    }

    #[test]
    fn scores_are_those_of_their_definitions() {
        let logits = [0.0, 3.0f32.ln()];
        let close = |activation: ScoreActivation, expected: [f32; 2]| {
            let found = activation.scores(&logits);
            assert!(
                found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6),
                "{activation:?}: {found:?}"
            );
        };
        close(ScoreActivation::Identity, logits);
        close(ScoreActivation::Sigmoid, [0.5, 0.75]);
        close(ScoreActivation::Tanh, [0.0, 0.8]);
        close(ScoreActivation::Softmax, [0.25, 0.75]);
        assert_eq!(ScoreActivation::Relu.scores(&[-1.0, 2.0]), [0.0, 2.0]);
        assert_eq!(ScoreActivation::Sigmoid.scores(&[-200.0, 200.0]), [0.0, 1.0]);
    }
}
