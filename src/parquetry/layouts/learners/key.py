"""The key layout: one block, so a delta is sorted by key alone. Napa's own order."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from parquetry.layouts.learners.options import LearnOptions
from parquetry.model.layout import Leaf, TreeLayout
from parquetry.model.logged_query import LoggedQuery


def learn_key(sample: pa.Table, workload: Sequence[LoggedQuery], options: LearnOptions) -> TreeLayout:
    """A single block, whatever the data and the queries are."""
    return TreeLayout("key", (), (Leaf(0),))
