"""Makes the fixtures of decoding in the transformers crate: `decoding.json` next to each tiny checkpoint of
transformers_parity.py, and `warping.json`.

The `transformers` library computes everything, one input at a time, on one CPU thread and in f32, except diverse beam
search, which `transformers` 5 no longer has. It is implemented below after Vijayakumar et al. 2018, with the scoring of
`transformers` 4 (BeamSearchScorer, HammingDiversityLogitsProcessor).

    python scripts/reference/decoding_parity.py                # torch 2.15, transformers 5.24, numpy
"""

import json
import pathlib
import random

import torch
from transformers import AutoModelForSeq2SeqLM
from transformers.generation import (
    ForcedEOSTokenLogitsProcessor,
    LogitNormalization,
    LogitsProcessorList,
    MinPLogitsWarper,
    NoRepeatNGramLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

DATA = pathlib.Path(__file__).resolve().parents[2] / "crates" / "transformers" / "tests" / "data"
FOLDERS = ["t5-relu", "t5-gated", "bart"]
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)


class Group:
    """The beams of one group, and its finished sequences."""

    def __init__(self, start, size, options):
        self.running = [[start] for _ in range(size)]
        self.sums = [0.0] + [-1e9] * (size - 1)
        self.finished = []
        self.worst = 1e9
        self.done = False
        self.size = size
        self.options = options

    def length_factor(self, length):
        return length ** self.options.get("length_penalty", 1.0)

    def add(self, tokens, total, length, ended):
        score = total / self.length_factor(length)
        if len(self.finished) < self.size or score > self.worst:
            self.finished.append((score, tokens, ended))
            if len(self.finished) > self.size:
                order = sorted((score, at) for at, (score, _, _) in enumerate(self.finished))
                del self.finished[order[0][1]]
                self.worst = order[1][0]
            else:
                self.worst = min(score, self.worst)

    def is_done(self, best, length):
        if len(self.finished) < self.size:
            return False
        early = self.options.get("early_stopping", False)
        if early is True:
            return True
        if early == "never" and self.options.get("length_penalty", 1.0) > 0.0:
            length = self.options["max_new_tokens"]
        return self.worst >= best / self.length_factor(length)


def diverse_beam_search(model, ids, options):
    eos, pad = model.generation_config.eos_token_id, model.generation_config.pad_token_id
    start = model.generation_config.decoder_start_token_id
    size = options["num_beams"] // options["num_beam_groups"]
    groups = [Group(start, size, options) for _ in range(options["num_beam_groups"])]
    processors = LogitsProcessorList()
    if options.get("no_repeat_ngram_size"):
        processors.append(NoRepeatNGramLogitsProcessor(options["no_repeat_ngram_size"]))
    if (forced := model.generation_config.forced_eos_token_id) is not None:
        processors.append(ForcedEOSTokenLogitsProcessor(options["max_new_tokens"] + 1, forced))
    if options.get("renormalize_logits"):
        processors.append(LogitNormalization())
    for length in range(1, options["max_new_tokens"] + 1):
        rows = torch.tensor([tokens for group in groups for tokens in group.running])
        with torch.no_grad():
            logits = model(input_ids=ids.expand(len(rows), -1), decoder_input_ids=rows).logits[:, -1, :]
        log_probs = torch.log_softmax(logits.float(), dim=-1)
        said = []
        for at, group in enumerate(groups):
            scores = log_probs[at * size : (at + 1) * size]
            if said:
                scores = scores - options["diversity_penalty"] * torch.bincount(
                    torch.tensor(said), minlength=scores.shape[-1]
                )
            if group.done:
                said += [pad] * size
                group.running = [tokens + [pad] for tokens in group.running]
                continue
            scores = processors(rows[at * size : (at + 1) * size], scores)
            scores = scores + torch.tensor(group.sums)[:, None]
            best, where = torch.topk(scores.reshape(-1), 2 * size)
            running, sums = [], []
            for rank, (total, place) in enumerate(zip(best.tolist(), where.tolist(), strict=True)):
                beam, token = divmod(place, scores.shape[-1])
                if token == eos:
                    if rank < size:
                        group.add(group.running[beam], total, length, True)
                else:
                    running.append(group.running[beam] + [token])
                    sums.append(total)
                if len(running) == size:
                    break
            group.running, group.sums = running, sums
            group.done = group.done or group.is_done(best.max().item(), length)
            said += [tokens[-1] for tokens in running]
        if all(group.done for group in groups):
            break
    for group in groups:
        if not group.done:
            for tokens, total in zip(group.running, group.sums, strict=True):
                group.add(tokens, total, len(tokens) - 1, False)
    order = sorted((beam for group in groups for beam in group.finished), key=lambda beam: beam[0])
    found = []
    for _ in range(options.get("num_return_sequences", 1)):
        score, tokens, ended = order.pop()
        found.append({"tokens": tokens[1:] + ([eos] if ended else []), "score": score})
    return found


