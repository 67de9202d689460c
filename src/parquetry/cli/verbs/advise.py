"""Verbs of the advisor: advise and what-if."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parquetry.cli.terminal.options import Json, Query, Table, names, opened, query_text
from parquetry.cli.terminal.output import counted, print_json, print_table, size
from parquetry.cli.terminal.progress import shown

if TYPE_CHECKING:
    from parquetry import Advice, Checked, Measured

verbs = typer.Typer()


@verbs.command("advise")
def advise(
    ctx: typer.Context,
    table: Table,
    learners: Annotated[str | None, typer.Option(help="Compare these layouts only, comma-separated.")] = None,
    split: Annotated[float, typer.Option(help="The share of the log, the older part, to learn from.")] = 0.7,
    queries: Annotated[int, typer.Option(help="Use at most so many of the newest logged queries.")] = 2_000,
    workload: Annotated[
        Path | None, typer.Option(help="Use this file of SQL, oldest first, instead of the log.")
    ] = None,
    pays_back_within: Annotated[int, typer.Option(help="Queries within which a rewrite must pay.")] = 1_000,
    time_limit: Annotated[float, typer.Option(help="Begin no further layout after so many seconds.")] = 300,
    check: Annotated[bool, typer.Option("--check", help="Compare the last rewrite's prediction with reality.")] = False,
    json: Json = False,
) -> None:
    """Compare layouts on held-out queries of the log; changes nothing."""
    with opened(ctx) as wh:
        from parquetry import AdviseOptions

        if check:
            with shown(f"check {table}") as work:
                checked = wh.check_layout(table, queries=queries, phase=work.start, progress=work)
            print_json(checked.to_json()) if json else _print_check(checked)
            return
        wanted = AdviseOptions(
            learners=None if learners is None else names(learners),
            split=split,
            pays_back_within=pays_back_within,
            time_limit_s=time_limit,
        )
        with shown(f"advise {table}") as work:
            advice = wh.advise(
                table, workload=workload, options=wanted, queries=queries, phase=work.start, progress=work
            )
    print_json(advice.to_json()) if json else _print_advice(advice)


@verbs.command("what-if")
def what_if(
    ctx: typer.Context,
    query: Query,
    layout: Annotated[str, typer.Option(help="The layout to imagine: paw, qdtree, kdtree, … or key.")],
    table: Annotated[str | None, typer.Option(help="Which table of the query, if it reads several.")] = None,
    queries: Annotated[int, typer.Option(help="Learn from at most so many of the newest logged queries.")] = 2_000,
    json: Json = False,
) -> None:
    """Price one query under a layout that is not there, without writing data."""
    with opened(ctx) as wh, shown("what-if") as work:
        found = wh.what_if(query_text(query), layout, table=table, queries=queries, phase=work.start, progress=work)
    if json:
        print_json(found.to_json())
        return
    sides = (
        (f"today ({found.today_learner})", found.today, found.groups_today),
        (found.learner, found.then, found.groups_then),
    )
    columns = ["layout", "row groups read", "of", "rows read", "bytes read"]
    print_table(
        columns, [[name, f"{p.groups:,}", f"{of:,}", f"{p.rows:,.0f}", size(round(p.bytes))] for name, p, of in sides]
    )
    print(
        f"{found.matching_rows:,.0f} rows of {found.table} match; queries that '{found.learner}' was learned from: "
        f"{found.learned_from:,}; nothing was written"
    )


def _print_advice(advice: Advice) -> None:
    print(f"{advice.table}: {advice.verdict}; {advice.reason}")
    if advice.today is None or advice.bound is None:
        return
    bound, drifts = advice.bound, list(advice.today.sensitivity)
    lines = [_line("today", advice.today), *[_line(str(i), c) for i, c in enumerate(advice.candidates, 1)]]
    for name, rows, read in (
        ("least possible", bound.rounded_rows, bound.rounded_bytes),
        ("matching rows", bound.rows, bound.bytes),
    ):
        lines.append(["", name, "", "", f"{rows:,.0f}", size(round(read)), *[""] * (1 + len(drifts))])
    columns = ["", "layout", "blocks", "row groups", "rows/query", "bytes/query", "pays back after", *drifts]
    print_table(columns, lines)
    print(
        f"learned from {advice.learned_from} older queries, priced on {advice.held_out} newer ones, by a sample of "
        f"{advice.sample_rows:,} of {advice.rows:,} rows, in {advice.seconds:g} s; a rewrite reads and writes "
        f"{size(advice.rewrite_bytes)}"
    )
    for candidate in advice.candidates:
        print(f"- {candidate.label}: {candidate.reason}")
    for left in advice.left_out:
        print(f"- {left.label}: left out, {left.why}")
    for note in advice.notes:
        print(f"- {note}")


def _line(place: str, found: Measured) -> list[str]:
    back = "" if place == "today" else "never"
    if found.pays_back_after is not None:
        back = f"{found.pays_back_after:,.0f}"
    label = found.learner if place == "today" else found.label
    return [
        place,
        label,
        f"{found.blocks:,}",
        f"{found.row_groups:,}",
        f"{found.rows_per_query:,.0f}",
        size(round(found.bytes_per_query)),
        back,
        *[size(round(b)) for b in found.sensitivity.values()],
    ]


def _print_check(checked: Checked) -> None:
    if checked.reason:
        print(checked.reason)
        return
    columns = ["executor", "queries", "predicted/query", "real/query", "median error", "90 % within"]
    lines = [
        [c.executor, c.queries, *(size(round(b)) for b in (c.predicted_bytes, c.real_bytes)),
         f"{c.median_error:.1%}", f"{c.p90_error:.1%}"]
        for c in checked.compared
    ]  # fmt: skip
    print(f"{checked.table}: '{checked.learner}' since version {checked.version}")
    print_table(columns, lines)
    if checked.promised:
        promised, before = (int(checked.promised[k]) for k in ("bytes_per_query", "bytes_per_query_before"))
        print(f"the advisor had promised {size(promised)} per query instead of {size(before)}")
    if checked.deltas_in_layout < checked.deltas:
        behind = checked.deltas - checked.deltas_in_layout
        print(f"{counted(behind, 'delta')} of {checked.deltas} not in the layout yet: compaction brings them into it")
