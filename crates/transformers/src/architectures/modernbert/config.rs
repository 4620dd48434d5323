//! The `config.json` of ModernBERT.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sporran_checkpoint::{
    Architecture, Embedding, Parameter, Result,
    json::{deserialize_id, parse},
    parameters,
};

use super::{head::head, model::ModernBert};
use crate::{
    architectures::{
        bert::{BertTask, HeadFields},
        wrong::wrong,
    },
    layers::Activation,
};

/// The config of ModernBERT, with the defaults of `transformers`.
#[derive(Debug, Clone, PartialEq)]
pub struct ModernBertConfig {
    /// The head, from `architectures`.
    pub task: BertTask,
    /// The number of embeddings.
    pub vocab_size: usize,
    /// The width of the hidden states.
    pub hidden_size: usize,
    /// The inner width of the feed-forward part.
    pub intermediate_size: usize,
    /// The number of attention heads.
    pub num_attention_heads: usize,
    /// For each layer, whether attention is local.
    pub local_layers: Vec<bool>,
    /// The most positions between a query and the keys of local attention.
    pub window: usize,
    /// The base of rotary positions in layers of global attention.
    pub global_theta: f64,
    /// The same in layers of local attention.
    pub local_theta: f64,
    /// The activation of the feed-forward part.
    pub hidden_activation: String,
    /// The activation of the head.
    pub classifier_activation: String,
    /// Whether the head of whole inputs reads the mean of all states instead of the first one.
    pub pools_mean: bool,
    /// The most tokens of an input.
    pub max_position_embeddings: usize,
    /// The epsilon of normalisation.
    pub norm_eps: f64,
    /// Whether normalisation has a shift.
    pub norm_bias: bool,
    /// Whether attention's projections have a bias.
    pub attention_bias: bool,
    /// Whether the feed-forward part has biases.
    pub mlp_bias: bool,
    /// Whether the head's inner layer has a bias.
    pub classifier_bias: bool,
    /// Whether the head over the vocabulary has a bias.
    pub decoder_bias: bool,
    /// The dropout rate of embeddings, in training.
    pub embedding_dropout: f64,
    /// The dropout rate of attention weights and of attention's output, in training.
    pub attention_dropout: f64,
    /// The dropout rate inside the feed-forward part, in training.
    pub mlp_dropout: f64,
    /// The dropout rate before the classifying layer, in training.
    pub classifier_dropout: f64,
    /// The standard deviation of fresh weights.
    pub initializer_range: f64,
    /// The padding token.
    pub pad_token_id: u32,
    /// The names of the labels, by number.
    pub labels: Vec<String>,
    /// Whether the head over the vocabulary is the embedding table.
    pub tie_word_embeddings: bool,
}

/// The names of both kinds of attention in `layer_types`.
const KINDS: [&str; 2] = ["full_attention", "sliding_attention"];

/// The bases of rotary positions where a config sets none, for both kinds of attention.
const THETAS: [f64; 2] = [160_000.0, 10_000.0];

/// The most layers that are read from a config, before the weights bound their number.
const MOST_LAYERS: usize = 10_000;

