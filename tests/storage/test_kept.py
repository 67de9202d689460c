"""A file that another delta takes over keeps all that its index knew, under new block numbers."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parquetry.errors import StorageError
from parquetry.model.delta import Delta, StoredFile
from parquetry.model.schema import Column, TableSchema
from parquetry.storage.index import KEY_BYTES, RowGroup, build_index
from parquetry.storage.kept import keep_files
from parquetry.storage.store import Store, checksum
from tests.storage.test_index import SCHEMA, TEXTS, group, reader_of

WIDER = TableSchema((*SCHEMA.columns, Column("new", "int")), ("k",))


def delta_of(store: Store, groups: list[RowGroup], name: str) -> Delta:
    data = build_index(groups, SCHEMA, 10, 3)
    path = f"1/{name}/index.pqx"
    store.write(path, data)
    files = tuple(StoredFile(f"1/{name}/part-{i}.parquet", 1, "", 1) for i in range(max(g.file for g in groups) + 1))
    return Delta(name, 1, 1, 1, 0, 1, 1, 1, 1, StoredFile(path, len(data), checksum(data)), files)


@given(texts=st.lists(TEXTS, min_size=2, max_size=40), cut=st.integers(1, 6), seed=st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_an_index_built_from_kept_files_says_the_same(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], cut: int, seed: int
) -> None:
    texts.sort()
    pieces = [texts[i : i + cut] for i in range(0, len(texts), cut)]
    stats = {"mins": {"d": Decimal(1)}, "maxs": {"d": Decimal(3)}, "nulls": {"d": 1, "k": 0}, "nans": {"f": True}}
    groups = [
        replace(group(i % 2, p, 5 * i, **stats), file=i // 2, boxes="[]" if i else None) for i, p in enumerate(pieces)
    ]
    store = Store(str(tmp_path_factory.mktemp("store")))
    delta = delta_of(store, groups, f"d{seed}")
    kept = keep_files(store, delta, SCHEMA, set(range(len(delta.files))), lambda block: block + 7)
    assert [k.file for k in kept] == list(delta.files)
    again = [replace(g, file=i) for i, k in enumerate(kept) for g in k.groups]
    moved = [
        replace(replace(group(i % 2, p, 5 * i + 7, **stats), file=i // 2), boxes="[]" if i else None)
        for i, p in enumerate(pieces)
    ]
    rebuilt, expected = (reader_of(build_index(made, SCHEMA, 10, 3)).row_groups().batch for made in (again, moved))
    assert rebuilt.equals(expected)


def test_columns_that_came_later_are_null_in_kept_files(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    delta = delta_of(store, [group(0, ["a", "b", "c"])], "x")
    (kept,) = keep_files(store, delta, WIDER, {0}, lambda block: block)
    assert kept.groups[0].nulls["new"] == 3
    assert keep_files(store, delta, WIDER, set(), lambda block: block) == []


def test_keys_that_the_index_had_to_cut_are_refused(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    delta = delta_of(store, [group(0, ["a", "b" * (KEY_BYTES + 5)])], "y")
    with pytest.raises(StorageError, match="relayout the whole table"):
        keep_files(store, delta, SCHEMA, {0}, lambda block: block)
