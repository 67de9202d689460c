from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from parquetry.layouts.coding.curve import bounding_ranks, decode, encode
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.registry import learn
from parquetry.layouts.routing.route import route_numpy


@pytest.mark.parametrize("curve", ["zorder", "hilbert"])
@pytest.mark.parametrize(("dims", "bits"), [(1, 4), (2, 3), (3, 2), (4, 2)])
def test_a_curve_visits_every_cell_once(curve: str, dims: int, bits: int) -> None:
    cells = np.indices((1 << bits,) * dims).reshape(dims, -1)
    values = encode(curve, list(cells), bits)
    assert sorted(values.tolist()) == list(range(1 << (dims * bits)))
    assert np.array_equal(np.array(decode(curve, values, dims, bits)), cells)


def test_hilbert_moves_one_step_at_a_time() -> None:
    path = np.array(decode("hilbert", np.arange(1 << 9), 3, 3))
    assert (np.abs(np.diff(path, axis=1)).sum(axis=0) == 1).all()


@pytest.mark.parametrize("curve", ["zorder", "hilbert"])
def test_the_box_of_a_stretch_is_exact(curve: str) -> None:
    rng = np.random.default_rng(1)
    path = np.array(decode(curve, np.arange(1 << 8), 2, 4))
    for _ in range(50):
        start, end = np.sort(rng.choice(257, 2, replace=False))
        lo, hi = bounding_ranks(curve, np.array([start]), np.array([end]), 2, 4)
        assert lo[0].tolist() == path[:, start:end].min(axis=1).tolist()
        assert hi[0].tolist() == path[:, start:end].max(axis=1).tolist()


@pytest.mark.parametrize("name", ["zorder", "hilbert"])
def test_blocks_along_a_curve_have_equal_size(name: str) -> None:
    rng = np.random.default_rng(2)
    table = pa.table({"a": rng.normal(size=10_000), "b": rng.integers(0, 1_000_000, 10_000)})
    spec = learn(name, table, [], LearnOptions(100, columns=("a", "b")))
    sizes = np.bincount(route_numpy(spec, table), minlength=spec.blocks)
    assert spec.blocks == 100
    assert sizes.min() > 90
    assert sizes.max() < 110


@pytest.mark.parametrize("curve", ["zorder", "hilbert"])
@pytest.mark.parametrize(("dims", "bits"), [(1, 4), (3, 3), (4, 2), (5, 2)])
def test_bounds_are_exact_whatever_the_number_of_axes(curve: str, dims: int, bits: int) -> None:
    rng = np.random.default_rng(dims)
    length = 1 << (dims * bits)
    points = np.stack(decode(curve, np.arange(length), dims, bits), axis=1)
    starts = rng.integers(0, length, 200)
    ends = rng.integers(starts + 1, length + 1)
    lo, hi = bounding_ranks(curve, starts, ends, dims, bits)
    for start, end, low, high in zip(starts, ends, lo, hi, strict=True):
        assert low.tolist() == points[start:end].min(axis=0).tolist()
        assert high.tolist() == points[start:end].max(axis=0).tolist()


def test_many_axes_take_little_memory() -> None:
    """Cubes alone would be a thousand for each level and stretch: ten axes took gigabytes."""
    cuts = np.sort(np.random.default_rng(0).integers(0, 1 << 60, 200))
    tracemalloc.start()
    bounding_ranks("hilbert", np.append(0, cuts), np.append(cuts, 1 << 60), 10, 6)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 50 << 20