/// The fields of the file.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Fields {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    hidden_activation: String,
    max_position_embeddings: usize,
    initializer_range: f64,
    norm_eps: f64,
    norm_bias: bool,
    #[serde(deserialize_with = "deserialize_id")]
    pad_token_id: Option<u32>,
    attention_bias: bool,
    attention_dropout: f64,
    layer_types: Option<Vec<String>>,
    #[serde(skip_serializing)]
    global_attn_every_n_layers: usize,
    rope_parameters: Option<Map<String, Value>>,
    #[serde(skip_serializing)]
    rope_scaling: Option<Map<String, Value>>,
    #[serde(skip_serializing)]
    global_rope_theta: Option<f64>,
    #[serde(skip_serializing)]
    local_rope_theta: Option<f64>,
    #[serde(skip_serializing)]
    head_dim: Option<usize>,
    local_attention: usize,
    embedding_dropout: f64,
    mlp_bias: bool,
    mlp_dropout: f64,
    decoder_bias: bool,
    classifier_pooling: String,
    classifier_dropout: f64,
    classifier_bias: bool,
    classifier_activation: String,
    tie_word_embeddings: bool,
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            vocab_size: 50368,
            hidden_size: 768,
            intermediate_size: 1152,
            num_hidden_layers: 22,
            num_attention_heads: 12,
            hidden_activation: "gelu".into(),
            max_position_embeddings: 8192,
            initializer_range: 0.02,
            norm_eps: 1e-5,
            norm_bias: false,
            pad_token_id: Some(50283),
            attention_bias: false,
            attention_dropout: 0.0,
            layer_types: None,
            global_attn_every_n_layers: 3,
            rope_parameters: None,
            rope_scaling: None,
            global_rope_theta: None,
            local_rope_theta: None,
            head_dim: None,
            local_attention: 128,
            embedding_dropout: 0.0,
            mlp_bias: false,
            mlp_dropout: 0.0,
            decoder_bias: true,
            classifier_pooling: "cls".into(),
            classifier_dropout: 0.0,
            classifier_bias: false,
            classifier_activation: "gelu".into(),
            tie_word_embeddings: true,
        }
    }
}

impl Fields {
    /// Whether each layer is local.
    fn local_layers(&self) -> Result<Vec<bool>> {
        let count = self.num_hidden_layers;
        let Some(kinds) = &self.layer_types else {
            if self.global_attn_every_n_layers == 0 {
                return Err(wrong("global_attn_every_n_layers", "at least 1", "0"));
            }
            return Ok((0..count)
                .map(|layer| !layer.is_multiple_of(self.global_attn_every_n_layers))
                .collect());
        };
        if kinds.len() != count {
            let expected = format!("a kind for each of {count} layers");
            return Err(wrong("layer_types", &expected, &format!("{} kinds", kinds.len())));
        }
        let local = |kind: &String| match KINDS.iter().position(|known| known == kind) {
            Some(at) => Ok(at == 1),
            None => {
                Err(wrong("layer_types", &format!("`{}` or `{}`", KINDS[0], KINDS[1]), &format!("`{kind}`")))
            }
        };
        kinds.iter().map(local).collect()
    }

    /// The base of the rotary positions of one kind of attention; `older` is that of older files.
    fn theta(&self, at: usize, older: Option<f64>) -> Result<f64> {
        let own =
            self.rope_parameters.as_ref().and_then(|kinds| kinds.get(KINDS[at])).and_then(Value::as_object);
        for (field, settings) in [("rope_parameters", own), ("rope_scaling", self.rope_scaling.as_ref())] {
            let kind =
                settings.and_then(|settings| settings.get("rope_type").or_else(|| settings.get("type")));
            if let Some(kind) = kind.filter(|kind| kind.as_str() != Some("default")) {
                return Err(wrong(field, "rotary positions of type `default`", &kind.to_string()));
            }
        }
        let theta = own.and_then(|settings| settings.get("rope_theta")).and_then(Value::as_f64);
        let theta = theta.or(older).unwrap_or(THETAS[at]);
        if theta > 0.0 && theta.is_finite() {
            Ok(theta)
        } else {
            Err(wrong("rope_theta", "above 0", &theta.to_string()))
        }
    }

