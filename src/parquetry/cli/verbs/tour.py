"""The demo's steps: each does something real, says what it did, and shows the command that does the same."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from parquetry.cli.terminal.output import counted, size, table_of
from parquetry.cli.terminal.progress import shown
from parquetry.cli.verbs.demo_data import Batch
from parquetry.cli.verbs.demo_queries import (
    Question,
    dashboards,
    key_in_the_middle,
    questions,
    same_answer,
    spark_questions,
)
from parquetry.cli.verbs.query import stats_line
from parquetry.cli.verbs.show import freshness_line
from parquetry.errors import ParquetryError

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from rich.console import Console

    from parquetry import Result, Warehouse

_ONE_MONTH = (
    "SELECT sum(revenue) AS revenue, sum(orders) AS orders FROM daily_sales "
    "WHERE day BETWEEN DATE '1995-03-01' AND DATE '1995-03-31'"
)
_VIEW = (
    "SELECT o_orderdate, o_orderpriority, sum(o_totalprice) AS revenue, count(*) AS n "
    "FROM orders GROUP BY o_orderdate, o_orderpriority"
)
_CHART = Question(
    "revenue per year and priority",
    "SELECT year(o_orderdate) AS y, o_orderpriority, sum(o_totalprice) AS revenue FROM orders "
    "GROUP BY year(o_orderdate), o_orderpriority ORDER BY y, o_orderpriority",
)


class Tour:
    """Walks through a warehouse on a console and keeps its figures in ``record``."""

    def __init__(self, wh: Warehouse, out: Console, scale: float) -> None:
        self._wh, self._out, self._scale = wh, out, scale
        self._steps = 0
        self.record: dict[str, Any] = {"scale": scale, "ingests": [], "maintained": [], "queries": []}

    def heading(self, text: str) -> None:
        self._steps += 1
        self._out.print(f"\n{self._steps}. {text}", style="bold cyan")

    def say(self, text: str) -> None:
        self._out.print(text)

    def command(self, text: str) -> None:
        self._out.print(f"   $ parquetry {text}", style="dim")

    # -- the steps --------------------------------------------------------------------------------

    def create_tables(self, first: Batch) -> None:
        from parquetry import schema_like

        self.heading("Three tables")
        self.command("create-table orders --like orders.parquet --key o_orderkey")
        self._wh.create_table("orders", schema_like(str(first.orders[0])), ["o_orderkey"])
        self.command("create-table lineitem --like lineitem.parquet --key l_orderkey,l_linenumber")
        self._wh.create_table("lineitem", schema_like(str(first.lineitem[0])), ["l_orderkey", "l_linenumber"])
        columns = "day date, revenue decimal(18,2), orders bigint"
        self.command(
            f'create-table daily_sales --schema "{columns}" --key day --model aggregate '
            "--value revenue=sum --value orders=sum"
        )
        self._wh.create_table("daily_sales", columns, ["day"], "aggregate", {"revenue": "sum", "orders": "sum"})
        self.say("orders and lineitem keep every row; in daily_sales rows of one day merge into one by adding up.")

    def ingest(self, batches: Sequence[Batch], number: int) -> None:
        for i, batch in enumerate(batches, number):
            label = f"batch-{i}"
            sources: list[tuple[str, Any]] = [
                ("orders", [str(p) for p in batch.orders]),
                ("lineitem", [str(p) for p in batch.lineitem]),
                ("daily_sales", batch.daily_totals()),
            ]
            told = []
            for table, source in sources:
                started = time.perf_counter()
                with shown(f"{label}: ingest into {table}") as work:
                    done = self._wh.ingest(table, source, label, progress=work)
                took = time.perf_counter() - started
                told.append(f"{table} {done.rows:,} rows in {took:.1f} s")
                self.record["ingests"].append({"table": table, "label": label, "rows": done.rows, "seconds": took})
            self.say(f"   {label}: " + ", ".join(told))

    def show_freshness(self) -> None:
        self.command("freshness")
        found = self._wh.freshness()
        hidden = ", ".join(f"{t['table']} {t['hidden_rows']:,}" for t in found["tables"] if t["hidden_rows"])
        self.say(f"   {freshness_line(found)}" + (f"; rows hidden: {hidden}" if hidden else ""))

    def count_orders(self) -> int:
        answer = self._wh.sql("SELECT count(*) AS n FROM orders", executor="local").arrow()
        n = int(answer["n"][0].as_py())
        self.command("sql 'SELECT count(*) FROM orders'")
        self.say(f"   {n:,}")
        return n

    def maintain(self) -> None:
        self.command("maintain")
        before = self._wh.freshness()["qt"]
        started = time.perf_counter()
        with shown("maintain") as work:
            for stage in self._wh.maintaining(progress=work):
                work.start(str(stage))
                self.say(f"   {stage}")
        took = time.perf_counter() - started
        qt = self._wh.freshness()["qt"]
        self.say(f"   QT {f'{before} -> {qt}' if qt > before else qt} in {took:.1f} s")
        self.record["maintained"].append({"qt_before": before, "qt": qt, "seconds": took})

    def show_deltas(self) -> None:
        """One month's totals, and how much had to be read for them."""
        deltas = ", ".join(f"{t['table']} {t['deltas']}" for t in self._wh.tables())
        self._wh.sql(_ONE_MONTH, executor="local").arrow()  # the first run opens files; the second is what users feel
        result = self._wh.sql(_ONE_MONTH, executor="local")
        (row,) = result.rows()
        self.say(f"   deltas: {deltas}")
        self.say(f"   sales of March 1995: {row['revenue']:,} in {counted(row['orders'], 'order')}")
        self._out.print(f"   {stats_line(result.stats)}", style="dim")

    def ask(self) -> None:
        """Every question on both executors; different answers end the demo with an error."""
        shared, only_spark = questions(self._scale), spark_questions()
        rows: list[list[Any]] = []
        with shown("ask") as work:
            for question in shared:
                work(len(rows), len(shared) + len(only_spark))
                self._wh.sql(question.sql, executor="local").arrow()
                local = self._wh.sql(question.sql, executor="local")
                spark = self._wh.sql(question.sql, executor="spark")
                _check(question, local.arrow(), spark.arrow(), "the local executor", "Spark")
                rows.append(self._asked(question, local.stats, spark.stats))
            for question in only_spark:
                work(len(rows), len(shared) + len(only_spark))
                spark = self._wh.sql(question.sql, executor="spark")
                plain = self._wh.sql(question.sql, executor="spark", off=list(self._wh.rules()))
                _check(question, spark.arrow(), plain.arrow(), "Spark", "Spark with every rule off")
                rows.append(self._asked(question, None, spark.stats))
        self._out.print(
            table_of(("question", "rows", "local ms", "Spark ms", "blocks read", "skipped by", "local read"), rows)
        )
        self.say(
            f"   Both executors gave the same answer to all {len(shared)} questions they share; "
            "joins and windows gave the same with every rule off."
        )

    def _asked(self, question: Question, local: dict[str, Any] | None, spark: dict[str, Any]) -> list[Any]:
        stats = local or spark
        self.record["queries"].append({"about": question.about, "sql": question.sql, "local": local, "spark": spark})
        return [
            question.about,
            stats["rows_out"],
            f"{local['elapsed_ms']:.1f}" if local else "-",
            f"{spark['elapsed_ms']:.0f}",
            f"{stats['blocks_read']} of {stats['blocks_total']}",
            ", ".join(f"{proof} {n}" for proof, n in stats["skipped_by"].items()),
            size(local["bytes_read"]) if local else "-",
        ]

    def compare_totals(self) -> None:
        """The merged totals must be those of the rows they were made from."""
        kept = self._wh.sql("SELECT sum(revenue) AS revenue, sum(orders) AS orders FROM daily_sales").rows()
        counted_again = self._wh.sql("SELECT sum(o_totalprice) AS revenue, count(*) AS orders FROM orders").rows()
        if kept != counted_again:
            raise ParquetryError(f"the demo's totals differ: {kept} kept, {counted_again} counted; please report this")
        self.say(f"   daily_sales adds up to {kept[0]['revenue']:,}, exactly as the rows of orders do.")

    def explain(self) -> None:
        key = key_in_the_middle(self._scale) // 8
        where = f"l_orderkey < {key} AND l_shipdate >= DATE '1995-01-01'"
        query = f"SELECT sum(l_extendedprice) AS price FROM lineitem WHERE {where}"
        self.command(f'explain "{query}"')
        steps = self._wh.explain(query).to_json()["steps"]
        self._out.print(table_of(("step", "decided", "why"), [(s["rule"], s["decided"], s["why"]) for s in steps]))

    def create_view(self) -> None:
        self.command(f'create-view by_day "{_VIEW}"')
        self._wh.create_view("by_day", _VIEW)
        self.say("   Nobody has to name it: a query over orders is answered from it when that gives the same rows.")

    def ask_the_view(self) -> None:
        """One chart from the view and from the table; different answers end the demo with an error."""
        self.command(f'sql "{_CHART.sql}"')
        for off in ((), ("views",)):
            self._wh.sql(_CHART.sql, executor="local", off=off).arrow()
        view, table = (self._wh.sql(_CHART.sql, executor="local", off=off) for off in ((), ("views",)))
        _check(_CHART, view.arrow(), table.arrow(), "the view", "its table")
        self.say(
            f"   from the view: {view.stats['elapsed_ms']:.1f} ms, {counted(view.stats['rows_scanned'], 'row')} read; "
            f"from the table (--off views): {table.stats['elapsed_ms']:.1f} ms, "
            f"{counted(table.stats['rows_scanned'], 'row')}; the same answer"
        )
        self.record.setdefault("views", []).append({"view": view.stats, "table": table.stats})

    def learn_a_layout(self, folder: Path) -> None:
        """From a log of narrow queries to a table that is laid out for them, if the advisor finds that worth it."""
        log = folder / "dashboard.sql"
        queries, question = dashboards(self._scale)
        log.write_text("".join(f"{sql};\n" for sql in queries))
        before = self._narrow(question)
        self.command("workload import dashboard.sql")
        done = self._wh.import_workload(log)
        self.say(f"   {done.queries} queries, which ask for some products over some months")
        self.command("relayout lineitem auto")
        started = time.perf_counter()
        with shown("relayout lineitem") as work:
            laid = self._wh.relayout("lineitem", "auto", phase=work.start, progress=work)
        took = time.perf_counter() - started
        self.say(f"   {laid.reason}")
        self.record["relayout"] = {"applied": laid.applied, "learner": laid.learner, "seconds": took}
        if not laid.applied:
            return
        self.say(f"   {laid.rows:,} rows in {counted(laid.blocks, 'block')} by {laid.learner}, in {took:.0f} s")
        after = self._narrow(question)
        _check(question, before.arrow(), after.arrow(), "the old layout", "the new one")
        self.say(
            f"   a query like those of the log: {size(before.stats['bytes_read'])} read before, "
            f"{size(after.stats['bytes_read'])} after; {before.stats['elapsed_ms']:.1f} ms before, "
            f"{after.stats['elapsed_ms']:.1f} ms after; the same answer"
        )

    def _narrow(self, question: Question) -> Result:
        self._wh.sql(question.sql, executor="local").arrow()
        result = self._wh.sql(question.sql, executor="local")
        result.arrow()
        return result

    def clean_up(self) -> None:
        self.command("vacuum --grace 0")
        with shown("vacuum"):
            gone = self._wh.vacuum(grace_s=0)
        self.say(f"   removed {counted(gone.deltas, 'replaced delta')}, {size(gone.bytes)}")
        self.command("verify")
        with shown("verify"):
            problems = self._wh.verify()
        if problems:
            raise ParquetryError(f"verify found: {problems[0].table}: {problems[0].what}; please report this")
        self.say("   every file matches its checksum, every index adds up")
        self.record["vacuumed"] = {"deltas": gone.deltas, "bytes": gone.bytes}


def _check(question: Question, left: pa.Table, right: pa.Table, left_name: str, right_name: str) -> None:
    if not same_answer(left, right):
        raise ParquetryError(
            f"{left_name} and {right_name} answer '{question.about}' differently; "
            f"please report this query: {question.sql}"
        )
