//! The architectures of GGUF files that candle has. The weights stay quantised.

use std::{fs::File, io::BufReader};

use candle_core::{Device, Result as CandleResult, quantized::gguf_file::Content};
use candle_transformers::models::{
    quantized_gemma3, quantized_glm4, quantized_llama, quantized_phi, quantized_phi3, quantized_qwen2,
    quantized_qwen3,
};
use sporran_checkpoint::{Error, GgufFile, Result};

use super::{
    config::MOST_POSITIONS,
    sequence::{CandleModel, Cloned, Read, Shared},
};

/// The parts of a file that a model is made from.
pub(super) type Parts = (Content, BufReader<File>, Device);

/// Makes a model.
pub(super) type Load = fn(Parts) -> CandleResult<Box<dyn CandleModel>>;

/// The architectures by `general.architecture`, in alphabetical order, each with the most positions that candle has for it.
pub(super) const FILES: &[(&str, usize, Load)] = &[
    ("gemma3", quantized_gemma3::MAX_SEQ_LEN, |parts| {
        cloned(parts, quantized_gemma3::ModelWeights::from_gguf, quantized_gemma3::ModelWeights::forward)
    }),
    ("glm4", MOST_POSITIONS, |parts| {
        cloned(
            parts,
            |content, file, device| {
                quantized_glm4::ModelWeights::from_gguf(content, file, device, candle_core::DType::F32)
            },
            quantized_glm4::ModelWeights::forward,
        )
    }),
    ("llama", quantized_llama::MAX_SEQ_LEN, |parts| {
        cloned(parts, quantized_llama::ModelWeights::from_gguf, quantized_llama::ModelWeights::forward)
    }),
    ("phi2", quantized_phi::MAX_SEQ_LEN, |parts| {
        cloned(parts, quantized_phi::ModelWeights::from_gguf, quantized_phi::ModelWeights::forward)
    }),
    ("phi3", MOST_POSITIONS, |parts| {
        cloned(
            parts,
            |content, file, device| quantized_phi3::ModelWeights::from_gguf(false, content, file, device),
            quantized_phi3::ModelWeights::forward,
        )
    }),
    ("qwen2", MOST_POSITIONS, |parts| {
        shared(parts, quantized_qwen2::ModelWeights::from_gguf, quantized_qwen2::ModelWeights::forward)
    }),
    ("qwen3", MOST_POSITIONS, |parts| {
        cloned(parts, quantized_qwen3::ModelWeights::from_gguf, quantized_qwen3::ModelWeights::forward)
    }),
];

/// A model that is cloned for each sequence.
fn cloned<M: Clone + Send + Sync + 'static>(
    (content, mut file, device): Parts,
    new: impl FnOnce(Content, &mut BufReader<File>, &Device) -> CandleResult<M>,
    read: Read<M>,
) -> CandleResult<Box<dyn CandleModel>> {
    Ok(Box::new(Cloned { model: new(content, &mut file, &device)?, read }))
}

/// A model that all sequences share.
fn shared<M: Send + 'static>(
    (content, mut file, device): Parts,
    new: impl FnOnce(Content, &mut BufReader<File>, &Device) -> CandleResult<M>,
    read: Read<M>,
) -> CandleResult<Box<dyn CandleModel>> {
    Ok(Box::new(Shared::new(new(content, &mut file, &device)?, read)))
}

/// The architecture of a file, with the length of its longest sequence and its number of logits. Sizes are checked, and that
/// the file asks for nothing that candle's models leave out.
///
/// # Errors
/// [`Error::Config`] and [`Error::Truncated`].
pub(super) fn check(file: &GgufFile) -> Result<(Load, usize, usize)> {
    let fields = file.fields();
    let name = fields.text("general.architecture")?;
    let Some((_, most, load)) = FILES.iter().find(|(known, ..)| *known == name) else {
        return Err(fields.wrong("general.architecture", &names(), format!("`{name}`")));
    };
    let field = |field: &str| format!("{name}.{field}");
    let size = |end: &str, most: usize| {
        let size = fields.size(&field(end))?;
        if size == 0 || size > most {
            return Err(fields.wrong(&field(end), &format!("1 to {most}"), size.to_string()));
        }
        Ok(size)
    };
    let width = size("embedding_length", i32::MAX as usize)?;
    let heads = size("attention.head_count", width)?;
    let groups = size("attention.head_count_kv", heads)?;
    if !heads.is_multiple_of(groups) {
        let expected = format!("a divisor of {heads}");
        return Err(fields.wrong(&field("attention.head_count_kv"), &expected, groups.to_string()));
    }
    for end in ["attention.key_length", "rope.dimension_count"] {
        if fields.optional(&field(end)).is_some() {
            size(end, 1 << 16)?;
        }
    }
    size("block_count", file.tensor_count())?;
    let positions = size("context_length", MOST_POSITIONS)?;
    let window = fields.size_or_none(&field("attention.sliding_window"))?.filter(|window| *window > 0);
    let scaling = field("rope.scaling.type");
    if fields.optional(&scaling).is_some() && fields.text(&scaling)? != "none" {
        return Err(fields.wrong(&scaling, "`none`", format!("`{}`", fields.text(&scaling)?)));
    }
    for tensor in ["rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"] {
        if file.has_tensor(tensor) {
            return Err(fields.wrong(tensor, "no such tensor, as angles are not stretched", "one"));
        }
    }
    if let Some(base) = fields.number(&field("rope.freq_base"))?.filter(|_| name.starts_with("phi"))
        && base != 10_000.0
    {
        return Err(fields.wrong(&field("rope.freq_base"), "10000", base.to_string()));
    }
    file.check_lengths()?;
    let logits = file.rows("output.weight").or_else(|| file.rows("token_embd.weight"));
    let logits = logits.ok_or_else(|| fields.wrong("token_embd.weight", "a tensor", "none"))?;
    // Windows are treated otherwise than by llama.cpp, so a sequence ends there.
    let longest = positions.min(*most).min(window.unwrap_or(usize::MAX));
    Ok((*load, longest, logits))
}

/// The architectures, for errors.
pub(super) fn names() -> String {
    let names: Vec<String> = FILES.iter().map(|(name, ..)| format!("`{name}`")).collect();
    format!("one of {} with the engine `candle`", names.join(", "))
}

/// Makes the model of a file.
///
/// # Errors
/// [`Error::Gguf`] where a tensor or a field is missing.
pub(super) fn load(load: Load, file: GgufFile, device: &Device) -> Result<Box<dyn CandleModel>> {
    let (path, content, reader) = file.into_parts();
    load((content, reader, device.clone())).map_err(|source| Error::gguf(path, &source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_order_and_has_no_name_twice() {
        assert!(FILES.is_sorted_by(|a, b| a.0 < b.0));
        assert!(names().starts_with("one of `gemma3`, `glm4`, `llama`"));
    }
}
