"""The golden queries by name."""

from __future__ import annotations

import re
from pathlib import Path


def _load() -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted((Path(__file__).parent / "queries").glob("*.sql")):
        for name, sql in re.findall(r"^-- name: (.+)\n((?:(?!^--).*\n?)+)", path.read_text(), re.MULTILINE):
            assert name not in found, f"two queries are called '{name}'"
            found[name] = sql.strip()
    return found


QUERIES = _load()
