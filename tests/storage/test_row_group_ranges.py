"""The ranges of numbers by which Spark skips row groups."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from parquetry.storage.row_group_numbers import row_group_number
from parquetry.storage.scan.spark import _MOST_RANGES, _any_of, _ranges


@given(
    files=st.dictionaries(
        st.integers(0, 400), st.sets(st.integers(0, 127), min_size=1), min_size=1, max_size=_MOST_RANGES
    )
)
def test_ranges_hold_every_number_and_none_of_another_file(files: dict[int, set[int]]) -> None:
    numbers = sorted(row_group_number(f"1/a/part-{f}.parquet", g) for f, groups in files.items() for g in groups)
    found = _ranges(numbers)
    assert len(found) <= _MOST_RANGES
    assert all(any(a <= n <= b for a, b in found) for n in numbers)
    for other in range(500, 600):
        n = row_group_number(f"1/a/part-{other}.parquet", 0)
        assert not any(a <= n <= b for a, b in found)
    if sum(b - a > 1 for a, b in zip(numbers, numbers[1:], strict=False)) < _MOST_RANGES:
        assert sum(b - a + 1 for a, b in found) == len(numbers)


def test_many_conditions_are_no_deep_chain() -> None:
    text = _any_of([str(i) for i in range(128)])
    depth = deepest = 0
    for c in text:
        depth += (c == "(") - (c == ")")
        deepest = max(deepest, depth)
    assert deepest <= 8


def test_of_many_gaps_the_smallest_are_filled() -> None:
    files = [f"1/a/part-{f}.parquet" for f in range(_MOST_RANGES)]
    numbers = sorted(row_group_number(f, g) for f in files for g in range(0, 128, 3))
    found = _ranges(numbers)
    assert len(found) == _MOST_RANGES, "one for each file"
    assert all(b - a == 126 for a, b in found)