CASES = {
    "greedy, repetition 1.3": {"max_new_tokens": 24, "repetition_penalty": 1.3},
    "beam 4, repetition 1.3": {"max_new_tokens": 24, "num_beams": 4, "repetition_penalty": 1.3},
    "beam 3, repetition 0.8": {
        "max_new_tokens": 12, "num_beams": 3, "repetition_penalty": 0.8, "num_return_sequences": 3,
    },
    "greedy, bad words": {"max_new_tokens": 20, "bad": 3},
    "beam 4, bad words": {"max_new_tokens": 20, "num_beams": 4, "bad": 6, "num_return_sequences": 2},
    "greedy, suppressed": {"max_new_tokens": 20, "suppress": 4, "begin_suppress": 3},
    "beam 4, suppressed": {"max_new_tokens": 20, "num_beams": 4, "suppress": 4, "begin_suppress": 3},
    "beam 2, suppressed after a forced token": {
        "max_new_tokens": 10, "num_beams": 2, "begin_suppress": 5, "forced_bos_token_id": 7,
    },
    "greedy, no bigram of the source": {"max_new_tokens": 20, "encoder_no_repeat_ngram_size": 2},
    "beam 4, no token of the source": {
        "max_new_tokens": 20, "num_beams": 4, "encoder_no_repeat_ngram_size": 1, "no_repeat_ngram_size": 3,
    },
    "greedy, titles": {"max_new_tokens": 12, "titles": 60},
    "beam 4, titles": {"max_new_tokens": 12, "num_beams": 4, "titles": 60, "num_return_sequences": 4},
    "beam 4, titles, bad words, least 5": {
        "max_new_tokens": 12, "num_beams": 4, "titles": 90, "bad": 4, "min_new_tokens": 5, "num_return_sequences": 2,
    },
    "2 groups of 2": {
        "max_new_tokens": 16, "num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.7,
        "num_return_sequences": 4,
    },
    "4 groups of 1": {
        "max_new_tokens": 16, "num_beams": 4, "num_beam_groups": 4, "diversity_penalty": 1.5,
        "num_return_sequences": 4,
    },
    "2 groups of 3, early": {
        "max_new_tokens": 20, "num_beams": 6, "num_beam_groups": 2, "diversity_penalty": 0.4, "early_stopping": True,
        "num_return_sequences": 5, "length_penalty": 0.5,
    },
    "3 groups of 2, never early, no trigram twice": {
        "max_new_tokens": 12, "num_beams": 6, "num_beam_groups": 3, "diversity_penalty": 0.3,
        "early_stopping": "never", "length_penalty": 1.4, "num_return_sequences": 3, "no_repeat_ngram_size": 3,
    },
    "greedy, bad words, normalised": {"max_new_tokens": 20, "bad": 3, "renormalize_logits": True},
    "beam 4, bad words, normalised": {
        "max_new_tokens": 20, "num_beams": 4, "bad": 6, "num_return_sequences": 2, "renormalize_logits": True,
    },
    "beam 3, repetition 0.8, normalised": {
        "max_new_tokens": 12, "num_beams": 3, "repetition_penalty": 0.8, "num_return_sequences": 3,
        "renormalize_logits": True,
    },
    "2 groups of 2, normalised": {
        "max_new_tokens": 16, "num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.7,
        "num_return_sequences": 4, "no_repeat_ngram_size": 2, "renormalize_logits": True,
    },
}


def prefixes(titles, eos):
    """The tokens that may follow each beginning of a title."""
    follow = {}
    for title in titles:
        whole = [*title, eos]
        for at, token in enumerate(whole):
            follow.setdefault(tuple(whole[:at]), set()).add(token)
    return follow


