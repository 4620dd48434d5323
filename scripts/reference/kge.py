"""ComplEx in PyTorch, the peer of benches/kge.rs.

Packages: torch; pykeen for the line `pykeen` (skipped if it is not installed).

An epoch of 1vsAll as LibKGE trains it (batches of triples, both directions, reciprocal relations, cross-entropy over all
entities, Adagrad), an epoch of PyKEEN's LCWA loop (pairs with all their answers), and the filtered ranking of the test
split, as a plain loop and by PyKEEN's evaluator. One JSON object per line: {"name", "seconds"}.

    python scripts/reference/kge.py FOLDER --dim 512 --batch 1024 --triples 20000 --threads 2
"""

import argparse
import json
import pathlib
import time

import torch
from torch.nn.functional import cross_entropy


def load(folder):
    entities, relations, parts = {}, {}, {}
    for part in ("train", "valid", "test"):
        rows = []
        for line in (pathlib.Path(folder) / f"{part}.txt").read_text().splitlines():
            s, p, o = line.split("\t")
            ids = [entities.setdefault(s, len(entities)), relations.setdefault(p, len(relations))]
            rows.append(ids + [entities.setdefault(o, len(entities))])
        parts[part] = torch.tensor(rows)
    return len(entities), len(relations), parts


def query(entity, relation):
    half = entity.shape[1] // 2
    er, ei, rr, ri = entity[:, :half], entity[:, half:], relation[:, :half], relation[:, half:]
    return torch.cat([er * rr - ei * ri, er * ri + ei * rr], dim=1)


def report(name, seconds):
    print(json.dumps({"name": name, "seconds": seconds}), flush=True)


def plain(args, entities, relations, parts):
    table = torch.nn.Parameter(torch.randn(entities, args.dim) * 0.01)
    rows = torch.nn.Parameter(torch.randn(2 * relations, args.dim) * 0.01)
    optimizer = torch.optim.Adagrad([table, rows], lr=0.1)
    train = parts["train"][torch.randperm(len(parts["train"]))[: args.triples]]
    start = time.perf_counter()
    for batch in train.split(args.batch):
        s, p, o = batch.unbind(1)
        optimizer.zero_grad()
        loss = cross_entropy(query(table[s], rows[p]) @ table.T, o, reduction="sum")
        loss = loss + cross_entropy(query(table[o], rows[p + relations]) @ table.T, s, reduction="sum")
        (loss / len(batch)).backward()
        optimizer.step()
    report("torch 1vsAll epoch", time.perf_counter() - start)

    known = {}
    for s, p, o in torch.cat(list(parts.values())).tolist():
        known.setdefault((s, p), []).append(o)
        known.setdefault((o, p + relations), []).append(s)
    start = time.perf_counter()
    with torch.no_grad():
        for direction in (0, 1):
            for batch in parts["test"].split(256):
                s, p, o = batch.unbind(1)
                if direction:
                    s, p, o = o, p + relations, s
                scores = query(table[s], rows[p]) @ table.T
                own = scores.gather(1, o[:, None])
                for row, (e, r) in enumerate(zip(s.tolist(), p.tolist())):
                    scores[row, known[e, r]] = -float("inf")
                (scores > own).sum(1) + ((scores == own).sum(1)) / 2 + 1
    report("torch ranking", time.perf_counter() - start)


def pykeen(args, parts, folder):
    try:
        from pykeen.evaluation import RankBasedEvaluator
        from pykeen.losses import CrossEntropyLoss
        from pykeen.models import ComplEx
        from pykeen.training import LCWATrainingLoop
        from pykeen.triples import TriplesFactory
    except ImportError:
        return
    whole = TriplesFactory.from_path(str(pathlib.Path(folder) / "train.txt"), create_inverse_triples=True)
    picked = whole.mapped_triples[torch.randperm(len(whole.mapped_triples))[: args.triples]]
    factory = whole.clone_and_exchange_triples(picked)
    model = ComplEx(triples_factory=factory, embedding_dim=args.dim // 2, loss=CrossEntropyLoss(), regularizer=None)
    loop = LCWATrainingLoop(
        model=model, triples_factory=factory, optimizer=torch.optim.Adagrad(model.parameters(), lr=0.1)
    )
    start = time.perf_counter()
    loop.train(triples_factory=factory, num_epochs=1, batch_size=args.batch, use_tqdm=False, use_tqdm_batch=False)
    report("pykeen KvsAll epoch", time.perf_counter() - start)
    ids = dict(entity_to_id=whole.entity_to_id, relation_to_id=whole.relation_to_id)
    test = TriplesFactory.from_path(str(pathlib.Path(folder) / "test.txt"), **ids)
    start = time.perf_counter()
    RankBasedEvaluator(filtered=True).evaluate(
        model,
        test.mapped_triples,
        additional_filter_triples=[whole.mapped_triples],
        batch_size=256,
        use_tqdm=False,
    )
    report("pykeen ranking", time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--triples", type=int, default=20000)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    entities, relations, parts = load(args.folder)
    plain(args, entities, relations, parts)
    pykeen(args, parts, args.folder)


if __name__ == "__main__":
    main()
