"""What came of a query: rows, a refusal in one line, or something that must not happen."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from parquetry.errors import ParquetryError
from tests.differential.reference import differences


@dataclass(frozen=True)
class Outcome:
    rows: pa.Table | None = None
    refused: str = ""
    raw: str = ""  # the kind of an exception that is no ParquetryError, and where it came from
    details: str = ""


def outcome_of(act: Callable[[], pa.Table]) -> Outcome:
    try:
        return Outcome(rows=act())
    except ParquetryError as e:
        said = str(e)
        if "\n" in said or not said:
            return Outcome(raw=f"{type(e).__name__} in several lines", details=said)
        return Outcome(refused=said)
    except Exception as e:
        return Outcome(raw=place_of(e), details="".join(traceback.format_exception(e))[-2000:])


def place_of(error: BaseException) -> str:
    """The exception's kind and the innermost place in our own code that it passed."""
    ours = [f for f in traceback.extract_tb(error.__traceback__) if "/parquetry/" in f.filename]
    where = ours[-1].filename.rpartition("/parquetry/")[2] + ":" + ours[-1].name if ours else "elsewhere"
    return f"raw {type(error).__name__} from {where}"


def difference(got: pa.Table, expected: pa.Table, *, ordered: bool = False, count_only: bool = False) -> str:
    """What is wrong with the answer, in a line; empty when it is right."""
    if count_only:
        if got.schema.names != expected.schema.names or got.num_rows != expected.num_rows:
            return f"{got.num_rows} rows of {got.schema.names}, not {expected.num_rows} of {expected.schema.names}"
        return ""
    return "; ".join(differences(got, expected, ordered=ordered)[:3])[:600]
