"""A layout may cut on what rows reach through keys; what is skipped by keys holds none of them, whatever changes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from parquetry.errors import SchemaError
from parquetry.layouts.pruning.prune import LayoutRegions
from parquetry.layouts.routing.route import route_numpy
from parquetry.maintain.relayout import learn_from_sample
from parquetry.model.layout import LayoutSpec, ReachingLayout, TreeLayout, cut_columns, layout_from_json
from parquetry.model.layout_options import RelayoutOptions
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import And, OneOf, Range
from parquetry.model.reached import Reached
from parquetry.model.schema import Column, TableSchema
from parquetry.model.settings import Settings
from parquetry.model.state import TableState
from parquetry.workload.boxes import to_boxes

ROWS, ITEMS, BRANDS = 20_000, 1000, 50
BRAND = "item→items.brand"
SCHEMA = TableSchema((Column("id", "int"), Column("day", "int"), Column("item", "int")), key=("id",))
rng = np.random.default_rng(0)
FACTS = pa.table(
    {
        "id": pa.array(np.arange(ROWS, dtype=np.int32)),
        "day": pa.array(rng.integers(0, 100, ROWS).astype(np.int32)),
        "item": pa.array(rng.integers(0, ITEMS + 20, ROWS).astype(np.int32), mask=rng.random(ROWS) < 0.02),
    }
)
BRAND_OF = rng.permutation(ITEMS) % BRANDS  # brands are scattered over the keys
REACHED = Reached.of(BRAND, pa.array(np.arange(ITEMS, dtype=np.int32)), pa.array(BRAND_OF.astype(np.int32)))
TABLE = TableState(1, "facts", SCHEMA, 1, (), 0, Settings())
OPTIONS = RelayoutOptions(block_rows=200, cells=1)
LOG = [
    LoggedQuery(And((Range("day", d, d + 9), OneOf(BRAND, frozenset({b})))))
    for d, b in zip(rng.integers(0, 90, 60).tolist(), rng.integers(0, BRANDS, 60).tolist(), strict=True)
]
LEARNERS = ["kdtree", "qdtree", "paw", "range", "zorder", "hilbert"]


@pytest.mark.parametrize("learner", LEARNERS)
def test_keys_of_one_value_skip_blocks_and_lose_no_row(learner: str) -> None:
    spec = learn_from_sample(TABLE, FACTS, learner, LOG, OPTIONS, reached={BRAND: REACHED})
    again = layout_from_json(json.loads(json.dumps(spec.to_json())))
    assert again == spec
    blocks = route_numpy(again, FACTS.select(list(again.columns)))
    read = []
    for brand in range(0, BRANDS, 7):
        keys = np.flatnonzero(brand == BRAND_OF)
        might = _might_match(again, pa.array(keys))
        wanted = np.isin(np.asarray(FACTS["item"].fill_null(-1)), keys)
        assert might[blocks[wanted]].all()
        read.append(might[blocks].mean())
    if learner in ("qdtree", "paw"):
        assert isinstance(spec, ReachingLayout)
        assert BRAND in cut_columns(spec)
        assert np.mean(read) < 0.6


def test_keys_that_have_come_later_are_looked_for_where_such_rows_go() -> None:
    spec = learn_from_sample(TABLE, FACTS, "qdtree", LOG, OPTIONS, reached={BRAND: REACHED})
    blocks = route_numpy(spec, FACTS)
    keys = np.arange(ITEMS, ITEMS + 20)
    wanted = np.isin(np.asarray(FACTS["item"].fill_null(-1)), keys)
    assert _might_match(spec, pa.array(keys))[blocks[wanted]].all()


def test_a_layout_that_needs_no_map_has_none() -> None:
    days_only = [LoggedQuery(Range("day", d, d + 5)) for d in range(0, 90, 10)]
    assert isinstance(
        learn_from_sample(TABLE, FACTS, "qdtree", days_only, OPTIONS, reached={BRAND: REACHED}), TreeLayout
    )
    assert isinstance(learn_from_sample(TABLE, FACTS, "qdtree", LOG, OPTIONS), TreeLayout)
    for learner in ("robust", "two_phase", "warp"):  # these do not see such columns
        learn_from_sample(TABLE, FACTS, learner, LOG, OPTIONS, reached={BRAND: REACHED})


def test_a_map_that_does_not_fit_is_refused() -> None:
    spec = learn_from_sample(TABLE, FACTS, "qdtree", LOG, OPTIONS, reached={BRAND: REACHED})
    damaged = spec.to_json() | {"reached": []}
    with pytest.raises(SchemaError, match="a map for each such column"):
        layout_from_json(damaged)
    damaged = spec.to_json() | {"reached": [{"name": BRAND, "map": "AAAA"}]}
    with pytest.raises(SchemaError, match="cannot be read"):
        layout_from_json(damaged)


def _might_match(spec: LayoutSpec, keys: pa.Array) -> Any:
    known = LayoutRegions.of(0, spec)
    if not known.reached:
        return np.ones(spec.blocks, bool)
    (reached,) = known.reached
    return known.table.might_match(to_boxes(reached.holds(keys), known.columns).boxes)
