//! GGUF files, llama.cpp's format: config, tokenizer and weights in one.
//!
//! The weights, which are mostly quantised, are made into the numbers that they stand for when a model is built, and the
//! model is the same as from safetensors.

use std::{
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
    sync::Mutex,
};

use candle_core::{
    DType, Device, Tensor,
    quantized::gguf_file::{Content, Value},
};
use candle_nn::VarBuilder;
use serde_json::json;

use super::{CausalLm, Llama, LlamaConfig, LlamaKind, gguf_head::head};
use crate::{
    architecture::Architecture,
    chat::Source,
    decode::GenerationOptions,
    device::{DeviceName, Precision},
    engine::FastLlama,
    error::{Error, Result},
    tokenizer::Tokenizer,
};

/// An opened GGUF file of a model of LLaMA's shape.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    config: LlamaConfig,
    content: Content,
    file: Mutex<BufReader<File>>,
}

impl Gguf {
    /// Reads what the file says of itself, and checks that every tensor of the model is there with its shape.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Gguf`] where the file is not GGUF, [`Error::Config`] where it holds another kind of
    /// model or lacks a field, [`Error::MissingTensor`] and [`Error::TensorShape`].
    pub fn open(path: &Path) -> Result<Self> {
        let (content, file) = head(path)?;
        let found = file.get_ref().metadata().map_err(Error::io(path, "read"))?.len();
        let config = config(&Fields { path, content: &content })?;
        let checked = config.check_sizes().and_then(|()| config.validate());
        let checked = checked.and_then(|()| config.check_layers(content.tensor_infos.len()));
        checked.map_err(|error| error.within(path))?;
        for parameter in config.parameters()? {
            let name = stored(&parameter.name);
            let Some(info) = content.tensor_infos.get(&name) else {
                return Err(Error::MissingTensor {
                    path: path.into(),
                    tensor: name,
                    expected: parameter.shape,
                });
            };
            if info.shape != parameter.shape {
                let (expected, found) = (parameter.shape, info.shape.clone());
                return Err(Error::TensorShape { path: path.into(), tensor: name, expected, found });
            }
            // Reading a tensor allocates all of it first.
            let blocks = info.shape.elem_count() / info.ggml_dtype.block_size();
            let expected = (blocks as u64).saturating_mul(info.ggml_dtype.type_size() as u64);
            if expected > found {
                return Err(Error::Truncated { path: path.into(), expected, found });
            }
        }
        Ok(Self { path: path.into(), config, content, file: Mutex::new(file) })
    }

    /// The file's chat template with the special tokens that it may name; none where the file has no template.
    pub(crate) fn chat_source(path: &Path) -> Result<Option<Source>> {
        let (content, _) = head(path)?;
        let fields = Fields { path, content: &content };
        const TEMPLATE: &str = "tokenizer.chat_template";
        if fields.optional(TEMPLATE).is_none() {
            return Ok(None);
        }
        let text = fields.text(TEMPLATE)?.to_owned();
        let words = fields.list("tokenizer.ggml.tokens")?;
        let mut tokens = Vec::new();
        for (name, field) in [
            ("bos_token", "bos_token_id"),
            ("eos_token", "eos_token_id"),
            ("unk_token", "unknown_token_id"),
            ("sep_token", "seperator_token_id"),
            ("pad_token", "padding_token_id"),
        ] {
            let id = fields.token(&format!("tokenizer.ggml.{field}"))?;
            if let Some(Value::String(word)) = id.and_then(|id| words.get(id as usize)) {
                tokens.push((name, word.clone()));
            }
        }
        Ok((!text.trim().is_empty()).then(|| Source { path: path.into(), text, tokens }))
    }

    /// The model's config.
    #[must_use]
    pub fn config(&self) -> &LlamaConfig {
        &self.config
    }

    /// The model for inference, with its weights made into `dtype` on `device`.
    ///
    /// # Errors
    /// [`Error::Gguf`] where a tensor cannot be read, or a tensor error where memory ends.
    pub fn causal_model(&self, dtype: DType, device: &Device) -> Result<Box<dyn CausalLm>> {
        let load = |name: &str| Ok((name.to_owned(), self.tensor(name, dtype, device)?));
        let parameters = self.config.parameters()?;
        let tensors = parameters.iter().map(|parameter| load(&parameter.name)).collect::<Result<_>>()?;
        let vb = VarBuilder::from_tensors(tensors, dtype, device);
        let model = Llama::new(&self.config, &vb)?;
        Ok(Box::new(model.with_defaults(self.config.special_tokens(), GenerationOptions::default())))
    }

