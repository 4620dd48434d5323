//! First weights with which a T5 copies from its input before it has learned anything.
//!
//! A reader's answers are mostly spans of its passages, and from random weights most of a short training goes into
//! finding the circuit that copies a span. That circuit is known (Olsson et al. 2022: previous-token heads and
//! induction heads), so it can be part of the initialisation, as in mimetic initialisation (Trockman and Kolter 2023).
//! The weights below are ordinary weights, which training can change.
//!
//! * Encoder self-attention matches the key of the same token (`q` is a multiple of `k`), so that mentions of one name
//!   see each other. In the first layer, head 0 looks at the previous and head 1 at the next position instead.
//! * Decoder cross-attention gives back the token that it looks at (`o` is the transpose of `v`), which tied
//!   embeddings turn into a prediction of that token.
//! * The other parts of the encoder, and the decoder's self-attention and feed-forward parts, start small (their
//!   output weights are a tenth of T5's), so that a token's vector reaches the decoder almost unchanged.
//! * Half of the cross-attention heads look for the place whose previous token is the decoder's last one (`q` is `k`
//!   times the map by which head 0 passes on the previous token), so that a copied span continues.

use candle_core::{DType, Tensor, Var};
use sporran_checkpoint::{Error, Result};
use sporran_transformers::T5Config;

use crate::variables::Variables;

/// The score of the one position that a positional head looks at.
const POSITIONAL_SCORE: f32 = 6.0;
/// The expected score of a token with itself, in units of a head's width.
const MATCH_SCORE: f64 = 4.0;
/// The factor of the output weights of all other parts.
const WHISPER: f64 = 0.1;

/// Writes the weights described above into the fresh variables of a T5.
///
/// # Errors
/// [`Error::Options`] where the model has fewer than two heads, or too few position buckets to tell a position's two
/// neighbours; [`Error::Training`] where a variable is not there.
pub fn wire_copying(variables: &Variables, config: &T5Config) -> Result<()> {
    let (heads, width, model) = (config.num_heads, config.d_kv, config.d_model);
    let buckets = config.relative_attention_num_buckets;
    if heads < 2 || buckets < 4 {
        return Err(Error::Options {
            option: "copying",
            expected: "a model with at least 2 heads and 4 position buckets".into(),
            found: format!("{heads} heads and {buckets} buckets"),
        });
    }
    let scale = MATCH_SCORE / width as f64;
    let weight = |layer: &str, part: &str| read(variables, &format!("{layer}.{part}.weight"));
    let first = "encoder.block.0.layer.0.SelfAttention";

    for (name, _) in variables.all() {
        if name.ends_with(".wo.weight") || name.ends_with(".SelfAttention.o.weight") {
            let mut quiet = (read(variables, &name)? * WHISPER)?;
            if name.starts_with(first) {
                let (kept, others) = (2 * width, (heads - 2) * width);
                let loud = read(variables, &name)?.narrow(1, 0, kept)?;
                quiet = Tensor::cat(&[&loud, &quiet.narrow(1, kept, others)?], 1)?;
            }
            write(variables, &name, &quiet)?;
        }
    }
    for block in 0..config.num_layers {
        let layer = format!("encoder.block.{block}.layer.0.SelfAttention");
        let mut queries = (weight(&layer, "k")? * scale)?;
        if block == 0 {
            let none = Tensor::zeros((2 * width, model), DType::F32, queries.device())?;
            queries = Tensor::cat(&[&none, &queries.narrow(0, 2 * width, (heads - 2) * width)?], 0)?;
        }
        write(variables, &format!("{layer}.q.weight"), &queries)?;
    }
    let name = format!("{first}.relative_attention_bias.weight");
    let mut bias = read(variables, &name)?.to_vec2::<f32>()?;
    // Bucket 1 is the distance of the previous position; those of later positions are in the second half.
    bias[1][0] = POSITIONAL_SCORE;
    bias[buckets / 2 + 1][1] = POSITIONAL_SCORE;
    let bias = Tensor::new(bias, read(variables, &name)?.device())?;
    write(variables, &name, &bias)?;

    let out = weight(first, "o")?.narrow(1, 0, width)?.contiguous()?;
    let passed_on = out.matmul(&weight(first, "v")?.narrow(0, 0, width)?.contiguous()?)?;
    // The copied values have the energy of one head out of all, so the scale of a match is multiplied by their number.
    let scale = scale * heads as f64;
    for block in 0..config.decoder_layers() {
        let layer = format!("decoder.block.{block}.layer.1.EncDecAttention");
        write(variables, &format!("{layer}.o.weight"), &weight(&layer, "v")?.t()?)?;
        let following = heads / 2 * width;
        let keys = weight(&layer, "k")?.narrow(0, 0, following)?.contiguous()?;
        let rest = weight(&layer, "q")?.narrow(0, following, heads * width - following)?;
        let queries = Tensor::cat(&[&(keys.matmul(&passed_on)? * scale)?, &rest], 0)?;
        write(variables, &format!("{layer}.q.weight"), &queries)?;
    }
    Ok(())
}

fn variable(variables: &Variables, name: &str) -> Result<Var> {
    variables.named(name).ok_or_else(|| Error::Training {
        what: format!("variable `{name}`"),
        expected: "one of a T5".into(),
        found: "none".into(),
    })
}

fn read(variables: &Variables, name: &str) -> Result<Tensor> {
    Ok(variable(variables, name)?.as_detached_tensor().copy()?)
}

fn write(variables: &Variables, name: &str, tensor: &Tensor) -> Result<()> {
    Ok(variable(variables, name)?.set(&tensor.contiguous()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use sporran_transformers::Batch;
    use sporran_transformers::Cache;
    use sporran_transformers::Seq2Seq;
    use sporran_transformers::T5;

    fn config() -> T5Config {
        T5Config {
            vocab_size: 200,
            d_model: 128,
            d_kv: 32,
            d_ff: 64,
            num_layers: 1,
            num_heads: 4,
            dropout_rate: 0.0,
            ..T5Config::default()
        }
    }

    /// For each token of an input but the last: how many tokens score higher than its successor, when the decoder
    /// was given that token.
    fn ranks(wired: bool) -> Vec<usize> {
        let config = config();
        let variables = Variables::new(3);
        let model = T5::new(&config, &variables.builder(&Device::Cpu)).unwrap();
        if wired {
            wire_copying(&variables, &config).unwrap();
        }
        let input: Vec<u32> = (0..12).map(|i| 10 + i * 13).collect();
        let memory = model.encode(&Batch::new(&[&input], 0, &Device::Cpu).unwrap()).unwrap();
        (0..11)
            .map(|i| {
                let logits = model.decode(&[input[i]], 1, &memory, &mut Cache::new()).unwrap();
                logits.iter().filter(|score| **score > logits[input[i + 1] as usize]).count()
            })
            .collect()
    }

    #[test]
    fn an_untrained_model_expects_what_follows_in_its_input() {
        let (wired, random) = (ranks(true), ranks(false));
        // Of 200 tokens, a random rank is below 20 once in ten.
        let near = |ranks: &[usize]| ranks.iter().filter(|rank| **rank < 20).count();
        assert!(near(&wired) >= 9 && near(&random) <= 3, "{wired:?} {random:?}");
    }

    #[test]
    fn a_model_with_one_head_is_refused() {
        let config = T5Config { num_heads: 1, ..config() };
        assert!(wire_copying(&Variables::new(0), &config).unwrap_err().to_string().contains("1 heads"));
    }
}
