"""The learners by name: a new layout is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from parquetry.errors import SchemaError
from parquetry.layouts.hilbert import learn_hilbert
from parquetry.layouts.kdtree import learn_kdtree
from parquetry.layouts.key import learn_key
from parquetry.layouts.options import LearnOptions
from parquetry.layouts.paw import learn_paw
from parquetry.layouts.qdtree import learn_qdtree
from parquetry.layouts.zorder import learn_zorder
from parquetry.model.layout import LayoutSpec
from parquetry.model.workload import LoggedQuery

Learner = Callable[[pa.Table, Sequence[LoggedQuery], LearnOptions], LayoutSpec]

LEARNERS: dict[str, Learner] = {
    "key": learn_key,
    "kdtree": learn_kdtree,
    "qdtree": learn_qdtree,
    "paw": learn_paw,
    "zorder": learn_zorder,
    "hilbert": learn_hilbert,
}


def learn(name: str, sample: pa.Table, workload: Sequence[LoggedQuery], options: LearnOptions) -> LayoutSpec:
    """The layout that the named learner makes of a sample and a workload.

    Without columns to cut on (an empty workload and none named) only the key layout makes sense, so others refuse.
    """
    learner = LEARNERS.get(name)
    if learner is None:
        raise SchemaError(f"unknown layout '{name}'; layouts: {', '.join(LEARNERS)}")
    if name != "key" and not workload and not options.columns:
        raise SchemaError(f"layout '{name}' needs a workload: run or import queries first, or name columns to cut on")
    return learner(sample, workload, options)
