//! From the states of an encoder to one vector a text, as a folder in the layout of sentence-transformers says it.

use std::{
    collections::HashMap,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use candle_core::{D, DType, Device, IndexOp, Tensor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    batch::Batch,
    checkpoint,
    encoder::Encoder,
    error::{Error, Result},
    json::{self, parse},
    layers::{Activation, hidden_score},
};

const MODULES: &str = "modules.json";
const SETTINGS: &str = "sentence_bert_config.json";
const PROMPTS: &str = "config_sentence_transformers.json";
const CONFIG: &str = "config.json";

/// How the states of an input's tokens become one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Pooling {
    /// The first token's state.
    Cls,
    /// The greatest value of each dimension.
    Max,
    /// The mean.
    Mean,
    /// The sum over the root of the number of tokens.
    MeanSqrtLen,
}

/// The names of the poolings, in the order in which sentence-transformers puts several together, with the older field
/// of each.
const POOLINGS: [(&str, &str, Pooling); 4] = [
    ("cls", "pooling_mode_cls_token", Pooling::Cls),
    ("max", "pooling_mode_max_tokens", Pooling::Max),
    ("mean", "pooling_mode_mean_tokens", Pooling::Mean),
    ("mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", Pooling::MeanSqrtLen),
];

impl Pooling {
    /// States (b, s, d) with their mask (b, s) to vectors (b, d).
    ///
    /// # Errors
    /// A tensor error.
    pub fn pool(self, states: &Tensor, mask: &Tensor) -> Result<Tensor> {
        if self == Self::Cls {
            return Ok(states.i((.., 0, ..))?.contiguous()?);
        }
        let mask = mask.to_dtype(states.dtype())?.unsqueeze(2)?;
        if self == Self::Max {
            let hidden = hidden_score(states.dtype())?;
            // 1 becomes exactly 0 and 0 what is below every state.
            return Ok(states.broadcast_add(&mask.affine(-hidden, hidden)?)?.max(1)?);
        }
        let sum = states.broadcast_mul(&mask)?.sum(1)?;
        let count = mask.sum(1)?;
        let divisor = if self == Self::Mean { count } else { count.sqrt()? };
        Ok(sum.broadcast_div(&divisor)?)
    }
}

impl FromStr for Pooling {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let known = POOLINGS.iter().find(|(known, _, _)| {
            *known == name || (name == "mean_sqrt_len" && *known == "mean_sqrt_len_tokens")
        });
        known.map(|(_, _, pooling)| *pooling).ok_or_else(|| Error::Options {
            option: "pooling",
            expected: "`cls`, `max`, `mean` or `mean_sqrt_len`".into(),
            found: format!("`{name}`"),
        })
    }
}

impl TryFrom<String> for Pooling {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        name.parse()
    }
}

impl From<Pooling> for String {
    fn from(pooling: Pooling) -> Self {
        pooling.to_string()
    }
}

impl fmt::Display for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cls => "cls",
            Self::Max => "max",
            Self::Mean => "mean",
            Self::MeanSqrtLen => "mean_sqrt_len",
        })
    }
}

/// What a folder's `modules.json` does with the states of its encoder.
#[derive(Debug, Clone)]
pub struct Sentences {
    /// The folder of the encoder itself.
    pub encoder: PathBuf,
    /// The most tokens of a text, where the folder says it.
    pub max_length: Option<usize>,
    /// Whether texts are lowercased before they are tokenized.
    pub lowercase: bool,
    /// What is put before every text, where the folder says it.
    pub prompt: String,
    /// What the states become; the vectors of several are put together.
    pub pooling: Vec<Pooling>,
    steps: Vec<Step>,
}

/// What happens to a vector after pooling.
#[derive(Debug, Clone)]
enum Step {
    /// `activation(x W^T + b)`
    Dense { weight: Tensor, bias: Option<Tensor>, activation: Option<Activation> },
    /// To a length of 1.
    Normalize,
}

