//! From the hidden states of an encoder to one vector per text, by the settings of a sentence-transformers folder.

mod pooling;
mod steps;
mod text_encoder;

use std::path::{Path, PathBuf};

use candle_core::{D, DType, Device, Tensor};
use sporran_checkpoint::{
    Error, Result, Role, SentenceSettings,
    sentence::{InputSettings, Module, encoder_folder, modules, unexpected},
};

pub use pooling::Pooling;
use steps::{Output, Step, read_dense, read_layer_norm, read_normalize};
pub use text_encoder::{TextEncoder, TextEncoderOptions};

use crate::{batch::Batch, encoder::Encoder};

/// The modules after the encoder in a folder's `modules.json`.
#[derive(Debug, Clone)]
pub struct Sentences {
    /// The folder of the encoder itself.
    pub encoder: PathBuf,
    /// The poolings; the vectors of several are concatenated.
    pub pooling: Vec<Pooling>,
    /// Whether the tokens of a prompt are pooled with those of the text.
    pub include_prompt: bool,
    /// The folder's settings for vectors.
    pub settings: SentenceSettings,
    steps: Vec<Step>,
    /// The config file of the pooling, if it is a module.
    pooling_config: Option<PathBuf>,
    /// The config file of each step.
    configs: Vec<PathBuf>,
}

impl Sentences {
    /// Reads the `modules.json` of `folder` and the modules that it names; `None` where there is none. Weights are
    /// cast to `dtype` on `device`.
    ///
    /// # Errors
    /// [`Error::Json`], [`Error::Config`] where a module or an option is not one of this crate, and those of
    /// reading weights.
    pub fn open(folder: &Path, dtype: DType, device: &Device) -> Result<Option<Self>> {
        match modules(folder)? {
            Some((path, modules)) => {
                Self::read(folder, (&path, &modules), Output::Vector, dtype, device).map(Some)
            }
            None => Ok(None),
        }
    }

    /// As [`open`](Self::open), for the folder of a cross-encoder whose last layer makes the scores of pairs.
    ///
    /// # Errors
    /// As there, and [`Error::Config`] where the last module is not such a layer.
    pub(crate) fn open_scorer(folder: &Path, dtype: DType, device: &Device) -> Result<Self> {
        match modules(folder)? {
            Some((path, modules)) => Self::read(folder, (&path, &modules), Output::Scores, dtype, device),
            None => Err(Error::MissingFile { folder: folder.into(), expected: "modules.json" }),
        }
    }

