"""Work on the nodes of a Ray cluster (``pip install 'ray[data,serve]'``).

Stages for Ray Data:

    import ray, sporran.ray
    rows = ray.data.read_json("texts.jsonl")
    rows = sporran.ray.map(rows, sporran.ray.Encode, model="models/all-MiniLM-L6-v2", column="text", actors=2, num_cpus=2)
    rows.write_parquet("vectors")

Verbs in shards, and the server:

    sporran.ray.build_index("wiki.toml", shards=64, num_cpus=8)
    sporran.ray.serve("wiki.toml", replicas=4, num_cpus=8)
"""

from __future__ import annotations

from .serving import serve
from .shards import build_index, populate, run
from .stages import Encode, Evaluate, Extract, Generate, Rerank, Retrieve, map

__all__ = [
    "Encode",
    "Evaluate",
    "Extract",
    "Generate",
    "Rerank",
    "Retrieve",
    "build_index",
    "map",
    "populate",
    "run",
    "serve",
]
