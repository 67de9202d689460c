"""What a column takes on disk, by row group: measured in today's files, or by writing a few simulated row groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from parquetry.layouts.coding.codec import Numbers
from parquetry.model.delta import Delta
from parquetry.model.settings import Settings
from parquetry.model.types import is_float, is_nested
from parquetry.storage.checked_file import footer_of
from parquetry.storage.data_files import DICTIONARY_ROWS, FILE_GROUPS, dictionary_limit
from parquetry.storage.snapshot_index import data_files
from parquetry.storage.store import Store

_MOST_FOOTERS = 64  # files whose footers are read for today's sizes; they are much alike
_MOST_GROUPS = 64  # simulated row groups that are written to see how they compress
_MOST_ROWS = 400_000  # in them
_MOST_FIRSTS = 16  # first row groups of files that are looked at
_UNKNOWN_WIDTH = 8.0  # bytes per row of a column that neither files nor sample have


@dataclass(frozen=True)
class ColumnBytes:
    """A row group of ``n`` rows takes ``fixed + per_row * n`` bytes in each column."""

    per_row: Mapping[str, float]
    fixed: Mapping[str, float] = field(default_factory=dict)

    def of(self, columns: Collection[str], groups: float, rows: float) -> float:
        """The bytes of these columns in ``groups`` row groups with ``rows`` rows together."""
        return sum(
            self.fixed.get(c, 0.0) * groups + self.per_row.get(c, _UNKNOWN_WIDTH) * rows for c in dict.fromkeys(columns)
        )


def stored_column_bytes(store: Store, deltas: Sequence[Delta]) -> ColumnBytes:
    """Bytes per row of every column in the files as they are, by the footers of some of them."""
    files = [(d, i) for d in deltas for i, f in enumerate(d.files) if not f.extra]
    step = max(1, len(files) // _MOST_FOOTERS)
    rows, sizes = 0, dict[str, int]()
    for delta, ordinal in files[::step]:
        footer = footer_of(store, data_files(store, delta)[ordinal])
        rows += footer.num_rows
        for g in range(footer.num_row_groups):
            group = footer.row_group(g)
            for i in range(footer.num_columns):
                chunk = group.column(i)
                column = chunk.path_in_schema.partition(".")[0]
                sizes[column] = sizes.get(column, 0) + chunk.total_compressed_size
    return ColumnBytes({c: size / max(1, rows) for c, size in sizes.items()})


def simulated_column_bytes(
    sample: pa.Table, starts: Numbers, rate: float, settings: Settings, stored: ColumnBytes
) -> ColumnBytes:
    """Bytes of each column under a layout: ``sample`` is in the layout's order, its row groups begin at ``starts``.

    A sample has only some rows of a row group, so groups are written once with all of them and once with every other
    one: what does not shrink by half is a row group's own (headers, dictionary). So few rows compress badly; as many as
    a real row group has, taken from its neighbours, vary too much. Both take too many bytes, so the lower one counts.
    Columns that the sample lacks are taken as they are stored today.
    """
    ends = np.append(starts[1:], sample.num_rows)
    real_rows = max(1.0, sample.num_rows / rate / len(starts))
    count = min(len(starts), max(4, min(_MOST_GROUPS, int(_MOST_ROWS / real_rows))))
    picked = np.unique(np.linspace(0, len(starts) - 1, count).astype(np.int64))
    whole = [sample.slice(int(starts[g]), int(ends[g] - starts[g])) for g in picked]
    half = [part.take(pa.array(np.arange(0, part.num_rows, 2))) for part in whole]
    firsts = [sample.slice(int(starts[g]), int(ends[g] - starts[g])) for g in range(0, len(starts), FILE_GROUPS)]
    firsts = firsts[:: -(-len(firsts) // _MOST_FIRSTS)]
    dictionary = [f.name for f in sample.schema if _wants_dictionary(f, firsts, rate)]
    full_sizes, half_sizes = _written(whole, dictionary, settings), _written(half, dictionary, settings)
    rows, half_rows = sum(p.num_rows for p in whole), sum(p.num_rows for p in half)
    per_row, fixed = dict(stored.per_row), dict(stored.fixed)
    for column, size in full_sizes.items():
        slope = size / rows
        if rows > half_rows:  # else row groups have one row each
            slope = min(max((size - half_sizes[column]) / (rows - half_rows), 0.0), slope)
        per_row[column], fixed[column] = slope, (size - slope * rows) / len(whole)
    if rate < 1:
        length = min(round(rows / len(whole) / rate), sample.num_rows)
        pooled = [sample.slice(min(int(starts[g]), sample.num_rows - length), length) for g in picked]
        for column, size in _written(pooled, dictionary, settings).items():
            most = (size / len(pooled) - fixed[column]) / length
            per_row[column] = min(per_row[column], max(most, 0.0))
    return ColumnBytes(per_row, fixed)


def _wants_dictionary(column: pa.Field, firsts: Sequence[pa.Table], rate: float) -> bool:
    """Whether most files get a dictionary for the column: the first row group of a file, of which the writer sees all
    rows, has few distinct values. Each doubling of rows is taken to bring as many new ones as the last."""
    if is_nested(column.type) or is_float(column.type) or pa.types.is_boolean(column.type):
        return False
    head = max(2, round(DICTIONARY_ROWS * rate))
    votes = 0
    for group in firsts:
        values = group.column(column.name).slice(0, head)
        every_other = values.take(pa.array(np.arange(0, len(values), 2)))
        seen, fewer = (pc.count_distinct(some, mode="all").as_py() for some in (values, every_other))
        expected = seen + (seen - fewer) * np.log2(1 / rate)
        votes += expected <= dictionary_limit(round(len(values) / rate))
    return 2 * votes > len(firsts)


def _written(groups: Sequence[pa.Table], dictionary: Sequence[str], settings: Settings) -> dict[str, int]:
    """The bytes that each column takes when the groups are written as the writer would."""
    footer: list[Any] = []
    with pq.ParquetWriter(
        pa.BufferOutputStream(),
        groups[0].schema,
        compression=settings.compression,
        use_dictionary=list(dictionary),
        metadata_collector=footer,
        store_schema=False,
        store_decimal_as_integer=True,
    ) as writer:
        for group in groups:
            if group.num_rows:
                writer.write_table(group, row_group_size=group.num_rows)
    sizes: dict[str, int] = {}
    for g in range(footer[0].num_row_groups):
        for i in range(footer[0].num_columns):
            chunk = footer[0].row_group(g).column(i)
            column = chunk.path_in_schema.partition(".")[0]
            sizes[column] = sizes.get(column, 0) + chunk.total_compressed_size
    return sizes
