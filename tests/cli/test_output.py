"""What verbs print: JSON that loses nothing, tables that cut nothing."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parquetry.cli.terminal.output import cell, jsonable
from parquetry.cli.verbs.demo_queries import same_answer
from parquetry.cli.verbs.query import rows_of
from parquetry.errors import QueryError
from tests.cli.calling import Shell

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.decimals() | st.text() | st.binary() | st.dates()
    | st.datetimes(timezones=st.none() | st.just(UTC)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


@given(VALUES)
def test_every_value_becomes_strict_json(value: Any) -> None:
    text = json.dumps(jsonable(value), allow_nan=False)
    assert json.loads(text) == jsonable(value)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6))
def test_decimals_keep_every_digit(value: Decimal) -> None:
    assert Decimal(jsonable(value)) == value
    assert jsonable(value).endswith(str(value)[-1])


def test_the_forms_of_values_in_json() -> None:
    given = [date(2026, 1, 2), datetime(2026, 1, 2, 3, tzinfo=UTC), b"\x00\xff", float("nan"), float("-inf"), 2**63]
    assert jsonable(given) == ["2026-01-02", "2026-01-02T03:00:00+00:00", "00ff", "NaN", "-Infinity", 2**63]


def test_user_data_is_printed_as_it_is() -> None:
    assert cell("[bold]x[/bold]") == "[bold]x[/bold]"


def test_a_date_beyond_pythons_is_refused_in_one_line() -> None:
    far = pa.table({"d": pa.array([5_000_000], pa.date32())})
    with pytest.raises(QueryError, match="cast it to a string"):
        rows_of(far)


def test_two_columns_of_one_name_both_reach_the_rows() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert rows_of(table) == [[1, 2]]


def test_wide_tables_are_not_cut_in_a_pipe(shell: Shell) -> None:
    columns = ", ".join(f"a_rather_long_column_name_{i} int" for i in range(30))
    assert shell("create-table", "wide", "--schema", columns, "--key", "a_rather_long_column_name_0").code == 0
    assert "a_rather_long_column_name_29" in shell("sql", "SELECT * FROM wide").out


def test_retention_is_shown_and_changed(shell: Shell) -> None:
    assert shell.json("retention")["history_s"] == 7 * 24 * 3600
    assert shell.json("retention", "history_s=3600", "queries_rows=5")["history_s"] == 3600
    assert shell.json("retention")["queries_rows"] == 5


def test_markup_in_a_value_is_no_markup(shell: Shell) -> None:
    answer = shell("sql", "SELECT '[red]x[/red]' AS a, count(*) AS n FROM sales", "--executor", "local")
    assert answer.code == 0, answer.err
    assert "[red]x[/red]" in answer.out


# -- create-table --like ------------------------------------------------------------------------------------


def test_like_parquet_is_exact(tmp_path: Path, nowhere: Shell) -> None:
    schema = pa.schema([("k", pa.int64()), ("d", pa.decimal128(9, 2)), ("t", pa.timestamp("us", tz="UTC"))])
    pq.write_table(schema.empty_table(), tmp_path / "f.parquet")
    nowhere.json("init")
    made = nowhere.json("create-table", "t", "--like", str(tmp_path / "f.parquet"), "--key", "k")
    assert made["columns"] == {"k": "bigint", "d": "decimal(9,2)", "t": "timestamp"}


# -- the demo's comparison ----------------------------------------------------------------------------------


def test_same_answer_ignores_order_and_the_last_digit_of_floats_only() -> None:
    left = pa.table({"a": [1, 2], "x": [0.1 + 0.2, float("nan")]})
    assert same_answer(left, pa.table({"a": [2, 1], "x": [float("nan"), 0.3]}))
    assert not same_answer(left, pa.table({"a": [2, 1], "x": [float("nan"), 0.31]}))
    assert not same_answer(left, pa.table({"b": [1, 2], "x": [0.3, float("nan")]}))
    assert not same_answer(pa.table({"d": [Decimal("1.10")]}), pa.table({"d": [Decimal("1.11")]}))
    assert not same_answer(pa.table({"a": [1, 1, 2]}), pa.table({"a": [1, 2, 2]}))
