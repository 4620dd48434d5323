"""Makes the fixtures of adapters, crates/checkpoint/tests/data/lora: tiny base models, adapters of LoRA by PEFT, and the
weights that PEFT merges of both.

    python scripts/reference/lora.py      # torch 2.15, transformers 5.24, peft 0.21
"""

import json
import pathlib
import shutil

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import BertConfig, BertForSequenceClassification, BertModel, GPT2Config, GPT2LMHeadModel
from transformers import LlamaConfig, LlamaForCausalLM

DATA = pathlib.Path(__file__).resolve().parents[2] / "crates" / "checkpoint" / "tests" / "data" / "lora"


def fixture(name, base, model, config):
    folder = DATA / name
    base.save_pretrained(folder / "base")
    adapted = get_peft_model(model, config)
    generator = torch.Generator().manual_seed(7)
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float32).to(parameter.dtype)
    adapted.save_pretrained(folder / "adapter")
    for extra in (folder / "adapter").glob("README*"):
        extra.unlink()
    (folder / "base" / "generation_config.json").unlink(missing_ok=True)
    path = folder / "adapter" / "adapter_config.json"
    settings = json.loads(path.read_text())
    settings["base_model_name_or_path"] = "../base"
    path.write_text(json.dumps(settings, indent=1) + "\n")
    merged = adapted.merge_and_unload().state_dict()
    kept = {key: value.contiguous().clone() for key, value in merged.items() if key != "lm_head.weight"}
    save_file(kept, folder / "merged.safetensors")
    print(name, [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()])


def main():
    shutil.rmtree(DATA, ignore_errors=True)
    torch.manual_seed(3)
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=12, n_positions=8, n_embd=8, n_layer=1, n_head=2))
    fixture("gpt2", gpt2, gpt2, LoraConfig(
        r=2, lora_alpha=3, use_rslora=True, fan_in_fan_out=True, target_modules=["c_attn", "attn.c_proj"],
        rank_pattern={"c_proj": 4}, task_type="CAUSAL_LM",
    ))
    llama = LlamaForCausalLM(LlamaConfig(
        vocab_size=12, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        max_position_embeddings=16,
    )).to(torch.bfloat16)
    fixture("llama", llama, llama, LoraConfig(
        r=2, lora_alpha=4, target_modules=r".*\.(q_proj|down_proj)", alpha_pattern={"down_proj": 1}, task_type="CAUSAL_LM",
    ))
    bert = BertConfig(
        vocab_size=12, hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=16, num_labels=3,
    )
    head = BertForSequenceClassification(bert)
    body = BertModel(bert)
    body.load_state_dict(head.bert.state_dict())
    body.config.id2label = {0: "a", 1: "b"}
    fixture("bert", body, head, LoraConfig(
        r=2, lora_alpha=2, target_modules=["query", "value"], bias="lora_only", modules_to_save=["classifier"],
        task_type="SEQ_CLS",
    ))


if __name__ == "__main__":
    main()