    fn read(
        folder: &Path,
        (path, modules): (&Path, &[Module]),
        output: Output,
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        let encoder = encoder_folder(folder, path, modules)?;
        InputSettings::open(&encoder)?.check_states()?;
        // A static embedding is the mean of its tokens' vectors.
        let is_static = modules.first().is_some_and(|module| module.kind() == "StaticEmbedding");
        let mut pooling = is_static.then(|| (vec![Pooling::Mean], true));
        let mut pooling_config = None;
        let (mut steps, mut configs) = (Vec::new(), Vec::new());
        for (at, module) in modules.iter().enumerate().skip(1) {
            let inside = folder.join(&module.path);
            let output = match output {
                Output::Scores if at + 1 < modules.len() => Output::Vector,
                Output::Scores if module.kind() != "Dense" => {
                    return Err(unexpected(
                        path,
                        at,
                        "a `Dense` that gives `scores` at last",
                        &module.r#type,
                    ));
                }
                output => output,
            };
            match module.kind() {
                "Pooling" if pooling.is_none() => {
                    pooling = Some(pooling::read(&inside)?);
                    pooling_config = Some(inside.join("config.json"));
                    continue;
                }
                "Normalize" if pooling.is_some() => steps.push(read_normalize(&inside)?),
                "LayerNorm" if pooling.is_some() => steps.push(read_layer_norm(&inside, dtype, device)?),
                "Dense" if pooling.is_some() => steps.push(read_dense(&inside, output, dtype, device)?),
                // It drops values only in training.
                "Dropout" if pooling.is_some() => continue,
                _ => {
                    let expected = "sentence-transformers' `Transformer`, `Pooling`, then `Dense`, `LayerNorm`, \
                                    `Normalize` and `Dropout`, or these after a `StaticEmbedding`";
                    return Err(unexpected(path, at, expected, &module.r#type));
                }
            }
            configs.push(inside.join("config.json"));
        }
        let Some((pooling, include_prompt)) = pooling else {
            return Err(unexpected(path, 1, "`Pooling`", "none"));
        };
        let settings = SentenceSettings::open(folder)?;
        Ok(Self { encoder, pooling, include_prompt, settings, steps, pooling_config, configs })
    }

    /// One kind of pooling for a folder without settings.
    #[must_use]
    pub fn plain(folder: &Path, pooling: Pooling) -> Self {
        Self {
            encoder: folder.into(),
            pooling: vec![pooling],
            include_prompt: true,
            settings: SentenceSettings::default(),
            steps: Vec::new(),
            pooling_config: None,
            configs: Vec::new(),
        }
    }

    /// The same with another pooling, which must give vectors of the same width where a layer follows it.
    ///
    /// # Errors
    /// [`Error::Options`] where it cannot: the folder puts several poolings together for a layer.
    pub fn with_pooling(self, pooling: Pooling) -> Result<Self> {
        if self.pooling.len() != 1 && self.steps.iter().any(|step| step.inputs().is_some()) {
            let expected = format!("{} poolings put together, for the layer after them", self.pooling.len());
            return Err(Error::Options { option: "pooling", expected, found: format!("`{pooling}`") });
        }
        Ok(Self { pooling: vec![pooling], ..self })
    }

    /// The pooling whose result has the direction of a query's vector: where nothing happens to it, or only its length is made
    /// 1, no dimension is left out, and a prompt's tokens are pooled too.
    #[must_use]
    pub fn direction(&self) -> Option<Pooling> {
        let leaves_out_prompt = !self.include_prompt && !self.settings.prompt(Role::Query).is_empty();
        if leaves_out_prompt || self.settings.truncate_dim.is_some() {
            return None;
        }
        match self.pooling.as_slice() {
            [pooling] if self.steps.iter().all(Step::keeps_direction) => Some(*pooling),
            _ => None,
        }
    }

    /// Checks that each step's input width is the output width of the one before, for states of this width.
    ///
    /// # Errors
    /// [`Error::Config`], for the file of the pooling where the first step that takes vectors of one width is not met.
    pub(crate) fn check_widths(&self, states: usize) -> Result<()> {
        let mut width = states * self.pooling.len();
        let mut is_pooled = true;
        let wrong = |path: &Path, field: &str, expected: String, found: String| {
            Err(Error::Config { path: path.into(), field: field.into(), expected, found })
        };
        for (step, config) in self.steps.iter().zip(&self.configs) {
            if let Some(inputs) = step.inputs() {
                match &self.pooling_config {
                    _ if inputs == width => {}
                    Some(pooling) if is_pooled => {
                        let expected = format!(
                            "poolings whose vectors have {inputs} values together, as {} takes",
                            config.display()
                        );
                        let found = format!("{} of {states} values", self.pooling.len());
                        return wrong(pooling, "pooling_mode", expected, found);
                    }
                    _ => {
                        let expected = format!("{width}, as many values as the module before gives");
                        return wrong(config, step.inputs_field(), expected, inputs.to_string());
                    }
                }
                is_pooled = false;
            }
            width = step.width(width);
        }
        Ok(())
    }

    /// The width of the vectors, for states of this width.
    #[must_use]
    pub fn width(&self, states: usize) -> usize {
        self.steps.iter().fold(states * self.pooling.len(), |width, step| step.width(width))
    }

    /// The vectors of a batch, shape (b, width). The first `skipped` tokens of each row, a prompt's, are not pooled. Where
    /// single tokens are pooled, `body` computes no other token's last state.
    ///
    /// # Errors
    /// As for [`Encoder::states_at`] and [`vectors`](Self::vectors).
    pub fn encode(&self, body: &dyn Encoder, input: &Batch, skipped: usize) -> Result<Tensor> {
        let mask = pooled_mask(&input.mask, skipped)?;
        let places: Option<Vec<_>> =
            self.pooling.iter().map(|pooling| pooling.places(&mask).transpose()).collect();
        let Some(places) = places else {
            return self.vectors(&body.states(input)?, &input.mask, skipped);
        };
        let pooled =
            places.into_iter().map(|places| body.states_at(input, &places?)).collect::<Result<Vec<_>>>()?;
        self.after_pooling(&pooled)
    }

    /// States (b, s, d) with their mask (b, s) to vectors (b, width). The first `skipped` tokens of each row are not
    /// pooled.
    ///
    /// # Errors
    /// [`Error::Batch`] where a row has no further token, and a tensor error.
    pub fn vectors(&self, states: &Tensor, mask: &Tensor, skipped: usize) -> Result<Tensor> {
        let mask = pooled_mask(mask, skipped)?;
        let pooled =
            self.pooling.iter().map(|pooling| pooling.pool(states, &mask)).collect::<Result<Vec<_>>>()?;
        self.after_pooling(&pooled)
    }

    /// Puts vectors together and takes the steps after the pooling.
    fn after_pooling(&self, pooled: &[Tensor]) -> Result<Tensor> {
        let pooled = Tensor::cat(pooled, D::Minus1)?;
        self.steps.iter().try_fold(pooled, |xs, step| step.forward(&xs))
    }
}

/// The mask (b, s) without its first `skipped` columns.
fn pooled_mask(mask: &Tensor, skipped: usize) -> Result<Tensor> {
    if skipped == 0 {
        return Ok(mask.clone());
    }
    let length = mask.dim(1)?;
    let kept: Vec<f32> = (0..length).map(|at| if at < skipped { 0.0 } else { 1.0 }).collect();
    let kept = Tensor::from_vec(kept, (1, length), mask.device())?;
    Ok(mask.to_dtype(DType::F32)?.broadcast_mul(&kept)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use candle_core::{DType, Device, Tensor};

    use super::{Pooling, Sentences};

    fn open(modules: &str, pooling: &str) -> sporran_checkpoint::Result<Option<Sentences>> {
        let folder = tempfile::TempDir::new().unwrap();
        fs::create_dir(folder.path().join("1_Pooling")).unwrap();
        fs::write(folder.path().join("modules.json"), modules).unwrap();
        fs::write(folder.path().join("1_Pooling/config.json"), pooling).unwrap();
        Sentences::open(folder.path(), DType::F32, &Device::Cpu)
    }

    const MODULES: &str = r#"[{"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]"#;

    #[test]
    fn old_and_new_fields_name_the_pooling() {
        for (text, expected) in [
            (
                r#"{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true}"#,
                vec![Pooling::Cls, Pooling::Mean],
            ),
            (
                r#"{"pooling_mode_lasttoken": true, "pooling_mode_weightedmean_tokens": true}"#,
                vec![Pooling::WeightedMean, Pooling::LastToken],
            ),
            (r#"{"pooling_mode": "mean_sqrt_len_tokens"}"#, vec![Pooling::MeanSqrtLen]),
            (r#"{"pooling_mode": "lasttoken", "pooling_mode_cls_token": true}"#, vec![Pooling::LastToken]),
            (
                r#"{"pooling_mode": ["weightedmean", "max"], "include_prompt": null}"#,
                vec![Pooling::WeightedMean, Pooling::Max],
            ),
            (r#"{"pooling_mode_cls_token": false}"#, vec![Pooling::Mean]),
            ("{}", vec![Pooling::Mean]),
        ] {
            let sentences = open(MODULES, text).unwrap().unwrap();
            assert_eq!(sentences.pooling, expected, "{text}");
            assert!(sentences.include_prompt);
            assert_eq!(sentences.width(6), 6 * expected.len());
            assert_eq!(sentences.direction(), expected.first().copied().filter(|_| expected.len() == 1));
        }
        let without = open(MODULES, r#"{"include_prompt": false}"#).unwrap().unwrap();
        assert!(!without.include_prompt);
    }

    #[test]
    fn a_pooling_that_does_not_fit_the_layer_after_it_is_named() {
        let folder = tempfile::TempDir::new().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("modules.json", &MODULES.replace("models.Normalize", "models.LayerNorm"));
        write("2_Normalize/config.json", r#"{"dimension": 8}"#);
        let ones = Tensor::ones(8, DType::F32, &Device::Cpu).unwrap();
        let tensors = ["norm.weight", "norm.bias"].map(|name| (name, ones.clone())).into();
        let weights = folder.path().join("2_Normalize/model.safetensors");
        candle_core::safetensors::save(&tensors, weights).unwrap();
        let check = |pooling: &str, states: usize| {
            write("1_Pooling/config.json", pooling);
            let opened = Sentences::open(folder.path(), DType::F32, &Device::Cpu).unwrap().unwrap();
            opened.check_widths(states)
        };
        let both = r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}"#;
        check(both, 4).unwrap();
        let error = check(r#"{"pooling_mode_cls_token": true}"#, 4).unwrap_err().to_string();
        assert!(
            error.contains("1_Pooling/config.json: field `pooling_mode`: expected poolings whose"),
            "{error}"
        );
        assert!(error.contains("2_Normalize/config.json takes, found 1 of 4 values"), "{error}");
    }

    #[test]
    fn what_is_not_supported_is_refused_with_its_file_and_field() {
        for (text, field) in [
            (r#"{"pooling_mode": "median"}"#, "pooling_mode"),
            (r#"{"pooling_mode": 3}"#, "pooling_mode"),
            (r#"{"pooling_mode_cls_token": "yes"}"#, "pooling_mode_cls_token"),
            (r#"{"include_prompt": 1}"#, "include_prompt"),
        ] {
            let error = open(MODULES, text).unwrap_err().to_string();
            assert!(error.contains(&format!("1_Pooling/config.json: field `{field}`")), "{error}");
        }
        for (from, to, at) in [
            ("models.Normalize", "models.CLIPModel", 2),
            ("models.Normalize", "models.Pooling", 2),
            ("models.Pooling", "models.WordWeights", 1),
            // A class of custom code in the folder, with any name.
            ("sentence_transformers.models.Transformer", "custom_st.Transformer", 0),
        ] {
            let error = open(&MODULES.replace(from, to), "{}").unwrap_err().to_string();
            assert!(error.contains(&format!("modules.json: field `[{at}].type`")), "{error}");
        }
    }

    #[test]
    fn vectors_are_normalised_after_pooling() {
        let sentences = open(MODULES, "{}").unwrap().unwrap();
        let states = Tensor::new(&[[[6.0f32, 8.0]]], &Device::Cpu).unwrap();
        let mask = Tensor::ones((1, 1), DType::F32, &Device::Cpu).unwrap();
        let vectors = sentences.vectors(&states, &mask, 0).unwrap();
        assert_eq!(vectors.to_vec2::<f32>().unwrap(), [[0.6, 0.8]]);
    }
}
