"""Whatever happens to the bytes of an index, it answers rightly or with one clear error: no crash, no wrong answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from parquetry.errors import StorageError
from parquetry.model.delta import StoredFile
from parquetry.storage.cache import METADATA
from parquetry.storage.index import build_index
from parquetry.storage.index_reader import IndexReader, open_index
from parquetry.storage.store import Store, checksum
from tests.storage.test_index import SCHEMA, group

OLD = Path(__file__).parent / "fixtures" / "format-1.pqx"
"""The index of ``GROUPS`` as the first format had it: no checksums but the footer's."""
GROUPS = [
    group(i, [f"{i:03d}{c}" for c in "abcde"], mins={"d": Decimal(i)}, maxs={"d": Decimal(i + 5)}, nulls={"d": 1})
    for i in range(20)
]
FLIPS = 400


def all_that_it_says(reader: IndexReader) -> list[Any]:
    """Every node of every level, read one by one and all at once."""
    common = [n for n in reader.row_groups().batch.schema.names if "crc" not in n and n != "footer_at"]
    said: list[Any] = [reader.root, reader.row_groups().batch.select(common).to_pylist()]
    counts = [reader.row_group_count]
    for level in range(1, reader.levels):
        counts.append(-(-counts[-1] // reader.fan_out))
        nodes = [reader.entries(level, n) for n in range(counts[-1])]
        said += [(n.starts, n.ends, n.rows.tolist(), n.bytes.tolist()) for n in nodes]
    leaves = [*reader.leaves(range(reader.row_group_count)), *map(reader.leaf, range(reader.row_group_count))]
    return said + [(n.starts, n.ends, n.rows.tolist()) for n in leaves]


def flip(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def index_bytes(version: int) -> bytes:
    return OLD.read_bytes() if version == 1 else build_index(GROUPS, SCHEMA, 10, 3)


def answers(store: Store, stored: StoredFile, damaged: bytes) -> list[Any] | None:
    """What the index says now; None if it says that it is damaged, and which one."""
    METADATA.clear()
    (Path(store.root) / stored.path).write_bytes(damaged)
    try:
        return all_that_it_says(open_index(store, stored))
    except StorageError as e:
        told = str(e)
    finally:
        METADATA.clear()
    assert stored.path in told
    assert "\n" not in told
    return None


@pytest.fixture
def stored(tmp_path: Path) -> Callable[[int], tuple[Store, StoredFile, bytes]]:
    def store_index(version: int) -> tuple[Store, StoredFile, bytes]:
        data = index_bytes(version)
        (tmp_path / "1").mkdir(exist_ok=True)
        return Store(str(tmp_path)), StoredFile("1/index.pqx", len(data), checksum(data)), data

    return store_index


def test_an_index_of_the_first_format_says_the_same(
    stored: Callable[[int], tuple[Store, StoredFile, bytes]],
) -> None:
    (old, new) = (answers(*stored(version)) for version in (1, 2))
    assert old is not None
    places = ("leaf_offset", "leaf_length")  # there are no checksums between leaves and nodes
    for said in (old, new):
        assert said is not None
        said[1] = [{k: v for k, v in row.items() if k not in places} for row in said[1]]
    assert old == new


@pytest.mark.parametrize("version", [1, 2])
def test_a_flipped_bit_anywhere_is_told_and_never_decoded(
    version: int, stored: Callable[[int], tuple[Store, StoredFile, bytes]]
) -> None:
    store, file, data = stored(version)
    right = answers(store, file, data)
    rng = random.Random(f"flips {version}")
    bits = [*rng.sample(range(8 * len(data)), FLIPS), *range(8 * len(data) - 96, 8 * len(data))]
    told = 0
    for bit in bits:
        found = answers(store, file, flip(data, bit))
        assert found in (None, right), f"bit {bit}"
        told += found is None
    assert told >= len(bits) - 32  # the magic at the beginning is all that nobody reads


@pytest.mark.parametrize("version", [1, 2])
def test_a_short_or_blank_index_is_told(version: int, stored: Callable[[int], tuple[Store, StoredFile, bytes]]) -> None:
    store, file, data = stored(version)
    rng = random.Random(f"lengths {version}")
    for _ in range(100):
        a, b = sorted(rng.sample(range(4, len(data)), 2))
        assert answers(store, file, data[:a]) is None, f"cut at {a}"
        assert answers(store, file, data[:a] + bytes(b - a) + data[b:]) is None, f"blank from {a} to {b}"
        assert answers(store, file, data[:a] + rng.randbytes(b - a) + data[b:]) is None, f"noise from {a} to {b}"
