"""Random damage to files and to rows of the catalog."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

KINDS = ("index", "data", "description", "catalog")


def files_of(folder: Path, kind: str) -> list[Path]:
    match kind:
        case "index":
            return sorted(folder.glob("data/*/*/index.pqx"))
        case "data":
            return sorted(folder.glob("data/*/*/*.parquet"))
        case "description":
            return [folder / "parquetry.json"]
    return [folder / "catalog.db"]


def damage_file(rng: random.Random, path: Path) -> str:
    """Changes the file's bytes; says how."""
    content = bytearray(path.read_bytes())
    size = len(content)
    at = rng.randrange(size)
    match rng.choice(["bit", "bit", "bit", "bits", "zeros", "noise", "cut", "longer", "empty"]):
        case "bit":
            bit = rng.randrange(8)
            content[at] ^= 1 << bit
            told = f"bit {bit} of byte {at} flipped"
        case "bits":
            places = [rng.randrange(size) for _ in range(rng.randint(2, 40))]
            for place in places:
                content[place] ^= 1 << rng.randrange(8)
            told = f"{len(places)} bits flipped"
        case "zeros":
            length = min(rng.choice([4, 64, 512, 4096]), size - at)
            content[at : at + length] = bytes(length)
            told = f"{length} zeros at {at}"
        case "noise":
            length = min(rng.choice([4, 64, 512]), size - at)
            content[at : at + length] = rng.randbytes(length)
            told = f"{length} random bytes at {at}"
        case "cut":
            del content[at:]
            told = f"cut to {at} bytes"
        case "longer":
            content += rng.randbytes(rng.randint(1, 200))
            told = f"{len(content) - size} bytes longer"
        case _:
            content.clear()
            told = "emptied"
    if content == path.read_bytes():  # zeros where there were zeros
        content[at] ^= 1
        told = f"bit 0 of byte {at} flipped"
    path.write_bytes(content)
    return f"{path.name}: {told} of {size}"


# What of a row is only told, or found out by reading: whatever stands there, no answer may be wrong.
CHECKED = {
    "files": ["path", "bytes", "checksum", "rows"],
    "deltas": ["rows", "bytes", "level", "layout_id", "schema_id"],
    "layouts": ["spec"],
    "schemas": ["body"],
    "settings": ["body"],
    "versions": ["at", "kind", "detail"],
    "changes": ["edit", "detail"],
    "labels": ["digest", "rows_in"],
}
# What makes up the state itself: another value may be another state, as good as the first. It may be refused.
STATE = {
    "clock": ["version", "t", "visible"],
    "queryable": ["qt", "table_id", "added_version", "removed_version"],
    "deltas": ["t_lo", "t_hi", "table_id", "added_version", "removed_version"],
    "tables": ["name", "lower_name", "table_id", "removed_version"],
    "schemas": ["table_id", "added_version"],
    "files": ["delta_id", "position"],
    "meta": ["value"],
}


def damage_row(rng: random.Random, catalog: Path, columns: dict[str, list[str]]) -> str:
    """Changes one value of one row; says which."""
    with closing(sqlite3.connect(catalog)) as conn:
        while True:
            table = rng.choice(list(columns))
            column = rng.choice(columns[table])
            ids = [r for (r,) in conn.execute(f"SELECT rowid FROM parquetry_{table}")]
            if ids:
                break
        row = rng.choice(ids)
        (before,) = conn.execute(f'SELECT "{column}" FROM parquetry_{table} WHERE rowid = ?', (row,)).fetchone()
        after = _other(rng, before)
        try:
            conn.execute(f'UPDATE parquetry_{table} SET "{column}" = ? WHERE rowid = ?', (after, row))
            conn.commit()
        except sqlite3.IntegrityError:
            return "nothing: the catalog's own rules forbid it"
    return f"{table}.{column}: {str(before)[:200]!r} became {str(after)[:200]!r}"


def _other(rng: random.Random, value: Any) -> Any:
    roll = rng.random()
    if roll < 0.15:
        return rng.choice([None, "", 0, -1, 1, 2**63 - 1, -(2**63), 1.5, b"\xff", "x", "{}", "[]", "null", "../../x"])
    if isinstance(value, int):
        return rng.choice([value + 1, value - 1, value * 2, -value, 0, value ^ (1 << rng.randrange(62))])
    if isinstance(value, float):
        return rng.choice([0.0, -value, value * 10, 1e300])
    if isinstance(value, str):
        if value[:1] in ("{", "[") and rng.random() < 0.7:
            return json.dumps(_other_json(rng, json.loads(value)), default=repr)
        i = rng.randrange(len(value) + 1)
        return rng.choice([value[:i], value[:i] + rng.choice('x"é/.0{}') + value[i + 1 :], value + "x", value.upper()])
    return rng.choice([0, 1, "x", 7])


def _other_json(rng: random.Random, value: Any) -> Any:
    """The document with something inside it changed."""
    if isinstance(value, dict) and value:
        key = rng.choice(list(value))
        roll = rng.random()
        if roll < 0.15:
            return {k: v for k, v in value.items() if k != key}
        if roll < 0.25:
            return {(k + "x" if k == key else k): v for k, v in value.items()}
        return {**value, key: _other_json(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.85:
        i = rng.randrange(len(value))
        return [*value[:i], *([_other_json(rng, value[i])] if rng.random() < 0.8 else []), *value[i + 1 :]]
    return _other(rng, value)
