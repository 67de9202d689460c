"""The learners by name: a new layout is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from parquetry.errors import SchemaError
from parquetry.layouts.learners.hilbert import learn_hilbert
from parquetry.layouts.learners.kdtree import learn_kdtree
from parquetry.layouts.learners.key import learn_key
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.paw import learn_paw
from parquetry.layouts.learners.qdtree import learn_qdtree
from parquetry.layouts.learners.range import learn_range
from parquetry.layouts.learners.robust import learn_robust
from parquetry.layouts.learners.two_phase import learn_two_phase
from parquetry.layouts.learners.warp import learn_warp
from parquetry.layouts.learners.zorder import learn_zorder
from parquetry.model.layout import LayoutSpec
from parquetry.model.logged_query import LoggedQuery

Learn = Callable[[pa.Table, Sequence[LoggedQuery], LearnOptions], LayoutSpec]


@dataclass(frozen=True)
class Learner:
    learn: Learn
    needs_queries: bool = True
    """Without queries it does not know what to cut on, unless columns are named."""
    reaches: bool = False
    """It may cut on what rows reach through keys as on a column of their own."""
    uses_opaque: bool = False
    """It makes use of conditions that can only be evaluated, and so needs their columns."""


LEARNERS: dict[str, Learner] = {
    "key": Learner(learn_key, needs_queries=False),
    "kdtree": Learner(learn_kdtree, reaches=True),
    "qdtree": Learner(learn_qdtree, reaches=True),
    "paw": Learner(learn_paw, reaches=True),
    "warp": Learner(learn_warp, uses_opaque=True),
    "range": Learner(learn_range, reaches=True),
    "robust": Learner(learn_robust, needs_queries=False),
    "two_phase": Learner(learn_two_phase, needs_queries=False),
    "zorder": Learner(learn_zorder, reaches=True),
    "hilbert": Learner(learn_hilbert, reaches=True),
}


def learn(name: str, sample: pa.Table, workload: Sequence[LoggedQuery], options: LearnOptions) -> LayoutSpec:
    """The layout that the named learner makes of a sample and a workload.

    With neither queries nor named columns, learners that need to be told what to cut on refuse.
    """
    learner = named(name)
    if learner.needs_queries and not workload and not options.columns:
        raise SchemaError(f"layout '{name}' needs a workload: run or import queries first, or name columns to cut on")
    return learner.learn(sample, workload, options)


def named(name: str) -> Learner:
    learner = LEARNERS.get(name)
    if learner is None:
        raise SchemaError(f"unknown layout '{name}'; layouts: {', '.join(LEARNERS)}")
    return learner
