"""Generates with GGUF models beside llama.cpp, greedily, one prompt at a time and 16 at once.

    python benches/gguf.py MODEL.gguf [MODEL.gguf ..] --texts FILE [--threads 2] [--words 160] [--new 64]

FILE has one text a line, from which prompts of WORDS words are made. Both engines get the same token ids' text, without a chat
template, and write NEW tokens each; an early end would favour one, so the end token is suppressed for both. llama.cpp answers
16 prompts one after the other: its Python package has no batches. Times are the best of three after a first call, in turn. The
table also has how many of the answers are equal. Needs sporran and llama-cpp-python.
"""

import argparse
import pathlib
import time


def best(work):
    work()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return min(times), result


def main():
    import llama_cpp
    import sporran

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--texts", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--words", type=int, default=160)
    parser.add_argument("--new", type=int, default=64)
    arguments = parser.parse_args()
    words = pathlib.Path(arguments.texts).read_text().split()
    size = arguments.words
    prompts = [" ".join(words[at * size : (at + 1) * size]) for at in range(16)]
    print("| model | prompts | prompt tokens | Sporran, tokens/s | llama.cpp, tokens/s | ratio | equal answers |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for path in arguments.models:
        ours = sporran.Generator(path, max_new_tokens=arguments.new, min_new_tokens=arguments.new)
        peer = llama_cpp.Llama(
            path, n_ctx=size * 4 + arguments.new, n_threads=arguments.threads, n_threads_batch=arguments.threads,
            logits_all=False, verbose=False,
        )
        end = {peer.token_eos(): -1e9}

        def answer(prompt):
            peer.reset()
            found = peer.create_completion(prompt, max_tokens=arguments.new, temperature=0.0, logit_bias=end)
            return found["choices"][0]["text"]

        tokens = sum(len(peer.tokenize(prompt.encode())) for prompt in prompts) / len(prompts)
        for count in (1, 16):
            some = prompts[:count]
            made, texts = best(lambda: ours.generate(some))
            made_by_peer, expected = best(lambda: [answer(prompt) for prompt in some])
            equal = sum(ours.strip() == theirs.strip() for ours, theirs in zip(texts, expected))
            rates = [count * arguments.new / seconds for seconds in (made, made_by_peer)]
            print(
                f"| {pathlib.Path(path).name} | {count} | {tokens:.0f} | {rates[0]:.1f} | {rates[1]:.1f} | "
                f"{rates[0] / rates[1]:.2f} | {equal} of {count} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
