//! The names of tensors in GGUF files, and the layouts that differ there.

use crate::architectures::llama::LlamaKind;

/// The rows of `heads` heads, each of `width` rows, in which the two of a pair lie half a head apart instead of side by
/// side.
pub(super) fn apart(bytes: &[u8], heads: usize, width: usize) -> Vec<u8> {
    let size = bytes.len() / (heads * width);
    let places =
        |head: usize| (0..width).map(move |row| head * width + row % (width / 2) * 2 + row / (width / 2));
    (0..heads).flat_map(places).flat_map(|row| &bytes[row * size..][..size]).copied().collect()
}

/// The equal blocks of `bytes` that are at these places.
pub(super) fn regrouped(bytes: &[u8], places: &[usize]) -> Vec<u8> {
    let size = bytes.len() / places.len().max(1);
    places.iter().flat_map(|place| &bytes[place * size..][..size]).copied().collect()
}

/// Whether the two values of a pair that is turned together lie side by side in files of this kind.
pub(super) fn has_adjacent_pairs(kind: LlamaKind) -> bool {
    matches!(
        kind,
        LlamaKind::Arcee
            | LlamaKind::Granite
            | LlamaKind::Llama
            | LlamaKind::Mistral
            | LlamaKind::Mixtral
            | LlamaKind::SmolLm3
    )
}

/// The name in the file of the tensor that `transformers` calls `name`.
pub(super) fn stored(kind: LlamaKind, name: &str) -> String {
    let names = kind.names();
    let parts: Vec<&str> = name.split('.').collect();
    if name == names.table {
        return "token_embd.weight".into();
    }
    match parts.as_slice() {
        [body, norm, end] if *body == names.body && *norm == names.norm => format!("output_norm.{end}"),
        [body, norm, end] if *body == names.body && Some(*norm) == kind.embedding_norm() => {
            format!("token_embd_norm.{end}")
        }
        [head, end] if *head == names.head => format!("output.{end}"),
        [body, layers, layer, inner @ .., end] if *body == names.body && *layers == names.layers => {
            let inner = match inner {
                ["post_attention_layernorm"] if kind == LlamaKind::Glm4 => "ffn_norm",
                ["post_self_attn_layernorm"] => "post_attention_norm",
                ["post_mlp_layernorm"] => "post_ffw_norm",
                ["ln_attn"] => "attn_norm_2",
                ["norm_2"] => "ffn_norm",
                ["attention" | "self_attention", "query_key_value"] | ["attn", "Wqkv"] => "attn_qkv",
                ["attention" | "self_attention" | "self_attn", "dense"] | ["attn", "out_proj"] => {
                    "attn_output"
                }
                ["mlp", "c_fc" | "dense_h_to_4h" | "fc1"] | ["ffn", "up_proj"] => "ffn_up",
                ["mlp", "c_proj" | "dense_4h_to_h" | "fc2"] | ["ffn", "down_proj"] => "ffn_down",
                ["input_layernorm" | "ln_mlp" | "norm_1"] => "attn_norm",
                ["post_attention_layernorm"] if kind.norms_results() || kind == LlamaKind::SeedOss => {
                    "post_attention_norm"
                }
                ["post_attention_layernorm" | "pre_feedforward_layernorm"] => "ffn_norm",
                ["post_feedforward_layernorm"] => "post_ffw_norm",
                ["self_attn", "q_proj"] => "attn_q",
                ["self_attn", "k_proj"] => "attn_k",
                ["self_attn", "v_proj"] => "attn_v",
                ["self_attn", "qkv_proj"] => "attn_qkv",
                ["self_attn", "q_norm"] => "attn_q_norm",
                ["self_attn", "k_norm"] => "attn_k_norm",
                ["self_attn", "o_proj"] => "attn_output",
                ["mlp", "gate_proj"] => "ffn_gate",
                ["mlp", "up_proj" | "gate_up_proj"] => "ffn_up",
                ["mlp", "down_proj"] => "ffn_down",
                ["mlp" | "block_sparse_moe", "gate"] => "ffn_gate_inp",
                ["mlp", "shared_expert_gate"] => "ffn_gate_inp_shexp",
                ["mlp", "shared_expert", "gate_proj"] => "ffn_gate_shexp",
                ["mlp", "shared_expert", "up_proj"] => "ffn_up_shexp",
                ["mlp", "shared_expert", "down_proj"] => "ffn_down_shexp",
                [_, "experts", _, "gate_proj" | "w1"] => "ffn_gate_exps",
                [_, "experts", _, "up_proj" | "w3"] => "ffn_up_exps",
                [_, "experts", _, "down_proj" | "w2"] => "ffn_down_exps",
                other => return format!("blk.{layer}.{}.{end}", other.join(".")),
            };
            format!("blk.{layer}.{inner}.{end}")
        }
        _ => name.into(),
    }
}

/// The number of the expert whose tensor `transformers` calls `name`. These files have those of a layer's experts in one.
pub(super) fn expert_of(name: &str) -> Option<usize> {
    let (_, end) = name.split_once(".experts.")?;
    end.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{LlamaKind, apart, expert_of, regrouped, stored};

    #[test]
    fn pairs_are_put_half_a_head_apart() {
        // Two heads of four rows of two bytes.
        let rows: Vec<u8> = (0..8).flat_map(|row| [row, 10 + row]).collect();
        let expected = [0, 2, 1, 3, 4, 6, 5, 7].iter().flat_map(|row| [*row, 10 + row]).collect::<Vec<u8>>();
        assert_eq!(apart(&rows, 2, 4), expected);
    }

    #[test]
    fn blocks_are_put_at_their_places() {
        assert_eq!(regrouped(&[0, 1, 2, 3, 4, 5], &[2, 0, 1]), [4, 5, 0, 1, 2, 3]);
    }

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
            assert_eq!(stored(LlamaKind::Llama, name), expected);
        }
        let name = "model.layers.4.block_sparse_moe.experts.7.w2.weight";
        assert_eq!(stored(LlamaKind::Mixtral, name), "blk.4.ffn_down_exps.weight");
        assert_eq!(expert_of(name), Some(7));
        assert_eq!(expert_of("model.layers.4.mlp.gate.weight"), None);
        for (kind, name, expected) in [
            (LlamaKind::Qwen2Moe, "mlp.gate", "ffn_gate_inp"),
            (LlamaKind::Qwen2Moe, "mlp.shared_expert.up_proj", "ffn_up_shexp"),
            (LlamaKind::Gemma3, "post_attention_layernorm", "post_attention_norm"),
            (LlamaKind::Gemma3, "pre_feedforward_layernorm", "ffn_norm"),
            (LlamaKind::Olmo2, "post_attention_layernorm", "post_attention_norm"),
            (LlamaKind::Olmo2, "post_feedforward_layernorm", "post_ffw_norm"),
            (LlamaKind::Qwen3, "self_attn.q_norm", "attn_q_norm"),
            (LlamaKind::Glm4, "post_attention_layernorm", "ffn_norm"),
            (LlamaKind::Exaone4, "post_attention_layernorm", "post_attention_norm"),
            (LlamaKind::Phi3, "self_attn.qkv_proj", "attn_qkv"),
            (LlamaKind::Phi3, "mlp.gate_up_proj", "ffn_up"),
        ] {
            let name = format!("model.layers.2.{name}.weight");
            assert_eq!(stored(kind, &name), format!("blk.2.{expected}.weight"), "{kind:?}");
        }
    }
}
