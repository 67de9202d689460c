"""The verb ``demo``: a guided tour on generated data that ends with a warehouse to play with."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parquetry.cli.terminal.options import Json
from parquetry.cli.terminal.output import console, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from parquetry.cli.verbs.demo_data import Batch
    from parquetry.cli.verbs.tour import Tour

verbs = typer.Typer()

_MARK = "made-by-parquetry-demo"


@verbs.command("demo")
def demo(
    scale: Annotated[float, typer.Option(min=0.001, help="TPC-H scale factor: 1 is 7.5 million rows.")] = 1.0,
    folder: Annotated[str, typer.Option(metavar="DIR", help="Where the demo's warehouse goes.")] = "demo-warehouse",
    keep: Annotated[bool, typer.Option("--keep", help="Keep the generated input files, too.")] = False,
    json: Json = False,
) -> None:
    """Take a tour: create, ingest, maintain, a view, query, explain, a learned layout, vacuum."""
    started = time.perf_counter()
    out = console(stderr=json)
    warehouse = _cleared(folder)
    inputs = Path(tempfile.mkdtemp(prefix="parquetry-demo-"))
    try:
        record = _tour(warehouse, inputs, scale, out)
    finally:
        if keep:
            print(f"the generated files are in {inputs}", file=sys.stderr)
        else:
            shutil.rmtree(inputs, ignore_errors=True)
    took = time.perf_counter() - started
    _print_next(out, warehouse, scale, took)
    if json:
        print_json({**record, "folder": str(warehouse), "seconds": took, "same_answers": True})


def _cleared(named: str) -> Path:
    """The folder for the demo's warehouse; an earlier demo's goes, anything else is left alone."""
    from parquetry.errors import WarehouseError
    from parquetry.warehouse import local_folder

    folder = local_folder(named)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if not (folder / _MARK).exists():
            raise WarehouseError(f"'{folder}' holds something else than an earlier demo; name another --folder")
        shutil.rmtree(folder)
    return folder


def _tour(warehouse: Path, inputs: Path, scale: float, out: Console) -> dict[str, object]:
    from parquetry.cli.terminal.progress import shown
    from parquetry.cli.verbs.demo_data import generate
    from parquetry.cli.verbs.tour import Tour
    from parquetry.warehouse import connect

    out.print(f"A tour of Parquetry on TPC-H at scale {scale:g}.", style="bold")
    with shown("generate orders and lineitem"):
        batches = generate(inputs, scale)
    with connect(warehouse) as wh:
        (warehouse / _MARK).touch()
        tour = Tour(wh, out, scale)
        tour.create_tables(batches[0])
        _hidden_until_maintained(tour, batches)
        tour.heading("A view, always exactly as new as its table")
        tour.create_view()
        tour.maintain()
        tour.ask_the_view()
        _late_batch(tour, batches)
        tour.heading("A dozen questions, each to both executors")
        tour.say("   local: in this process, second run. Blocks that cannot match are skipped by key range or min/max.")
        tour.ask()
        tour.compare_totals()
        tour.heading("Why it read what it read")
        tour.explain()
        tour.heading("The layout follows the queries")
        tour.learn_a_layout(inputs)
        tour.heading("Garbage and checks")
        tour.clean_up()
        return tour.record


def _hidden_until_maintained(tour: Tour, batches: list[Batch]) -> None:
    tour.heading("Three batches arrive")
    tour.command("ingest orders orders.parquet --label batch-1")
    tour.ingest(batches[:3], 1)
    tour.say("Each is one atomic delta, committed and safe, but hidden until the queryable timestamp (QT) reaches it:")
    tour.count_orders()
    tour.show_freshness()
    tour.heading("Maintenance moves the QT, for all tables at once")
    tour.maintain()
    tour.count_orders()
    tour.show_deltas()


def _late_batch(tour: Tour, batches: list[Batch]) -> None:
    from parquetry.errors import ParquetryError

    tour.heading("A larger batch arrives, and compaction is due")
    tour.ingest(batches[3:], len(batches))
    before = tour.count_orders()
    tour.maintain()
    after = tour.count_orders()
    tour.show_freshness()
    tour.say("After compaction the same question opens fewer deltas:")
    tour.show_deltas()
    tour.say("The view has the batch, too, for the QT waited for it:")
    tour.ask_the_view()
    if not 0 < before < after:
        raise ParquetryError(f"the QT showed {before} orders, then {after}; please report this")


def _print_next(out: Console, warehouse: Path, scale: float, took: float) -> None:
    from parquetry.cli.verbs.demo_queries import key_in_the_middle

    where = f"parquetry -w {shlex.quote(str(warehouse))}"
    key = key_in_the_middle(scale)
    out.print(f"\nDone in {took:.0f} s. The warehouse is yours; try next:", style="bold")
    for text in (
        "tables",
        f'sql "SELECT * FROM lineitem WHERE l_orderkey = {key}"',
        f'explain "SELECT count(*) FROM orders WHERE o_orderkey < {key}"',
        "views",
        "layout draw lineitem --out lineitem.svg",
        "queries --limit 5",
    ):
        out.print(f"  {where} {text}")
