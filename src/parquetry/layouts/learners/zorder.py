"""Z-order: ranks of the columns, their bits taken in turn."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from parquetry.layouts.learners.key import learn_key
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.space_filling import learn_curve
from parquetry.model.layout import LayoutSpec
from parquetry.model.logged_query import LoggedQuery


def learn_zorder(sample: pa.Table, workload: Sequence[LoggedQuery], options: LearnOptions) -> LayoutSpec:
    """Blocks of ``block_rows`` along the Z-order curve; a single block when no column can be cut."""
    return learn_curve("zorder", sample, workload, options) or learn_key(sample, workload, options)
