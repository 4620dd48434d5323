"""Makes the parity fixtures of the encoder-decoders of T5's and BART's families: mT5, UMT5, LongT5, Switch, LED, mBART, Pegasus, Marian, M2M100,
both Blenderbots, PLBART, MVP and BigBird-Pegasus.

They have the layout of `transformers_parity.py`, with fewer inputs and cases, in crates/transformers/tests/data.

    python scripts/reference/seq2seq_families.py [NAME]..   # torch 2.15, transformers 5.24, tokenizers 0.23
"""

import json
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    BigBirdPegasusConfig,
    BigBirdPegasusForConditionalGeneration,
    BlenderbotConfig,
    BlenderbotForConditionalGeneration,
    BlenderbotSmallConfig,
    BlenderbotSmallForConditionalGeneration,
    LEDConfig,
    LEDForConditionalGeneration,
    LongT5Config,
    LongT5ForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    MT5Config,
    MT5ForConditionalGeneration,
    MvpConfig,
    MvpForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PLBartConfig,
    PLBartForConditionalGeneration,
    SwitchTransformersConfig,
    SwitchTransformersForConditionalGeneration,
    UMT5Config,
    UMT5ForConditionalGeneration,
)
from transformers_parity import WORDS, t5_tokenizer, texts
from transformers_parity import write as write_fixture

CASES = [
    "greedy",
    "greedy, least 12, no bigram twice",
    "greedy, folder's length",
    "beam 4",
    "beam 4, length 2, all returned",
    "beam 4, early",
    "beam 2, forced",
    "greedy, forced",
    "beam 4, two ends",
]
CODES = ["en_XX", "ro_RO"]
# The deviations of the weights of models whose norms after each part and whose tied heads repeat a token otherwise.
DEVIATIONS = {
    "marian": {"encoder_attn": 0.1, "self_attn": 1.2, "fc1": 1.0, "fc2": 2.0, "shared": 0.2},
    "plbart": {"encoder_attn": 0.25, "shared": 0.1},
    "mvp": {"encoder_attn": 0.25, "shared": 0.1},
    "led": {"encoder_attn": 0.25, "shared": 0.1},
}


def write(name, *arguments):
    if len(sys.argv) == 1 or name in sys.argv[1:]:
        write_fixture(name, *arguments)


def mbart_tokenizer():
    """A hand-made unigram model with fairseq's tokens before it, and two language codes and a mask after it."""
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [("▁" + word, -3.0 - i / 16) for i, word in enumerate(WORDS)]
    pieces += [(c, -9.0 - i / 16) for i, c in enumerate("▁abcdefghijklmnopqrstuvwxyzW?,.'-")]
    pieces += [(code, 0.0) for code in CODES] + [("<mask>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3, byte_fallback=False))
    mark = {"replacement": "▁", "prepend_scheme": "always"}
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(**mark)])
    tokenizer.decoder = decoders.Metaspace(**mark)
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", *CODES, "<mask>"])
    special = [(token, tokenizer.token_to_id(token)) for token in ("</s>", "en_XX")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s> en_XX", pair="$A $B </s> en_XX", special_tokens=special
    )
    return tokenizer


