"""Whatever happens to the bytes of a data file, a query answers rightly or names it: no crash, no wrong answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquetry
from parquetry.errors import ParquetryError
from parquetry.query.local import reader as local_source
from parquetry.storage.cache import METADATA
from tests.views.without_spark import ingest, publish

ROWS = 6_000
QUERIES = {
    "whole": "SELECT count(*) AS n, sum(k) AS k, max(s) AS s, sum(d) AS d, max(f) AS f FROM t",
    "some": "SELECT k, s, d, f FROM t WHERE k BETWEEN 1400 AND 2800 ORDER BY k",
    "one": "SELECT k, s, d, f FROM t WHERE k = 5999 ORDER BY k",
    "small": "SELECT sum(k) AS k, max(s) AS s FROM small",
}


def rows(n: int) -> pa.Table:
    return pa.table(
        {
            "k": pa.array(range(n), pa.int64()),
            "s": [f"name {i * 7919 % n}" for i in range(n)],
            "d": pa.array([Decimal(i).scaleb(-2) for i in range(n)], pa.decimal128(12, 2)),
            "f": [i / 7 for i in range(n)],
        }
    )


@pytest.fixture(scope="module", params=["snappy", "none"])
def folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    made: Path = tmp_path_factory.mktemp("damaged") / "wh"
    with parquetry.connect(made) as wh:
        how = {"row_group_rows": 1000, "compression": request.param}
        for name, n in (("t", ROWS), ("small", 200)):
            wh.create_table(name, rows(1).schema, key=["k"], model="append", settings=how)
            ingest(wh, name, rows(n), "all")
        publish(wh)
        sizes = [f.bytes for t in ("t", "small") for d in wh.catalog.state().table(t).deltas for f in d.files]
    assert sizes[1] < 64 << 10 < sizes[0]  # one is read whole, the other in parts
    return made


@pytest.fixture(params=["automatic", "numbered", "picked"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "automatic":
        monkeypatch.setattr(local_source, "_PICKED_MS", 1e9 if request.param == "numbered" else -1e9)
        monkeypatch.setattr(local_source, "_DUCKDB_GAP", 0 if request.param == "numbered" else 16 << 10)


def answers(folder: Path) -> dict[str, Any]:
    """What every query answers, or the message it is refused with, by a process that has nothing in memory."""
    METADATA.clear()
    found: dict[str, Any] = {}
    with parquetry.connect(folder) as wh:
        for name, sql in QUERIES.items():
            try:
                found[name] = wh.sql(sql, executor="local").rows()
            except ParquetryError as e:
                found[name] = str(e)
    METADATA.clear()
    return found


Damage = Callable[[random.Random, bytes], bytes]


def flipped(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def blanked(rng: random.Random, data: bytes) -> bytes:
    a = rng.randrange(len(data))
    return data[:a] + bytes(min(512, len(data) - a)) + data[a + 512 :]


def longer(rng: random.Random, data: bytes) -> bytes:
    return data + rng.choice([rng.randbytes(9), data[-1000:]])


@pytest.fixture(scope="module")
def right(folder: Path) -> dict[str, Any]:
    return answers(folder)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("damage", "times"), [(flipped, 30), (cut, 6), (blanked, 6), (longer, 4)])
def test_damage_is_told_and_names_the_file(folder: Path, right: dict[str, Any], damage: Damage, times: int) -> None:
    check(folder, right, damage, times)


def check(folder: Path, right: dict[str, Any], damage: Damage, times: int) -> None:
    rng = random.Random(f"{damage.__name__} {times}")
    files = sorted(folder.glob("data/*/*/*.parquet"))
    told = 0
    for i in range(times):
        path = files[i % 4 == 0]  # the large one mostly
        before = path.read_bytes()
        path.write_bytes(damage(rng, before))
        try:
            found = answers(folder)
        finally:
            path.write_bytes(before)
        for name, answer in found.items():
            if answer != right[name]:
                assert isinstance(answer, str), f"{name} of {path.name}: a wrong answer in round {i}"
                assert path.name in answer
                assert "\n" not in answer
                told += 1
    assert told > times / 4  # some query reads nearly every byte


def test_a_file_without_known_checksums_is_compared_whole(
    folder: Path, right: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those are that an earlier version has written."""
    monkeypatch.setattr("parquetry.storage.index_reader.RowGroupTable.checks", {})
    assert answers(folder) == right
    check(folder, right, flipped, 10)


@pytest.mark.parametrize(
    "how", [{"executor": "spark", "off": ["scan_workers"]}, {"splits": 2}], ids=["spark", "workers"]
)
def test_spark_tells_damaged_values_too(folder: Path, right: dict[str, Any], how: dict[str, Any], spark: Any) -> None:
    (path,) = (p for p in folder.glob("data/*/*/*.parquet") if p.stat().st_size > 64 << 10)
    before = path.read_bytes()
    footer = pq.read_metadata(path)
    chunk = footer.row_group(2).column(3)  # the last bytes of its pages are values
    changed = bytearray(before)
    changed[chunk.data_page_offset + chunk.total_compressed_size - 2] ^= 16
    for sql in (QUERIES["whole"], QUERIES["some"]):
        METADATA.clear()
        with parquetry.connect(folder, spark=spark) as wh:
            path.write_bytes(changed)
            try:
                with pytest.raises(ParquetryError, match=path.name):
                    wh.sql(sql, **how).rows()
            finally:
                path.write_bytes(before)
    METADATA.clear()