    fn config(self, task: BertTask, labels: Vec<String>) -> Result<ModernBertConfig> {
        let pools_mean = match self.classifier_pooling.as_str() {
            "cls" => false,
            "mean" => true,
            other => return Err(wrong("classifier_pooling", "`cls` or `mean`", &format!("`{other}`"))),
        };
        let width = self.hidden_size.checked_div(self.num_attention_heads).unwrap_or(0);
        if let Some(found) = self.head_dim.filter(|found| *found != width) {
            return Err(wrong("head_dim", &width.to_string(), &found.to_string()));
        }
        Ok(ModernBertConfig {
            task,
            vocab_size: self.vocab_size,
            hidden_size: self.hidden_size,
            intermediate_size: self.intermediate_size,
            num_attention_heads: self.num_attention_heads,
            local_layers: self.local_layers()?,
            window: self.local_attention / 2,
            global_theta: self.theta(0, self.global_rope_theta)?,
            local_theta: self.theta(1, self.local_rope_theta)?,
            hidden_activation: self.hidden_activation,
            classifier_activation: self.classifier_activation,
            pools_mean,
            max_position_embeddings: self.max_position_embeddings,
            norm_eps: self.norm_eps,
            norm_bias: self.norm_bias,
            attention_bias: self.attention_bias,
            mlp_bias: self.mlp_bias,
            classifier_bias: self.classifier_bias,
            decoder_bias: self.decoder_bias,
            embedding_dropout: self.embedding_dropout,
            attention_dropout: self.attention_dropout,
            mlp_dropout: self.mlp_dropout,
            classifier_dropout: self.classifier_dropout,
            initializer_range: self.initializer_range,
            // Rows are filled with it, which no model sees.
            pad_token_id: self.pad_token_id.unwrap_or(0),
            labels,
            tie_word_embeddings: self.tie_word_embeddings,
        })
    }

    fn of(config: &ModernBertConfig) -> Self {
        let kinds = config.local_layers.iter().map(|local| KINDS[usize::from(*local)].to_owned()).collect();
        let rope = |theta: f64| json!({"rope_type": "default", "rope_theta": theta});
        let rope = [rope(config.global_theta), rope(config.local_theta)];
        Self {
            vocab_size: config.vocab_size,
            hidden_size: config.hidden_size,
            intermediate_size: config.intermediate_size,
            num_hidden_layers: config.local_layers.len(),
            num_attention_heads: config.num_attention_heads,
            hidden_activation: config.hidden_activation.clone(),
            max_position_embeddings: config.max_position_embeddings,
            initializer_range: config.initializer_range,
            norm_eps: config.norm_eps,
            norm_bias: config.norm_bias,
            pad_token_id: Some(config.pad_token_id),
            attention_bias: config.attention_bias,
            attention_dropout: config.attention_dropout,
            layer_types: Some(kinds),
            rope_parameters: Some(KINDS.map(str::to_owned).into_iter().zip(rope).collect()),
            local_attention: 2 * config.window,
            embedding_dropout: config.embedding_dropout,
            mlp_bias: config.mlp_bias,
            mlp_dropout: config.mlp_dropout,
            decoder_bias: config.decoder_bias,
            classifier_pooling: if config.pools_mean { "mean" } else { "cls" }.into(),
            classifier_dropout: config.classifier_dropout,
            classifier_bias: config.classifier_bias,
            classifier_activation: config.classifier_activation.clone(),
            tie_word_embeddings: config.tie_word_embeddings,
            ..Self::default()
        }
    }
}

/// The classes of `transformers`.
const CLASSES: [(&str, BertTask); 5] = [
    ("ModernBertModel", BertTask::States),
    ("ModernBertForSequenceClassification", BertTask::SequenceClassification),
    ("ModernBertForTokenClassification", BertTask::TokenClassification),
    ("ModernBertForQuestionAnswering", BertTask::Span),
    ("ModernBertForMaskedLM", BertTask::MaskedLm),
];

impl ModernBertConfig {
    /// Reads the text of a `config.json`; `path` names it in errors.
    ///
    /// # Errors
    /// [`Error::Json`](sporran_checkpoint::Error::Json) where a field has the wrong type, and
    /// [`Error::Config`](sporran_checkpoint::Error::Config) where the head is not one of this crate or a value cannot be
    /// used.
    pub fn from_json(path: &Path, text: &str) -> Result<Self> {
        let head: HeadFields = parse(path, text)?;
        let fields: Fields = parse(path, text)?;
        let read = || {
            let found = head.architectures.as_deref().unwrap_or_default().first();
            let task = match found {
                None => BertTask::States,
                Some(found) => match CLASSES.iter().find(|(class, _)| class == found) {
                    Some((_, task)) => *task,
                    None => {
                        let names: Vec<_> = CLASSES.iter().map(|(class, _)| format!("`{class}`")).collect();
                        let expected = format!("one of {}", names.join(", "));
                        return Err(wrong("architectures", &expected, &format!("`{found}`")));
                    }
                },
            };
            // Before anything is made for each layer.
            if fields.num_hidden_layers > MOST_LAYERS {
                let expected = format!("at most {MOST_LAYERS}");
                return Err(wrong("num_hidden_layers", &expected, &fields.num_hidden_layers.to_string()));
            }
            let config = fields.config(task, head.labels())?;
            config.validate()?;
            Ok(config)
        };
        read().map_err(|error| error.within(path))
    }

