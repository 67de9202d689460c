"""How a task says that the data is wrong, and how the driver tells the user in one line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from parquetry import errors
from parquetry.errors import DataError, ParquetryError, SparkLost, StorageError
from parquetry.storage.spark_text import literal

_MARK, _END = "PARQUETRY-DATA<<", ">>"
_VALUE = literal("value '")
_SHOWN = 200  # characters of a value or row
_SHOWN_COLUMNS = 8  # of a row
# What py4j says when nobody answers, and Spark after its end.
_SPARK_IS_GONE = ("Answer from Java side is empty", "while connecting to the Java server", "stopped SparkContext")
_MEND = "nothing was written. Mend the data and ingest it again"


def in_task(message: str, to: str) -> str:
    """SQL that stops the job with ``message``, itself an expression, in the place of a value of type ``to``."""
    return f"CAST(raise_error(concat({literal(_MARK)}, {message}, {literal(_END)})) AS {to})"


def in_python(message: str) -> ValueError:
    """The same from a Python task."""
    return ValueError(_MARK + message + _END)


def shown(value: str) -> str:
    """An SQL value as a message shows it: on one line, not too long."""
    text = f"substring(coalesce(CAST({value} AS STRING), 'null'), 1, {_SHOWN})"
    return f"regexp_replace({text}, {literal(chr(92) + 's+')}, ' ')"


def shown_row(fields: Sequence[str]) -> str:
    """The first of a row's fields as a message shows them."""
    first = f"struct({', '.join(fields[:_SHOWN_COLUMNS])})"
    return shown(f"to_json({first}, map('ignoreNullFields', 'false'))")


def unfit(value: str, column: str, to: str, row: str) -> str:
    """SQL of the message that a value is none of its column's type; ``row`` is SQL as well."""
    wrong = literal(f"' does not fit column '{column}' of type {to}; row ")
    return f"concat({_VALUE}, {shown(value)}, {wrong}, {row})"


def value_here(value: object) -> str:
    """What :func:`shown` shows, of a value in the process."""
    return " ".join(str("null" if value is None else value)[:_SHOWN].split())


def row_here(row: Mapping[str, object]) -> str:
    """What :func:`shown_row` shows, of a row in the process."""
    first = dict(list(row.items())[:_SHOWN_COLUMNS])
    return value_here(json.dumps(first, ensure_ascii=False, separators=(",", ":"), default=str))


def unfit_here(value: object, column: str, to: str, row: Mapping[str, object]) -> str:
    """The message of :func:`unfit`, in the process."""
    return f"value '{value_here(value)}' does not fit column '{column}' of type {to}; row {row_here(row)}"


def explain_failure(error: Exception, table: str) -> ParquetryError:
    """The one-line error for what a Spark job raised while it read, checked or wrote a batch."""
    text = str(error)
    if isinstance(error, ConnectionError) or any(sign in text for sign in _SPARK_IS_GONE):
        return SparkLost(f"Spark ended while it wrote '{table}'; nothing was committed. Start the command again")
    if said := re.search(re.escape(_MARK) + "(.*?)" + re.escape(_END), text, re.S):
        return DataError(f"table '{table}': {' '.join(said[1].split())}; {_MEND}", table=table)
    if raised := re.search(r"^parquetry\.errors\.(StorageError|DataError|SchemaError): (.+)$", text, re.M):
        kind: type[ParquetryError] = getattr(errors, raised[1])
        return kind(raised[2].strip())
    if "No space left on device" in text:
        return StorageError(
            f"no space left on the device while writing '{table}'; nothing was committed. "
            "Free some space and run the same command again"
        )
    if unreadable := re.search(r"\[(?:FAILED_READ_FILE|CANNOT_READ_FILE_FOOTER)[^\]]*\]\s*([^\n]*)", text):
        what = re.sub(r"\s*SQLSTATE: \w+", "", unreadable[1]).strip(" .")
        return DataError(f"table '{table}': {what}; {_MEND}", table=table)
    if malformed := re.search(r"\[MALFORMED_RECORD_IN_PARSING[^\]]*\][^:]*:\s*([^\n]*)", text):
        return DataError(f"table '{table}': broken row {malformed[1][:_SHOWN]}; {_MEND}", table=table)
    if apart := re.search(
        r"\[(?:CANNOT_MERGE_SCHEMAS|PARQUET_TYPE_ILLEGAL)\]\s*(.*?)(?:\s*SQLSTATE|\n\tat |$)", text, re.S
    ):
        what = " ".join(apart[1].split()).strip(" .")[: 2 * _SHOWN]
        return DataError(f"table '{table}': {what}. Make the files agree with the table's types", table=table)
    return ParquetryError(f"writing '{table}' failed: {telling_line(error)}; nothing was committed")


def telling_line(error: Exception) -> str:
    """The one line that tells most: the exception of a Python worker's traceback, or what follows py4j's preface."""
    text = str(error)
    raised = re.search(r"^[\w.]+(?:Error|Exception): .+$", text, re.M)
    lines = [line.strip(": \t") for line in text.splitlines() if line.strip()] or [type(error).__name__]
    line = (
        raised[0] if raised else lines[1] if lines[0].startswith("An error occurred while") and lines[1:] else lines[0]
    )
    return re.sub(r"\.?\s*SQLSTATE: \w+", "", line)[:300]