    /// The model for inference on a device: packed on a CPU, over candle on a GPU.
    ///
    /// # Errors
    /// As for [`causal_model`](Self::causal_model), and those of [`DeviceName::check`] and [`DeviceName::open`].
    pub fn causal(&self, device: DeviceName, precision: Precision) -> Result<Box<dyn CausalLm>> {
        device.check(precision)?;
        if device != DeviceName::Cpu {
            return self.causal_model(precision.dtype()?, &device.open()?);
        }
        let mut read =
            |name: &str| Ok(self.tensor(name, DType::F32, &Device::Cpu)?.flatten_all()?.to_vec1::<f32>()?);
        let (tokens, generation) = (self.config.special_tokens(), GenerationOptions::default());
        let model = FastLlama::llama(&self.config, tokens, generation, precision.packed()?, &mut read)?;
        Ok(Box::new(model))
    }

    fn tensor(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor> {
        let wrong = |source| Error::Gguf { path: self.path.clone(), source };
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let tensor = self.content.tensor(&mut *file, &stored(name), device).map_err(wrong)?;
        let tensor = tensor.dequantize(device)?;
        let heads = match name.rsplit('.').nth(1) {
            Some("q_proj") => self.config.num_attention_heads,
            Some("k_proj") => self.config.groups(),
            _ => return Ok(tensor.to_dtype(dtype)?),
        };
        if self.config.kind != LlamaKind::Llama {
            return Ok(tensor.to_dtype(dtype)?);
        }
        // In LLaMA's own files the two of a pair that is turned together lie side by side, here half a head apart.
        let shape = tensor.shape().clone();
        let pairs = tensor.reshape((heads, self.config.head_width() / 2, 2, ()))?;
        Ok(pairs.transpose(1, 2)?.contiguous()?.reshape(shape)?.to_dtype(dtype)?)
    }

    /// The tokenizer that the file holds: byte-level BPE, split as GPT-2, SmolLM, LLaMA 3 or Qwen 2 split.
    ///
    /// # Errors
    /// [`Error::Config`] for another kind of tokenizer, [`Error::Tokenizer`] where its parts do not fit.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        let fields = Fields { path: &self.path, content: &self.content };
        Tokenizer::from_json(&self.path, tokenizer(&fields)?.to_string())
    }
}

/// The name in the file of what `transformers` calls `name`.
fn stored(name: &str) -> String {
    let parts: Vec<&str> = name.split('.').collect();
    match parts.as_slice() {
        ["model", "embed_tokens", end] => format!("token_embd.{end}"),
        ["model", "norm", end] => format!("output_norm.{end}"),
        ["lm_head", end] => format!("output.{end}"),
        ["model", "layers", layer, inner @ .., end] => {
            let inner = match inner {
                ["input_layernorm"] => "attn_norm",
                ["post_attention_layernorm"] => "ffn_norm",
                ["self_attn", "q_proj"] => "attn_q",
                ["self_attn", "k_proj"] => "attn_k",
                ["self_attn", "v_proj"] => "attn_v",
                ["self_attn", "o_proj"] => "attn_output",
                ["mlp", "gate_proj"] => "ffn_gate",
                ["mlp", "up_proj"] => "ffn_up",
                ["mlp", "down_proj"] => "ffn_down",
                other => return format!("blk.{layer}.{}.{end}", other.join(".")),
            };
            format!("blk.{layer}.{inner}.{end}")
        }
        _ => name.into(),
    }
}

/// The fields of a file's head.
struct Fields<'a> {
    path: &'a Path,
    content: &'a Content,
}

