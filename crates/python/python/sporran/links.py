"""Missing triples of a knowledge base."""

from __future__ import annotations

import json
from typing import Any

from . import _sporran


class TripleScorer(_sporran.TripleScorer):
    """Completes triples of a knowledge base by a model of ``sporran train``, by mined rules, or by both.

    ``TripleScorer(kb, model=None, rules=None)``: the folder of the knowledge base, the folder of an embedding or a network, and
    a file of rules. With a model, rules only explain. ``TripleScorer(config)``: the config of a finished ``sporran train``, of the
    workflow ``link-prediction``, ``graph-network`` or ``rules``.
    """

    def complete(
        self,
        subject: str | None = None,
        relation: str | None = None,
        object: str | None = None,
        *,
        k: int = 10,
        chains: int = 3,
        known: bool = False,
    ) -> list[dict[str, Any]]:
        """The k best objects of a subject and a relation, or the subjects of a relation and an object, best first.

        An answer has ``entity``, the name of the entity in the triples, ``label``, ``score`` and ``chains``: the rules or paths that
        support it. ``known=True`` also gives answers that are training triples.
        """
        text = self.complete_json(subject, relation, object, k, chains, known)
        answers: list[dict[str, Any]] = json.loads(text)
        return answers