    /// The prefix of the body's tensor names.
    pub(crate) fn prefix(&self) -> &'static str {
        if self.task == BertTask::States { "" } else { "model." }
    }

    /// The standard deviation of fresh projections back to the states, which is smaller in deeper models.
    pub(crate) fn output_deviation(&self) -> f64 {
        self.initializer_range / (2.0 * self.local_layers.len() as f64).sqrt()
    }

    /// The name of the embedding table.
    pub(crate) fn table(&self) -> String {
        format!("{}embeddings.tok_embeddings.weight", self.prefix())
    }

    /// The factors from a position to the angle of each pair of a head, in layers of one kind.
    pub(crate) fn rotation_steps(&self, is_local: bool) -> Vec<f32> {
        let width = self.hidden_size / self.num_attention_heads;
        let theta = if is_local { self.local_theta } else { self.global_theta };
        // In f32 as `transformers` has it.
        let step = |pair: usize| 1.0 / (theta as f32).powf((2 * pair) as f32 / width as f32);
        (0..width / 2).map(step).collect()
    }

    /// The activation of the feed-forward part.
    pub(crate) fn activation(&self) -> Result<Activation> {
        named("hidden_activation", &self.hidden_activation)
    }

    /// The activation of the head.
    pub(crate) fn head_activation(&self) -> Result<Activation> {
        named("classifier_activation", &self.classifier_activation)
    }

    /// Whether the model has a head that shares the embedding table.
    pub(crate) fn tied(&self) -> bool {
        self.task == BertTask::MaskedLm && self.tie_word_embeddings
    }
}

fn named(field: &str, name: &str) -> Result<Activation> {
    Activation::named(name).ok_or_else(|| wrong(field, "a known activation", name))
}