impl Fields<'_> {
    fn wrong(&self, field: &str, expected: &str, found: impl Into<String>) -> Error {
        let path = self.path.into();
        Error::Config { path, field: field.into(), expected: expected.into(), found: found.into() }
    }

    fn optional(&self, field: &str) -> Option<&Value> {
        self.content.metadata.get(field)
    }

    fn text(&self, field: &str) -> Result<&str> {
        match self.optional(field) {
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(self.wrong(field, "a text", format!("{:?}", other.value_type()))),
            None => Err(self.wrong(field, "a text", "none")),
        }
    }

    fn size_or_none(&self, field: &str) -> Result<Option<usize>> {
        let Some(value) = self.optional(field) else { return Ok(None) };
        // The bounds of a file that says nothing sensible are not worth more than an error.
        let size =
            value.to_u64().ok().or_else(|| value.to_i32().ok().and_then(|value| u64::try_from(value).ok()));
        let size = size.and_then(|size| usize::try_from(size).ok());
        size.map(Some).ok_or_else(|| self.wrong(field, "a size", format!("{:?}", value.value_type())))
    }

    fn size(&self, field: &str) -> Result<usize> {
        self.size_or_none(field)?.ok_or_else(|| self.wrong(field, "a size", "none"))
    }

    /// The id of a token of the vocabulary; a number that no token has, such as -1, stands for none.
    fn token(&self, field: &str) -> Result<Option<u32>> {
        let Some(value) = self.optional(field) else { return Ok(None) };
        let id = match value {
            Value::I8(id) => i64::from(*id),
            Value::I16(id) => i64::from(*id),
            Value::I32(id) => i64::from(*id),
            Value::I64(id) => *id,
            _ => self.size_or_none(field)?.and_then(|id| i64::try_from(id).ok()).unwrap_or(-1),
        };
        let count = self.list("tokenizer.ggml.tokens")?.len();
        Ok(u32::try_from(id).ok().filter(|id| (*id as usize) < count))
    }

    fn number(&self, field: &str) -> Result<Option<f64>> {
        let Some(value) = self.optional(field) else { return Ok(None) };
        let number = value.to_f32().map(f64::from).or_else(|_| value.to_f64());
        number.map(Some).map_err(|_| self.wrong(field, "a number", format!("{:?}", value.value_type())))
    }

    fn list(&self, field: &str) -> Result<&[Value]> {
        match self.optional(field) {
            Some(Value::Array(values)) => Ok(values),
            Some(other) => Err(self.wrong(field, "a list", format!("{:?}", other.value_type()))),
            None => Err(self.wrong(field, "a list", "none")),
        }
    }

    fn texts(&self, field: &str) -> Result<Vec<&str>> {
        let mut texts = Vec::new();
        for value in self.list(field)? {
            match value {
                Value::String(text) => texts.push(text.as_str()),
                other => {
                    return Err(self.wrong(field, "a list of texts", format!("{:?}", other.value_type())));
                }
            }
        }
        Ok(texts)
    }
}

fn config(fields: &Fields<'_>) -> Result<LlamaConfig> {
    let name = fields.text("general.architecture")?;
    let kind = match name {
        "llama" => LlamaKind::Llama,
        "qwen2" => LlamaKind::Qwen2,
        other => {
            return Err(fields.wrong("general.architecture", "`llama` or `qwen2`", format!("`{other}`")));
        }
    };
    let field = |field: &str| format!("{name}.{field}");
    let scaling = field("rope.scaling.type");
    if let Some(Value::String(kind)) = fields.optional(&scaling)
        && kind != "none"
    {
        return Err(fields.wrong(&scaling, "`none`", format!("`{kind}`")));
    }
    if fields.content.tensor_infos.contains_key("rope_freqs.weight") {
        return Err(fields.wrong("rope_freqs.weight", "no such tensor, as angles are not stretched", "one"));
    }
    let heads = fields.size(&field("attention.head_count"))?;
    let width = fields.size(&field("embedding_length"))?;
    let head = fields.size_or_none(&field("attention.key_length"))?;
    let turned = fields.size_or_none(&field("rope.dimension_count"))?;
    let head = head.unwrap_or(width / heads.max(1));
    if turned.is_some_and(|turned| turned != head) {
        let found = format!("{turned:?}");
        return Err(fields.wrong(
            &field("rope.dimension_count"),
            &format!("the width of a head, {head}"),
            found,
        ));
    }
    let epsilon = field("attention.layer_norm_rms_epsilon");
    Ok(LlamaConfig {
        kind,
        vocab_size: fields.list("tokenizer.ggml.tokens")?.len(),
        hidden_size: width,
        intermediate_size: fields.size(&field("feed_forward_length"))?,
        num_hidden_layers: fields.size(&field("block_count"))?,
        num_attention_heads: heads,
        num_key_value_heads: fields.size_or_none(&field("attention.head_count_kv"))?,
        head_dim: Some(head),
        max_position_embeddings: fields.size(&field("context_length"))?,
        rms_norm_eps: fields.number(&epsilon)?.ok_or_else(|| fields.wrong(&epsilon, "a number", "none"))?,
        rope_theta: fields.number(&field("rope.freq_base"))?,
        tie_word_embeddings: !fields.content.tensor_infos.contains_key("output.weight"),
        bos_token_id: fields.token("tokenizer.ggml.bos_token_id")?,
        eos_token_id: ends(fields)?,
        pad_token_id: fields.token("tokenizer.ggml.padding_token_id")?,
        ..LlamaConfig::default()
    })
}

/// The tokens that end a sequence, and those that end a turn of it.
fn ends(fields: &Fields<'_>) -> Result<Vec<u32>> {
    let mut ends = Vec::new();
    for name in ["eos_token_id", "eot_token_id", "eom_token_id"] {
        let id = fields.token(&format!("tokenizer.ggml.{name}"))?;
        ends.extend(id.filter(|id| !ends.contains(id)));
    }
    Ok(ends)
}