#[derive(Deserialize)]
struct Module {
    path: String,
    r#type: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Settings {
    max_seq_length: Option<usize>,
    do_lower_case: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Prompts {
    prompts: HashMap<String, String>,
    default_prompt_name: Option<String>,
}

#[derive(Deserialize)]
struct DenseConfig {
    in_features: usize,
    out_features: usize,
    #[serde(default = "yes")]
    bias: bool,
    activation_function: Option<String>,
    #[serde(default)]
    use_residual: bool,
}

fn yes() -> bool {
    true
}

impl Sentences {
    /// Reads the `modules.json` of `folder` and the modules that it names; `None` where there is none. Weights are
    /// cast to `dtype` on `device`.
    ///
    /// # Errors
    /// [`Error::Json`], [`Error::Config`] where a module or an option is not one of this crate, and those of
    /// reading weights.
    pub fn open(folder: &Path, dtype: DType, device: &Device) -> Result<Option<Self>> {
        let path = folder.join(MODULES);
        let Some(text) = json::text(&path)? else { return Ok(None) };
        let modules: Vec<Module> = parse(&path, &text)?;
        let mut modules = modules.iter().enumerate();
        let unexpected = |at: usize, expected: &str, found: &str| Error::Config {
            path: path.clone(),
            field: format!("[{at}].type"),
            expected: expected.into(),
            found: format!("`{found}`"),
        };
        let encoder = match modules.next() {
            Some((_, module)) if kind(module) == "Transformer" => folder.join(&module.path),
            found => {
                let found = found.map_or("none", |(_, module)| &module.r#type);
                return Err(unexpected(0, "a `Transformer` first", found));
            }
        };
        let settings_path = encoder.join(SETTINGS);
        let settings: Settings = match json::text(&settings_path)? {
            Some(text) => parse(&settings_path, &text)?,
            None => Settings::default(),
        };
        let mut pooling = Vec::new();
        let mut steps = Vec::new();
        for (at, module) in modules {
            let inside = folder.join(&module.path);
            match kind(module) {
                "Pooling" if pooling.is_empty() && steps.is_empty() => pooling = read_pooling(&inside)?,
                "Normalize" if !pooling.is_empty() => steps.push(Step::Normalize),
                "Dense" if !pooling.is_empty() => steps.push(read_dense(&inside, dtype, device)?),
                _ => {
                    let expected = "`Transformer`, `Pooling`, then `Dense` and `Normalize`";
                    return Err(unexpected(at, expected, &module.r#type));
                }
            }
        }
        if pooling.is_empty() {
            return Err(unexpected(1, "`Pooling`", "none"));
        }
        let (max_length, lowercase) = (settings.max_seq_length, settings.do_lower_case);
        let prompt = default_prompt(folder)?;
        Ok(Some(Self { encoder, max_length, lowercase, prompt, pooling, steps }))
    }

    /// One kind of pooling for a folder that does not say what becomes of its states.
    #[must_use]
    pub fn plain(folder: &Path, pooling: Pooling) -> Self {
        Self {
            encoder: folder.into(),
            max_length: None,
            lowercase: false,
            prompt: String::new(),
            pooling: vec![pooling],
            steps: Vec::new(),
        }
    }

    /// The same with another pooling, which must give vectors of the same width where a layer follows it.
    ///
    /// # Errors
    /// [`Error::Options`] where it cannot: the folder puts several poolings together for a layer.
    pub fn with_pooling(self, pooling: Pooling) -> Result<Self> {
        let is_mapped = self.steps.iter().any(|step| matches!(step, Step::Dense { .. }));
        if is_mapped && self.pooling.len() != 1 {
            let expected = format!("{} poolings put together, for the layer after them", self.pooling.len());
            return Err(Error::Options { option: "pooling", expected, found: format!("`{pooling}`") });
        }
        Ok(Self { pooling: vec![pooling], ..self })
    }

    /// The pooling whose result has the vector's direction: where nothing happens to it, or only its length is made 1.
    #[must_use]
    pub fn direction(&self) -> Option<Pooling> {
        let keeps = self.steps.iter().all(|step| matches!(step, Step::Normalize));
        match self.pooling.as_slice() {
            [pooling] if keeps => Some(*pooling),
            _ => None,
        }
    }

    /// The width of the vectors, for states of this width.
    #[must_use]
    pub fn width(&self, states: usize) -> usize {
        let pooled = states * self.pooling.len();
        let dense = self.steps.iter().rev().find_map(|step| match step {
            Step::Dense { weight, .. } => Some(weight.dims()[0]),
            Step::Normalize => None,
        });
        dense.unwrap_or(pooled)
    }

    /// The vectors of a batch, shape (b, width). Where only first tokens are pooled, `body` computes no other token's last state.
    ///
    /// # Errors
    /// As for [`Encoder::states`] and [`vectors`](Self::vectors).
    pub fn encode(&self, body: &dyn Encoder, input: &Batch) -> Result<Tensor> {
        if self.pooling.iter().all(|pooling| *pooling == Pooling::Cls) {
            return self.vectors(&body.first_states(input)?, &input.mask.narrow(1, 0, 1)?);
        }
        self.vectors(&body.states(input)?, &input.mask)
    }

    /// States (b, s, d) with their mask (b, s) to vectors (b, width).
    ///
    /// # Errors
    /// A tensor error.
    pub fn vectors(&self, states: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let pooled =
            self.pooling.iter().map(|pooling| pooling.pool(states, mask)).collect::<Result<Vec<_>>>()?;
        let mut xs = Tensor::cat(&pooled, D::Minus1)?;
        for step in &self.steps {
            xs = match step {
                Step::Normalize => {
                    let norm = xs.sqr()?.sum_keepdim(D::Minus1)?.sqrt()?.maximum(1e-12)?;
                    xs.broadcast_div(&norm)?
                }
                Step::Dense { weight, bias, activation } => {
                    let mut ys = xs.matmul(&weight.t()?)?;
                    if let Some(bias) = bias {
                        ys = ys.broadcast_add(bias)?;
                    }
                    match activation {
                        Some(activation) => activation.forward(&ys)?,
                        None => ys,
                    }
                }
            };
        }
        Ok(xs)
    }
}

/// The class of a module, whichever package path it has.
fn kind(module: &Module) -> &str {
    module.r#type.rsplit('.').next().unwrap_or_default()
}

fn read(folder: &Path) -> Result<(PathBuf, String)> {
    let path = folder.join(CONFIG);
    match json::text(&path)? {
        Some(text) => Ok((path, text)),
        None => Err(Error::MissingFile { folder: folder.into(), expected: CONFIG }),
    }
}

fn default_prompt(folder: &Path) -> Result<String> {
    let path = folder.join(PROMPTS);
    let Some(text) = json::text(&path)? else { return Ok(String::new()) };
    let Prompts { mut prompts, default_prompt_name } = parse(&path, &text)?;
    let Some(name) = default_prompt_name else { return Ok(String::new()) };
    prompts.remove(&name).ok_or_else(|| Error::Config {
        path,
        field: "default_prompt_name".into(),
        expected: "the name of one of the `prompts`".into(),
        found: format!("`{name}`"),
    })
}

fn read_pooling(folder: &Path) -> Result<Vec<Pooling>> {
    let (path, text) = read(folder)?;
    let fields: HashMap<String, Value> = parse(&path, &text)?;
    let wrong = |field: &str, expected: &str, found: String| Error::Config {
        path: path.clone(),
        field: field.into(),
        expected: expected.into(),
        found,
    };
    let is_set = |field: &str| fields.get(field).and_then(Value::as_bool);
    if is_set("include_prompt") == Some(false) {
        return Err(wrong("include_prompt", "true", "false".into()));
    }
    let names = match fields.get("pooling_mode") {
        Some(Value::String(name)) => vec![name.clone()],
        Some(Value::Array(names)) => {
            names.iter().map(|name| name.as_str().map_or_else(|| name.to_string(), str::to_owned)).collect()
        }
        Some(other) => return Err(wrong("pooling_mode", "a name or a list of names", other.to_string())),
        None => {
            for field in ["pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"] {
                if is_set(field) == Some(true) {
                    return Err(wrong(field, "false", "true".into()));
                }
            }
            let set = POOLINGS.iter().filter(|(_, field, _)| is_set(field) == Some(true));
            set.map(|(name, _, _)| (*name).to_string()).collect()
        }
    };
    if names.is_empty() {
        return Ok(vec![Pooling::Mean]);
    }
    let pooling = names.iter().map(|name| {
        name.parse().map_err(|_| {
            wrong("pooling_mode", "`cls`, `max`, `mean` or `mean_sqrt_len_tokens`", format!("`{name}`"))
        })
    });
    pooling.collect()
}

fn read_dense(folder: &Path, dtype: DType, device: &Device) -> Result<Step> {
    let (path, text) = read(folder)?;
    let config: DenseConfig = parse(&path, &text)?;
    let wrong = |field: &str, expected: &str, found: &str| Error::Config {
        path: path.clone(),
        field: field.into(),
        expected: expected.into(),
        found: found.into(),
    };
    if config.use_residual {
        return Err(wrong("use_residual", "false", "true"));
    }
    let activation = match config.activation_function.as_deref() {
        None | Some("torch.nn.modules.activation.Tanh") => Some(Activation::Tanh),
        Some("torch.nn.modules.linear.Identity") => None,
        Some("torch.nn.modules.activation.ReLU") => Some(Activation::Relu),
        Some("torch.nn.modules.activation.GELU") => Some(Activation::Gelu),
        Some(other) => {
            let expected = "Tanh, Identity, ReLU or GELU of torch.nn.modules";
            return Err(wrong("activation_function", expected, &format!("`{other}`")));
        }
    };
    let (mut tensors, weights) = checkpoint::tensors(folder, dtype, device)?;
    let mut take = |name: &str, shape: candle_core::Shape| {
        let tensor = tensors.remove(name).ok_or_else(|| Error::MissingTensor {
            path: weights.clone(),
            tensor: name.into(),
            expected: shape.clone(),
        })?;
        if tensor.shape() != &shape {
            let (tensor, found) = (name.to_string(), tensor.shape().clone());
            return Err(Error::TensorShape { path: weights.clone(), tensor, expected: shape, found });
        }
        Ok(tensor)
    };
    let weight = take("linear.weight", (config.out_features, config.in_features).into())?;
    let bias = if config.bias { Some(take("linear.bias", config.out_features.into())?) } else { None };
    Ok(Step::Dense { weight, bias, activation })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use candle_core::{DType, Device, Tensor};

    use super::{Pooling, Sentences};

    fn pooled(pooling: Pooling) -> Vec<Vec<f32>> {
        let states = [[[1.0f32, -4.0], [3.0, -2.0]], [[5.0, -6.0], [9.0, 9.0]]];
        let (states, mask) = (
            Tensor::new(&states, &Device::Cpu).unwrap(),
            Tensor::new(&[[1.0f32, 1.0], [1.0, 0.0]], &Device::Cpu).unwrap(),
        );
        pooling.pool(&states, &mask).unwrap().to_vec2().unwrap()
    }

    #[test]
    fn padding_is_not_pooled() {
        // The second row has one token, (5, -6); the other state is padding.
        assert_eq!(pooled(Pooling::Cls), [[1.0, -4.0], [5.0, -6.0]]);
        assert_eq!(pooled(Pooling::Max), [[3.0, -2.0], [5.0, -6.0]]);
        assert_eq!(pooled(Pooling::Mean), [[2.0, -3.0], [5.0, -6.0]]);
        // (1 + 3) / sqrt 2 and -(4 + 2) / sqrt 2
        let root = pooled(Pooling::MeanSqrtLen);
        assert!((root[0][0] - 2.828_427).abs() < 1e-5 && (root[0][1] + 4.242_641).abs() < 1e-5);
        assert_eq!(root[1], [5.0, -6.0]);
    }

    fn open(modules: &str, pooling: &str) -> crate::Result<Option<Sentences>> {
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
            (r#"{"pooling_mode": "mean_sqrt_len_tokens"}"#, vec![Pooling::MeanSqrtLen]),
            (r#"{"pooling_mode": ["mean", "max"]}"#, vec![Pooling::Mean, Pooling::Max]),
            ("{}", vec![Pooling::Mean]),
        ] {
            let sentences = open(MODULES, text).unwrap().unwrap();
            assert_eq!(sentences.pooling, expected, "{text}");
            assert_eq!(sentences.width(6), 6 * expected.len());
            assert_eq!(sentences.direction(), expected.first().copied().filter(|_| expected.len() == 1));
        }
    }

    #[test]
    fn what_is_not_supported_is_refused_with_its_file_and_field() {
        for (text, field) in [
            (r#"{"pooling_mode": "lasttoken"}"#, "pooling_mode"),
            (r#"{"pooling_mode_lasttoken": true}"#, "pooling_mode_lasttoken"),
            (r#"{"include_prompt": false}"#, "include_prompt"),
        ] {
            let error = open(MODULES, text).unwrap_err().to_string();
            assert!(error.contains(&format!("1_Pooling/config.json: field `{field}`")), "{error}");
        }
        let clip = MODULES.replace("models.Normalize", "models.CLIPModel");
        let error = open(&clip, "{}").unwrap_err().to_string();
        assert!(error.contains("modules.json: field `[2].type`"), "{error}");
    }

    #[test]
    fn vectors_are_normalised_after_pooling() {
        let sentences = open(MODULES, "{}").unwrap().unwrap();
        let states = Tensor::new(&[[[6.0f32, 8.0]]], &Device::Cpu).unwrap();
        let vectors = sentences.vectors(&states, &Tensor::ones((1, 1), DType::F32, &Device::Cpu).unwrap());
        assert_eq!(vectors.unwrap().to_vec2::<f32>().unwrap(), [[0.6, 0.8]]);
    }
}