impl Architecture for ModernBertConfig {
    fn model_type(&self) -> &'static str {
        "modernbert"
    }

    fn class(&self) -> &'static str {
        CLASSES.iter().find(|(_, task)| *task == self.task).map_or("", |(class, _)| class)
    }

    fn validate(&self) -> Result<()> {
        for (field, size) in [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("num_hidden_layers", self.local_layers.len()),
            ("intermediate_size", self.intermediate_size),
            ("max_position_embeddings", self.max_position_embeddings),
            ("id2label", self.labels.len()),
        ] {
            if size == 0 {
                return Err(wrong(field, "at least 1", "0"));
            }
        }
        let heads = self.num_attention_heads;
        if heads == 0 || !self.hidden_size.is_multiple_of(2 * heads) {
            let expected = format!("a divisor of hidden_size, {}, with an even quotient", self.hidden_size);
            return Err(wrong("num_attention_heads", &expected, &heads.to_string()));
        }
        for (field, rate) in [
            ("embedding_dropout", self.embedding_dropout),
            ("attention_dropout", self.attention_dropout),
            ("mlp_dropout", self.mlp_dropout),
            ("classifier_dropout", self.classifier_dropout),
        ] {
            if !(0.0..1.0).contains(&rate) {
                return Err(wrong(field, "from 0 to below 1", &rate.to_string()));
            }
        }
        if self.task == BertTask::Span && self.labels.len() != 2 {
            return Err(wrong("id2label", "2 labels, start and end", &self.labels.len().to_string()));
        }
        self.activation()?;
        self.head_activation().map(|_| ())
    }

    fn layers(&self) -> Vec<(&'static str, usize)> {
        vec![("num_hidden_layers", self.local_layers.len())]
    }

    fn fields(&self) -> Value {
        let mut value = json!(Fields::of(self));
        if let Value::Object(fields) = &mut value {
            HeadFields::write(&self.labels, fields);
        }
        value
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        parameters(|vb| {
            let body = ModernBert::new(self, vb)?;
            head(self, || Ok(body.table().clone()), vb)
        })
    }

    /// Checkpoints write the body with or without its prefix.
    fn canonical(&self, stored: &str) -> String {
        let bare = stored.strip_prefix("model.").unwrap_or(stored);
        if ["embeddings.", "layers.", "final_norm."].iter().any(|part| bare.starts_with(part)) {
            format!("{}{bare}", self.prefix())
        } else {
            stored.into()
        }
    }

    fn embedding(&self) -> Option<Embedding> {
        self.tied().then_some(Embedding {
            name: "model.embeddings.tok_embeddings.weight",
            others: &[],
            tied_head: Some("decoder.weight"),
        })
    }

    fn untie(&mut self) {
        self.tie_word_embeddings = false;
    }

    fn adapt_to_weights(&mut self, has: &dyn Fn(&str) -> bool) -> bool {
        let is_missing = self.task == BertTask::MaskedLm && !has("head.");
        if is_missing {
            self.task = BertTask::States;
        }
        is_missing
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sporran_checkpoint::{Architecture, Result};

    use super::ModernBertConfig;

    fn read(text: &str) -> Result<ModernBertConfig> {
        ModernBertConfig::from_json(Path::new("config.json"), text)
    }

    #[test]
    fn every_third_layer_is_global_unless_the_file_says_otherwise() {
        let config = read(r#"{"num_hidden_layers": 5}"#).unwrap();
        assert_eq!(config.local_layers, [false, true, true, false, true]);
        assert_eq!((config.window, config.global_theta, config.local_theta), (64, 160_000.0, 10_000.0));
        let text = r#"{"num_hidden_layers": 2, "global_attn_every_n_layers": 1, "local_rope_theta": 5e3}"#;
        let config = read(text).unwrap();
        assert_eq!((config.local_layers, config.local_theta), (vec![false, false], 5e3));
        let text = r#"{"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 7.0}}}"#;
        let config = read(text).unwrap();
        assert_eq!((config.local_layers.as_slice(), config.global_theta), (&[true, false][..], 7.0));
    }

    #[test]
    fn what_is_not_supported_is_refused() {
        for (text, field) in [
            (r#"{"hidden_activation": "prelu"}"#, "hidden_activation"),
            (r#"{"classifier_activation": "prelu"}"#, "classifier_activation"),
            (r#"{"classifier_pooling": "max"}"#, "classifier_pooling"),
            (r#"{"rope_scaling": {"rope_type": "yarn"}}"#, "rope_scaling"),
            (r#"{"num_hidden_layers": 1, "layer_types": ["linear_attention"]}"#, "layer_types"),
            (r#"{"layer_types": []}"#, "layer_types"),
            (r#"{"num_hidden_layers": 2000000000}"#, "num_hidden_layers"),
            (r#"{"num_attention_heads": 5}"#, "num_attention_heads"),
            (r#"{"architectures": ["ModernBertForMultipleChoice"]}"#, "architectures"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("config.json: field `{field}`")), "{error}");
        }
    }

    #[test]
    fn a_written_config_is_read_back() {
        let text = r#"{"num_hidden_layers": 4, "local_attention": 10, "classifier_pooling": "mean", "norm_bias": true,
            "global_rope_theta": 500.0, "architectures": ["ModernBertForSequenceClassification"], "num_labels": 3}"#;
        let config = read(text).unwrap();
        assert_eq!(config.labels, ["LABEL_0", "LABEL_1", "LABEL_2"]);
        assert_eq!(read(&config.to_json().to_string()).unwrap(), config);
    }
}