def generate(model, row, options, titles):
    ids = torch.tensor([row])
    if "num_beam_groups" in options:
        return diverse_beam_search(model, ids, options)
    eos = model.generation_config.eos_token_id
    allowed = None
    if titles:
        follow = prefixes(titles, eos)

        def allowed(_, tokens):
            # A sequence that cannot win may be outside the titles, but some token must be allowed.
            return sorted(follow.get(tuple(tokens[1:].tolist()), {eos}))

    out = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        prefix_allowed_tokens_fn=allowed,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    greedy = options.get("num_beams", 1) == 1
    if greedy:
        steps = model.compute_transition_scores(out.sequences, out.scores, normalize_logits=True)
    found = []
    for i, tokens in enumerate(out.sequences[:, 1:].tolist()):
        tokens = tokens[: next((at + 1 for at, token in enumerate(tokens) if token == eos), None)]
        score = steps[i, : len(tokens)].double().sum().item() if greedy else out.sequences_scores[i].item()
        found.append({"tokens": tokens, "score": score})
    return found


def search_cases(folder):
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    expected = json.loads((folder / "expected.json").read_text())
    rows = expected["rows"]
    eos = model.generation_config.eos_token_id
    rng = random.Random(17)
    # The unconstrained output, so that token rules have an effect.
    said = [hypothesis[0]["tokens"] for hypothesis in expected["cases"][0]["outputs"]]
    cases = []
    for name, options in CASES.items():
        options, titles = dict(options), None
        if count := options.pop("bad", None):
            words = [[rng.choice(tokens)] for tokens in said[: count // 3]]
            while len(words) < count:
                tokens = rng.choice(said)
                at = rng.randrange(len(tokens) - 1)
                words.append(tokens[at : at + rng.choice([2, 2, 3])])
            options["bad_words_ids"] = [word for word in words if word != [eos]]
        if count := options.pop("suppress", None):
            options["suppress_tokens"] = sorted({rng.choice(tokens) for tokens in said[:count]} - {eos})
        if count := options.pop("begin_suppress", None):
            options["begin_suppress_tokens"] = sorted({tokens[0] for tokens in said[:count]} | {11, 12})
        if count := options.pop("titles", None):
            tokens = [token for token in range(3, 60) if token != eos]
            first = rng.sample(tokens, 12)
            titles = {(rng.choice(first), *rng.choices(tokens[:8], k=rng.randrange(0, 6))) for _ in range(count)}
            titles = [list(title) for title in sorted(titles)]
        outputs = [generate(model, row, options, titles) for row in rows]
        kebab = {key.replace("_", "-"): value for key, value in options.items()}
        cases.append({"name": name, "options": kebab, "titles": titles, "outputs": outputs})
        print(folder.name, name, [[len(h["tokens"]) for h in row] for row in outputs])
    return cases


WARPINGS = [
    {"temperature": 0.7, "top_k": 0},
    {"temperature": 1.8, "top_k": 7},
    {"top_k": 0, "top_p": 0.6},
    {"temperature": 1.3, "top_k": 12, "top_p": 0.8},
    {"temperature": 0.5, "top_k": 50, "top_p": 0.95},
    {"top_k": 3, "top_p": 0.05},
    {"temperature": 1.5, "top_k": 0, "min_p": 0.1},
    {"temperature": 0.8, "top_k": 20, "top_p": 0.95, "min_p": 0.3},
]


def warpings():
    torch.manual_seed(3)
    logits = (torch.randn(40) * 1.7).tolist()
    logits[5] = logits[9] = 1.25  # equal scores
    cases = []
    for options in WARPINGS:
        warpers = LogitsProcessorList()
        if "temperature" in options:
            warpers.append(TemperatureLogitsWarper(options["temperature"]))
        if options["top_k"]:
            warpers.append(TopKLogitsWarper(options["top_k"]))
        if "top_p" in options:
            warpers.append(TopPLogitsWarper(options["top_p"]))
        if "min_p" in options:
            warpers.append(MinPLogitsWarper(options["min_p"]))
        scores = warpers(torch.zeros((1, 1), dtype=torch.long), torch.tensor([logits]))
        probabilities = torch.softmax(scores, dim=-1)[0].tolist()
        kebab = {key.replace("_", "-"): value for key, value in options.items()}
        cases.append({"options": kebab, "probabilities": probabilities})
    return {"logits": logits, "cases": cases}


def write(path, value):
    with open(path, "w") as file:
        json.dump(value, file, indent=None, separators=(",", ":"))
        file.write("\n")


def main():
    for name in FOLDERS:
        write(DATA / name / "decoding.json", {"cases": search_cases(DATA / name)})
    write(DATA / "warping.json", warpings())


if __name__ == "__main__":
    main()