/// A word's contractions, and runs of letters, of digits, of other signs and of spaces, as LLaMA 3 and Qwen 2 split.
fn split(digits: &str) -> serde_json::Value {
    let words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|";
    let rest = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    json!({ "type": "Split", "pattern": { "Regex": format!("{words}{digits}{rest}") }, "behavior": "Isolated", "invert": false })
}

/// The `tokenizer.json` of what the file's head describes.
fn tokenizer(fields: &Fields<'_>) -> Result<serde_json::Value> {
    let model = fields.text("tokenizer.ggml.model")?;
    if model != "gpt2" {
        return Err(fields.wrong("tokenizer.ggml.model", "`gpt2`, byte-level BPE", format!("`{model}`")));
    }
    let bytes = |splits: bool| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": splits });
    let both = |first, second| json!({ "type": "Sequence", "pretokenizers": [first, second] });
    let (normalizer, pre_tokenizer, ignores_merges) = match fields.text("tokenizer.ggml.pre")? {
        "gpt-2" => (None, bytes(true), false),
        "smollm" => (None, both(json!({ "type": "Digits", "individual_digits": true }), bytes(true)), false),
        "llama-bpe" => (None, both(split(r"\p{N}{1,3}"), bytes(false)), true),
        "qwen2" => (Some(json!({ "type": "NFC" })), both(split(r"\p{N}"), bytes(false)), false),
        other => {
            let expected = "`gpt-2`, `smollm`, `llama-bpe` or `qwen2`";
            return Err(fields.wrong("tokenizer.ggml.pre", expected, format!("`{other}`")));
        }
    };
    let tokens = fields.texts("tokenizer.ggml.tokens")?;
    let vocab: serde_json::Map<_, _> =
        tokens.iter().enumerate().map(|(id, token)| ((*token).to_owned(), id.into())).collect();
    let mut added = Vec::new();
    if let Some(Value::Array(types)) = fields.optional("tokenizer.ggml.token_type") {
        for (id, (kind, token)) in types.iter().zip(&tokens).enumerate() {
            // Kind 3 steers the model and is no text; kind 4 was added as text.
            let kind = kind.to_i32().unwrap_or_default();
            if kind == 3 || kind == 4 {
                added.push(json!({
                    "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": kind == 3,
                }));
            }
        }
    }
    let begins = matches!(fields.optional("tokenizer.ggml.add_bos_token"), Some(Value::Bool(true)));
    let bos = fields.token("tokenizer.ggml.bos_token_id")?;
    let bos = bos.filter(|_| begins).and_then(|id| Some((id, *tokens.get(id as usize)?)));
    let post_processor = bos.map(|(id, token)| {
        let mark = json!({ "SpecialToken": { "id": token, "type_id": 0 } });
        let text = |name: &str| json!({ "Sequence": { "id": name, "type_id": 0 } });
        json!({
            "type": "TemplateProcessing", "single": [mark, text("A")], "pair": [mark, text("A"), mark, text("B")],
            "special_tokens": { token: { "id": token, "ids": [id], "tokens": [token] } },
        })
    });
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer, "post_processor": post_processor, "decoder": bytes(true),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": ignores_merges,
            "vocab": vocab, "merges": fields.texts("tokenizer.ggml.merges")?,
        },
    }))
}

/// The one GGUF file of a folder without a `config.json`, or the file itself.
///
/// # Errors
/// [`Error::Io`] where the folder cannot be read.
pub fn find_gguf(path: &Path) -> Result<Option<PathBuf>> {
    let is_gguf = |path: &Path| path.extension().is_some_and(|extension| extension == "gguf");
    if !path.is_dir() {
        return Ok(is_gguf(path).then(|| path.to_owned()));
    }
    if path.join("config.json").exists() {
        return Ok(None);
    }
    let mut found = Vec::new();
    for entry in path.read_dir().map_err(Error::io(path, "read"))? {
        found.push(entry.map_err(Error::io(path, "read"))?.path());
    }
    found.retain(|path| is_gguf(path));
    Ok(if found.len() == 1 { found.pop() } else { None })
}

#[cfg(test)]
mod tests {
    use super::stored;

    #[test]
    fn names_are_those_of_llama_cpp() {
        for (name, expected) in [
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("model.norm.weight", "output_norm.weight"),
            ("lm_head.weight", "output.weight"),
            ("model.layers.3.self_attn.q_proj.bias", "blk.3.attn_q.bias"),
            ("model.layers.11.mlp.down_proj.weight", "blk.11.ffn_down.weight"),
            ("model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"),
        ] {
            assert_eq!(stored(name), expected);
        }
    }
}
