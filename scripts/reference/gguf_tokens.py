"""Compares the greedy answers of a GGUF model with those of its unpacked weights and of llama.cpp.

    python scripts/reference/gguf_tokens.py MODEL.gguf --questions FILE [--count 20] [--new 48]

FILE has a question a line. transformers unpacks the weights to f32, so its answers are those of the same numbers. llama.cpp rounds
the inputs of each matrix to 8 bits. Where its answer parts from ours, the table has the greatest difference between its logit of its
token and its logit of ours. Needs sporran, torch, transformers, gguf and llama-cpp-python.
"""

import argparse
import pathlib


def unpacked(path, prompts, new):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    for prompt in prompts:
        inputs = tokenizer(prompt, return_tensors="pt")
        made = model.generate(**inputs, max_new_tokens=new, min_new_tokens=new, do_sample=False)
        yield tokenizer.decode(made[0][inputs["input_ids"].shape[1] :], skip_special_tokens=True)


def gap(peer, prompt, ours, new):
    """The difference of logits where llama.cpp parts from an answer; nothing where it does not."""
    import numpy

    start = peer.tokenize(prompt.encode())
    peer.reset()
    peer.eval(start)
    before = [start[-1]]
    text, ours = b"", ours.strip().encode()
    for _ in range(new):
        logits = numpy.array(peer.scores[peer.n_tokens - 1])
        logits[peer.token_eos()] = -1e9
        order = numpy.argsort(-logits)

        def follows(token):
            longer = (text + peer.detokenize([int(token)], prev_tokens=before)).lstrip()
            return ours.startswith(longer) or longer.startswith(ours)

        if not follows(order[0]):
            fitting = [token for token in order[1:50] if follows(token)]
            return float(logits[order[0]] - logits[fitting[0]]) if fitting else float("inf")
        text += peer.detokenize([int(order[0])], prev_tokens=before)
        peer.eval([int(order[0])])
    return None


def main():
    import llama_cpp
    import sporran

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--questions", type=pathlib.Path, required=True)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--new", type=int, default=48)
    arguments = parser.parse_args()
    lines = arguments.questions.read_text().splitlines()[: arguments.count]
    prompts = [f"Question: {line.strip()}\nAnswer: The" for line in lines]
    ours = sporran.Generator(
        str(arguments.model), max_new_tokens=arguments.new, min_new_tokens=arguments.new
    ).generate(prompts)
    equal = sum(a.strip() == b.strip() for a, b in zip(ours, unpacked(arguments.model, prompts, arguments.new)))
    peer = llama_cpp.Llama(str(arguments.model), n_ctx=1024, logits_all=True, verbose=False)
    gaps = [gap(peer, prompt, text, arguments.new) for prompt, text in zip(prompts, ours)]
    parted = [value for value in gaps if value is not None]
    print("| model | prompts | tokens each | equal to unpacked weights | equal to llama.cpp | greatest gap |")
    print("|---|---:|---:|---:|---:|---:|")
    print(
        f"| {arguments.model.name} | {len(prompts)} | {arguments.new} | {equal} | {len(prompts) - len(parted)} "
        f"| {max(parted, default=0.0):.3f} |"
    )


if __name__ == "__main__":
    main()
