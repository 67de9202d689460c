"""Complementary trees: r copies of a table, each cut on columns of its own, so that every column is cut finely in one.

The table is copied first and then cut, not the other way round (RB-06): a query goes to the copy that answers it with
the fewest rows, and a lost block is rebuilt from the others. Trees only: the warehouse stores one copy of a table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from parquetry.errors import SchemaError
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.robust import encode_data, learn_robust
from parquetry.layouts.learners.sample import Sample
from parquetry.model.layout import TreeLayout


def learn_replicas(sample: pa.Table, options: LearnOptions, replicas: int) -> tuple[TreeLayout, ...]:
    """One robust tree per copy; together they cut on every column, and no two on the same.

    With fewer columns than copies the last ones take all columns again, by another seed.
    """
    if replicas < 1:
        raise SchemaError(f"a table has at least one copy, not {replicas}")
    encoded = encode_data(sample, options)
    trees = []
    for i, columns in enumerate(_dealt(encoded, replicas)):
        weights = {c: w for c, w in (options.weights or {}).items() if c in columns}
        own = replace(options, columns=columns, weights=weights, seed=options.seed + i)
        tree = learn_robust(sample, (), own)
        trees.append(replace(tree, options={**tree.options, "replica": i}))
    return tuple(trees)


def _dealt(sample: Sample, replicas: int) -> list[tuple[str, ...]]:
    """The columns in as many groups of equal strength: dealt out there and back again, those that can be cut most often
    first, so that no copy is left with flags alone."""
    cuts = [_entropy(places) for places in sample.places]
    strongest = np.argsort(-np.array(cuts), kind="stable").tolist()
    hands: list[list[int]] = [[] for _ in range(replicas)]
    for turn, column in enumerate(strongest):
        there, place = divmod(turn, replicas)
        hands[place if there % 2 == 0 else replicas - 1 - place].append(column)
    return [tuple(sample.columns[c] for c in sorted(hand)) or sample.columns for hand in hands]


def _entropy(places: Any) -> float:
    """How many halvings tell the rows of a column apart."""
    _, counts = np.unique(places, return_counts=True)
    share = counts / max(1, counts.sum())
    return float(-(share * np.log2(share)).sum())
