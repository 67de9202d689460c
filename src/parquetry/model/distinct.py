"""``approx_count_distinct`` as a value that merges: HyperLogLog++ registers, and exactly Spark's answer from them.

A value's 64-bit hash names one of 512 registers by its first 9 bits, and a rank: one more than the zeros that follow.
A sketch is a sorted list with one number per register in use, ``64 * register + highest rank``. Lists unite, so any
cut of the rows gives the same sketch, and few values make a short list. Texts are of Spark or of DuckDB.
"""

from __future__ import annotations

from functools import cache

from parquetry.model.distinct_bias import COUNTS, RAW

FUNCTION = "approx_count_distinct"
SKETCH = "sketch"
"""The merge of sketches; only views store them."""
SKETCH_TYPE = "array<smallint>"

_BITS = 9  # of the register's number: Spark's choice for its default of 5 % standard deviation
_REGISTERS = 1 << _BITS
_RANK_BITS = 6
_LINEAR_UNTIL = 2.5 * _REGISTERS  # up to this raw estimate empty registers are counted, as Spark does
_BIASED_UNTIL = 5.0 * _REGISTERS
_NEIGHBOURS = 6  # the known biases around an estimate, whose mean is taken for its own


def register_text(value: str) -> str:
    """Spark text of the number that a value adds to a sketch; null for null."""
    bits = f"xxhash64({value})"
    rank = f"65 - length(bin(shiftleft({bits}, {_BITS}) | {_REGISTERS // 2}L))"
    number = f"CAST(shiftleft(shiftrightunsigned({bits}, {64 - _BITS}), {_RANK_BITS}) + {rank} AS SMALLINT)"
    return f"CASE WHEN {value} IS NOT NULL THEN {number} END"


def single_text(value: str) -> str:
    """Spark text of the sketch of one value; an empty one for null."""
    return f"array_compact(array({register_text(value)}))"


def collected_text(value: str) -> str:
    """Spark text, an aggregate: the sketch of a group's values."""
    return _highest(f"sort_array(collect_set({register_text(value)}))", duck=False)


def merged_text(sketch: str, *, duck: bool) -> str:
    """Text, an aggregate: the union of a group's sketches."""
    if duck:
        return _highest(f"list_sort(list_distinct(flatten(list({sketch}))))", duck=True)
    return _highest(f"sort_array(array_distinct(flatten(collect_list({sketch}))))", duck=False)


def _highest(numbers: str, *, duck: bool) -> str:
    """Text: of sorted numbers the last one of each register."""
    if duck:
        kept = f"list_filter(l, lambda e, i: i = len(l) OR (l[i + 1] >> {_RANK_BITS}) <> (e >> {_RANK_BITS}))"
    else:
        after = f"shiftright(try_element_at(l, i + 2), {_RANK_BITS}) <> shiftright(e, {_RANK_BITS})"
        kept = f"filter(l, (e, i) -> i = size(l) - 1 OR {after})"
    return _let("l", numbers, kept, duck=duck)


def estimate_text(sketch: str, *, duck: bool) -> str:
    """Text: the number of distinct values that Spark gives for the values of a sketch."""
    double = "::DOUBLE" if duck else "D"
    used = "len(l)" if duck else "size(l)"
    empty = f"({_REGISTERS}{double} - {used})"
    if duck:
        powers = "coalesce(list_sum(list_transform(l, lambda e: 1 / (1::BIGINT << (e & 63))::DOUBLE)), 0)"
    else:
        powers = "aggregate(l, 0D, (a, e) -> a + 1D / shiftleft(1L, e & 63S))"
    raw = f"{_raw_scale()!r}{double} / ({empty} + {powers})"
    known = f"[{_listed(_borders())}]", f"[{_listed(_biases())}]"
    if duck:
        bias = f"{known[1]}[1 + len(list_filter({known[0]}, lambda b: b < x))]"
    else:
        arrays = [f"array({t.strip('[]')})" for t in known]
        bias = f"element_at({arrays[1]}, 1 + size(filter({arrays[0]}, b -> b < x)))"
    linear = f"{_REGISTERS} * ln({_REGISTERS}{double} / {empty})"
    corrected = (
        f"CASE WHEN x <= {_LINEAR_UNTIL!r}{double} AND {used} < {_REGISTERS} THEN {linear} "
        f"WHEN x < {_BIASED_UNTIL!r}{double} THEN x - {bias} ELSE x END"
    )
    estimated = _let("l", sketch, _let("x", raw, corrected, duck=duck), duck=duck)
    return f"CAST(floor({estimated} + 0.5{double}) AS BIGINT)"


def _let(name: str, value: str, text: str, *, duck: bool) -> str:
    """Text: ``text``, in which ``name`` is ``value``, computed once."""
    if duck:
        return f"list_transform([{value}], lambda {name}: {text})[1]"
    return f"transform(array({value}), {name} -> {text})[0]"


def _raw_scale() -> float:
    return 0.7213 / (1.0 + 1.079 / _REGISTERS) * _REGISTERS * _REGISTERS


@cache
def _borders() -> tuple[float, ...]:
    """The raw estimates above which the next ones of ``_biases`` count: where other neighbours become the nearest."""
    moved = [
        min(RAW[i + _NEIGHBOURS - 2], (RAW[i - 1] + RAW[i + _NEIGHBOURS - 1]) / 2)
        for i in range(1, len(RAW) - _NEIGHBOURS + 1)
    ]
    return (*moved, RAW[-1])


@cache
def _biases() -> tuple[float, ...]:
    """The mean bias of ever higher neighbours; beyond the last known estimate there are one fewer."""
    found = []
    for i in range(len(RAW) - _NEIGHBOURS + 2):
        near = [r - n for r, n in zip(RAW[i : i + _NEIGHBOURS], COUNTS[i : i + _NEIGHBOURS], strict=True)]
        found.append(sum(near) / len(near))
    return tuple(found)


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"{v!r}e0" for v in values)