def nllb_tokenizer():
    """mBART's with the code of the input's language before the text."""
    tokenizer = mbart_tokenizer()
    special = [(token, tokenizer.token_to_id(token)) for token in ("en_XX", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="en_XX $A </s>", pair="en_XX $A $B </s>", special_tokens=special
    )
    return tokenizer


def blenderbot_tokenizer():
    """T5's tokenizer in the order of a Blenderbot's vocabulary."""
    stored = json.loads(t5_tokenizer().to_str())
    pieces = [("<pad>", 0.0), ("<s>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *map(tuple, stored["model"]["vocab"][3:])]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3, byte_fallback=False))
    other = t5_tokenizer()
    tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = other.normalizer, other.pre_tokenizer, other.decoder
    tokenizer.add_special_tokens(["<pad>", "<s>", "</s>", "<unk>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A $B </s>", special_tokens=[("</s>", 2)]
    )
    return tokenizer


def marian_tokenizer():
    """T5's tokenizer in the order of a Marian's vocabulary: the end and the unknown token first, padding last."""
    stored = json.loads(t5_tokenizer().to_str())
    pieces = [("</s>", 0.0), ("<unk>", 0.0), *map(tuple, stored["model"]["vocab"][3:]), ("<pad>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=1, byte_fallback=False))
    other = t5_tokenizer()
    tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = other.normalizer, other.pre_tokenizer, other.decoder
    tokenizer.add_special_tokens(["</s>", "<unk>", "<pad>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A $B </s>", special_tokens=[("</s>", 0)]
    )
    return tokenizer


def t5_like(seed, kind, build, vocabulary, **settings):
    torch.manual_seed(seed)
    config = kind(**{
        "vocab_size": vocabulary, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 3, "num_decoder_layers": 2,
        "num_heads": 3, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "decoder_start_token_id": 0,
    } | settings)
    model = build(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "relative_attention_bias" in name:
                weight.copy_(1.5 * torch.randn_like(weight))
            elif "layer_norm" in name:
                weight.add_(0.3 * torch.randn_like(weight))
            elif "router" in name:
                weight.copy_(0.7 * torch.randn_like(weight))
            elif "Attention" in name or "DenseReluDense" in name or "mlp" in name:
                weight.copy_((0.2 if name.endswith((".q.weight", ".k.weight")) else 0.3) * torch.randn_like(weight))
            elif name == "shared.weight":
                weight.copy_(0.7 * torch.randn_like(weight))
        if kind is SwitchTransformersConfig:
            # The head is the table, whose part in the states is small.
            model.shared.weight.mul_(0.4)
            model.shared.weight[1].mul_(1.5)
            return model
        head = torch.randn(vocabulary, config.d_model) * 0.45
        head[1].mul_(1.5)  # so that the end token comes up
        model.lm_head.weight = torch.nn.Parameter(head)
    return model


def bart_like(seed, kind, build, vocabulary, **settings):
    torch.manual_seed(seed)
    config = kind(
        vocab_size=vocabulary, d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=3,
        decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=28, max_position_embeddings=80,
        **{"scale_embedding": True} | settings,
    )
    model = build(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "layer_norm" in name or "layernorm" in name or name.endswith("bias"):
                weight.add_(0.15 * torch.randn_like(weight))
            elif part := next((p for p in DEVIATIONS.get(config.model_type, {}) if p in name), None):
                weight.copy_(DEVIATIONS[config.model_type][part] * torch.randn_like(weight))
            elif "fc" in name:
                weight.copy_(0.5 * torch.randn_like(weight))
            elif "attn" in name:
                weight.copy_(0.4 * torch.randn_like(weight))
            elif "embed_positions" in name:
                if weight.requires_grad:
                    weight.copy_(1.0 * torch.randn_like(weight))
            else:
                weight.copy_(0.25 * torch.randn_like(weight))
        # A tied head favours the input token; the other parts need a larger weight.
        if config.model_type in DEVIATIONS:
            factor = 10.0 if config.model_type == "marian" else 6.0
            model.get_decoder().layers[-1].final_layer_norm.weight.mul_(factor)
        else:
            model.get_decoder().layers[-1].fc2.weight.mul_(4.0)
        if config.model_type == "m2m_100":
            return model
        model.final_logits_bias.copy_(0.5 * torch.randn_like(model.final_logits_bias))
        model.final_logits_bias[0, config.eos_token_id] = 3.0
        if config.model_type == "marian":
            # Padding would be generated if it were not forbidden.
            model.final_logits_bias[0, config.pad_token_id] = 4.0
            model.generation_config.bad_words_ids = [[config.pad_token_id]]
            # As Opus-MT's folders have it.
            model.generation_config.renormalize_logits = True
    return model


def main():
    inputs = [*texts()[:4], texts()[4][:220]]
    tokenizer = t5_tokenizer()
    vocabulary = tokenizer.get_vocab_size() + 5
    for name, kind, build in (
        ("mt5", MT5Config, MT5ForConditionalGeneration),
        ("umt5", UMT5Config, UMT5ForConditionalGeneration),
    ):
        write(name, tokenizer, lambda seed: t5_like(seed, kind, build, vocabulary), build.from_pretrained, inputs, CASES)
    # Windows are smaller than inputs, which have several summaries.
    build = LongT5ForConditionalGeneration
    for name, kind in (("longt5-local", "local"), ("longt5", "transient-global")):
        settings = {"local_radius": 5, "global_block_size": 4, "encoder_attention_type": kind}
        write(name, tokenizer, lambda seed: t5_like(seed, LongT5Config, build, vocabulary, **settings),
              build.from_pretrained, inputs, CASES)
    # Experts have room for less tokens than some inputs have, and for all of an output's.
    switch = SwitchTransformersForConditionalGeneration
    settings = {"num_experts": 3, "expert_capacity": 10, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1,
                "router_bias": True, "tie_word_embeddings": True}
    write("switch", tokenizer, lambda seed: t5_like(seed, SwitchTransformersConfig, switch, vocabulary, **settings),
          switch.from_pretrained, inputs, CASES)
    build = PegasusForConditionalGeneration
    settings = {"activation_function": "relu"}
    write("pegasus", tokenizer, lambda seed: bart_like(seed, PegasusConfig, build, vocabulary, **settings),
          build.from_pretrained, inputs, CASES)
    bigbird = BigBirdPegasusForConditionalGeneration
    # Inputs are not longer than the blocks that a token attends to, so that all of them are.
    settings = {"use_bias": True, "block_size": 8, "num_random_blocks": 3}
    write("bigbird_pegasus", tokenizer, lambda seed: bart_like(seed, BigBirdPegasusConfig, bigbird, vocabulary, **settings),
          bigbird.from_pretrained, inputs, CASES)
    tokenizer = marian_tokenizer()
    vocabulary, build = tokenizer.get_vocab_size(), MarianMTModel
    pad = tokenizer.token_to_id("<pad>")
    settings = {"activation_function": "swish", "pad_token_id": pad, "decoder_start_token_id": pad}
    write("marian", tokenizer, lambda seed: bart_like(seed, MarianConfig, build, vocabulary, **settings),
          build.from_pretrained, inputs, CASES)
    tokenizer = mbart_tokenizer()
    vocabulary = tokenizer.get_vocab_size()
    build = MBartForConditionalGeneration
    # The decoder begins with the code of the output's language.
    settings = {"decoder_start_token_id": tokenizer.token_to_id("ro_RO")}
    write("mbart", tokenizer, lambda seed: bart_like(seed, MBartConfig, build, vocabulary, **settings),
          build.from_pretrained, inputs, CASES)
    plbart = PLBartForConditionalGeneration
    write("plbart", tokenizer, lambda seed: bart_like(seed, PLBartConfig, plbart, vocabulary, **settings),
          plbart.from_pretrained, inputs, CASES)
    mvp = MvpForConditionalGeneration
    write("mvp", tokenizer, lambda seed: bart_like(seed, MvpConfig, mvp, vocabulary), mvp.from_pretrained, inputs, CASES)
    # Windows of layers are smaller than most inputs, and differ.
    led = LEDForConditionalGeneration
    settings = {"max_encoder_position_embeddings": 80, "max_decoder_position_embeddings": 72, "attention_window": [8, 16]}
    write("led", tokenizer, lambda seed: bart_like(seed, LEDConfig, led, vocabulary, **settings), led.from_pretrained,
          inputs, CASES)
    tokenizer = nllb_tokenizer()
    m2m100 = M2M100ForConditionalGeneration
    write("m2m100", tokenizer, lambda seed: bart_like(seed, M2M100Config, m2m100, vocabulary), m2m100.from_pretrained,
          inputs, CASES)
    tokenizer = blenderbot_tokenizer()
    vocabulary = tokenizer.get_vocab_size()
    for name, kind, build in (
        ("blenderbot", BlenderbotConfig, BlenderbotForConditionalGeneration),
        ("blenderbot-small", BlenderbotSmallConfig, BlenderbotSmallForConditionalGeneration),
    ):
        write(name, tokenizer, lambda seed: bart_like(seed, kind, build, vocabulary), build.from_pretrained, inputs, CASES)


if __name__ == "__main__":
    main()
