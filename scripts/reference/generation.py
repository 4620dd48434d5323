"""The peers of benches/generation.rs: models with random weights at real sizes, and the generation speed of
transformers and CTranslate2 with them.

    generation.py make DIR                     writes t5-small, bart-base, bart-large and t5-base from seed 0
    generation.py run FOLDER WORK THREADS [cuda]   prints a JSON object per peer: its name, seconds, and output tokens

On a GPU it measures transformers only, in three precisions. WORK is a JSON file {"inputs": rows of token ids, "beams",
"new", "runs"}. Needs torch, transformers, ctranslate2.
"""

import json
import pathlib
import sys
import time

LAYOUT_FLAGS = {
    # Required by CTranslate2's converter of BART.
    "normalize_before": False,
    "normalize_embedding": True,
    "add_final_layer_norm": False,
    "add_bias_logits": False,
    "scale_embedding": False,
}


def make(folder):
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    torch.manual_seed(0)
    wide = {"forced_bos_token_id": 0}
    narrow = dict(wide, d_model=768)
    for side in ("encoder", "decoder"):
        narrow.update({f"{side}_layers": 6, f"{side}_attention_heads": 12, f"{side}_ffn_dim": 3072})
    configs = {
        "t5-small": transformers.T5Config(decoder_start_token_id=0),
        "bart-base": transformers.BartConfig(**narrow),
        "bart-large": transformers.BartConfig(**wide),
        "t5-base": transformers.T5Config(
            decoder_start_token_id=0, d_model=768, d_ff=3072, num_layers=12, num_heads=12
        ),
    }
    for name, config in configs.items():
        path = pathlib.Path(folder) / name
        is_t5 = name.startswith("t5")
        kind = transformers.T5ForConditionalGeneration if is_t5 else transformers.BartForConditionalGeneration
        kind(config).save_pretrained(path)
        special = ["pad", "eos", "unk"] if is_t5 else ["bos", "pad", "eos", "unk"]
        names = {f"{role}_token": f"w{at}" for at, role in enumerate(special)}
        vocabulary = {f"w{at}": at for at in range(config.vocab_size)}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=names["unk_token"]))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(path)
        if not is_t5:
            file = path / "config.json"
            file.write_text(json.dumps(json.loads(file.read_text()) | LAYOUT_FLAGS, indent=1))


def report(name, runs, once):
    best, tokens = float("inf"), None
    for _ in range(runs + 1):
        start = time.perf_counter()
        tokens = once()
        best = min(best, time.perf_counter() - start)
    print(json.dumps({"name": name, "seconds": best, "outputs": tokens}), flush=True)


def run(folder, work, threads, device="cpu"):
    work = json.loads(pathlib.Path(work).read_text())
    if device != "cpu":
        for kind, dtype in (("f32", "float32"), ("f16", "float16"), ("bf16", "bfloat16")):
            with_transformers(folder, work, int(threads), device, kind, dtype)
        return
    with_transformers(folder, work, int(threads))
    for kind in ("float32", "int8"):
        with_ctranslate2(folder, work, int(threads), kind)


def with_transformers(folder, work, threads, device="cpu", kind="f32", dtype="float32"):
    import torch
    import transformers

    torch.set_num_threads(threads)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=dtype).eval().to(device)
    ids = torch.tensor(work["inputs"], device=device)
    mask = torch.ones_like(ids)
    length = {"max_new_tokens": work["new"], "min_new_tokens": work["new"]}

    def once():
        with torch.inference_mode():
            out = model.generate(
                input_ids=ids, attention_mask=mask, num_beams=work["beams"], do_sample=False, **length
            )
        return out[:, 1:].tolist()

    report(f"transformers {kind}", work["runs"], once)


def with_ctranslate2(folder, work, threads, kind):
    import ctranslate2
    from ctranslate2.converters import TransformersConverter

    converted = pathlib.Path(folder.rstrip("/") + ".ct2")
    if not converted.exists():
        TransformersConverter(folder).convert(str(converted))
    translator = ctranslate2.Translator(
        str(converted), device="cpu", compute_type=kind, intra_threads=threads, inter_threads=1
    )
    rows = [[f"w{token}" for token in row] for row in work["inputs"]]
    length = {"max_decoding_length": work["new"], "min_decoding_length": work["new"]}

    def once():
        results = translator.translate_batch(rows, beam_size=work["beams"], **length)
        return [[int(token[1:]) for token in result.hypotheses[0]] for result in results]

    report(f"CTranslate2 {kind}", work["runs"], once)


if __name__ == "__main__":
    verb, *arguments = sys.argv[1:]
    {"make": make, "run": run}[verb](*arguments)
