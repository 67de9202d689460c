"""What changes of a view's sources make of the view, as Spark frames (NA-28, NA-30).

One step goes from timestamp ``built`` to ``until``. With two or more sources the change of the join is taken apart:
the change of each source, joined with what the sources before it are after the step and those behind it were before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from parquetry.model.delta import Delta
from parquetry.model.distinct import FUNCTION as DISTINCT
from parquetry.model.distinct import collected_text
from parquetry.model.state import State, TableState
from parquetry.model.view import ROWS, StoredValue, ViewColumn, ViewSpec
from parquetry.storage.scan.scan import plan_scan
from parquetry.storage.scan.spark import stored_rows, table_rows
from parquetry.storage.spark_text import quote
from parquetry.storage.store import Store
from parquetry.views.nearby import files_near

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_SIGN = "__sign"


def rows_text(spec: ViewSpec) -> str:
    """Spark SQL for the rows below the view's aggregates: its groups, and each aggregate's argument."""
    selected = [f"{c.argument} AS {quote(c.name)}" for c in spec.groups]
    selected += [f"{argument} AS {name}" for name, argument in spec.arguments.items()]
    where = f" WHERE {spec.where}" if spec.where else ""
    return f"SELECT {', '.join(selected)} FROM {_from_text(spec, [s.alias for s in spec.sources])}{where}"


def _from_text(spec: ViewSpec, tables: Sequence[str]) -> str:
    parts = [f"{quote(t)} AS {quote(s.alias)}" for s, t in zip(spec.sources, tables, strict=True)]
    return parts[0] + "".join(f" JOIN {p} ON {s.on}" for p, s in zip(parts[1:], spec.sources[1:], strict=True))


def definition_text(spec: ViewSpec, tables: Sequence[str], bare: Collection[str] = ()) -> str:
    """The definition as the view understands it, over tables of these names; ``bare`` columns have no AS."""
    selected = [
        c.argument if c.name in bare else f"{c.argument if c.function == 'group' else _call(c)} AS {quote(c.name)}"
        for c in spec.columns
    ]
    where = f" WHERE {spec.where}" if spec.where else ""
    groups = ", ".join(c.argument for c in spec.groups)
    return f"SELECT {', '.join(selected)} FROM {_from_text(spec, tables)}{where} GROUP BY {groups}"


def _call(c: ViewColumn) -> str:
    return f"{c.function}({c.argument})"


def aggregated(spec: ViewSpec, rows: DataFrame) -> DataFrame:
    """The stored columns of the groups of ``rows``; rows with a negative ``__sign`` are taken away."""
    from pyspark.sql import functions as F

    signed = _SIGN in rows.columns
    made: list[Any] = []
    for v in spec.values:
        value = row_value(v)
        if v.kind == DISTINCT:
            stored = F.expr(collected_text(v.row))
        elif v.kind == "count":
            stored = _count(value, signed)
        elif v.kind == "sum":
            # An average of integers sums doubles as Spark does; minus the smallest integer needs a wider one.
            summed = value.cast(v.type) if v.type in ("double", "bigint") else value
            stored = F.sum(_signed(summed) if signed else summed)
        else:
            stored = getattr(F, v.kind)(value)
        made.append(stored.alias(v.name))
    groups = [F.col(quote(c.name)) for c in spec.groups]
    if not made:
        return rows.select(*groups).distinct()
    return rows.groupBy(*groups).agg(*made)


def row_value(v: StoredValue) -> Any:
    """What one row below the aggregates gives to a stored value."""
    from pyspark.sql import functions as F

    return F.col(v.row) if v.row else F.lit(1)


def _signed(value: Any) -> Any:
    from pyspark.sql import functions as F

    return F.when(F.col(_SIGN) > 0, value).otherwise(-value)


def _count(value: Any, signed: bool) -> Any:
    from pyspark.sql import functions as F

    return F.sum(F.when(value.isNotNull(), F.col(_SIGN)).otherwise(F.lit(0))) if signed else F.count(value)


@dataclass(frozen=True)
class Step:
    """The sources of a view before and after a step, and what lies between."""

    session: SparkSession
    store: Store
    state: State
    spec: ViewSpec
    built: int
    until: int
    only: Column | None = None  # of the rows that came, those to take

    def frame(self, *, at_once: bool = False) -> DataFrame:
        """The view's delta of this step, unsorted; ``at_once`` makes it in one task, where nothing is shuffled."""
        if self.spec.how == "merge":
            rows = _union(self._changed(plus=True))
            return aggregated(self.spec, rows.coalesce(1) if at_once else rows)
        minus, plus = self._changed(plus=False), self._changed(plus=True)
        if self.spec.how == "retract":
            return self._retracted(plus, minus)
        return self._recomputed(_union([*plus, *minus]))

    def _retracted(self, plus: Sequence[DataFrame], minus: Sequence[DataFrame]) -> DataFrame:
        from pyspark.sql import functions as F

        parts = [p.withColumn(_SIGN, F.lit(1).cast("bigint")) for p in plus]
        parts += [m.withColumn(_SIGN, F.lit(-1).cast("bigint")) for m in minus]
        changed = aggregated(self.spec, _union(parts))
        zero = [F.coalesce(F.col(quote(n)), F.lit(0)) != 0 for n in changed.columns if n not in self._groups]
        moved = zero[0]
        for z in zero[1:]:
            moved = moved | z
        return changed.where(moved)

    def _recomputed(self, changed: DataFrame) -> DataFrame:
        """The aggregates, as of now, of the groups in ``changed``; without a row a group is stored as gone."""
        from pyspark.sql import functions as F

        touched = changed.select(*[F.col(quote(g)) for g in self._groups]).distinct()
        renamed = touched.select(*[F.col(quote(g)).alias(f"__g{i}") for i, g in enumerate(self._groups)])
        on = [F.col(quote(g)).eqNullSafe(F.col(f"__g{i}")) for i, g in enumerate(self._groups)]
        now = self._rows([self._content(t, self.until) for t in self._tables])
        fresh = aggregated(self.spec, now.join(renamed, on, "left_semi"))
        joined = renamed.join(fresh, on, "left")
        values = [c for c in fresh.columns if c not in (*self._groups, ROWS)]
        return joined.select(
            *[F.col(f"__g{i}").alias(g) for i, g in enumerate(self._groups)],
            *[F.col(quote(v)) for v in values],
            F.coalesce(F.col(ROWS), F.lit(0).cast("bigint")).alias(ROWS),
        )

    def rows_in_order(self) -> DataFrame:
        """The rows below the aggregates of the one changed source, in the order of its file."""
        return _union(self._changed(plus=True)).coalesce(1)

    @property
    def _groups(self) -> list[str]:
        return [c.name for c in self.spec.groups]

    @property
    def _tables(self) -> list[TableState]:
        by_id = {t.table_id: t for t in self.state.tables.values()}
        return [by_id[s.table_id] for s in self.spec.sources]

    def _changed(self, *, plus: bool) -> list[DataFrame]:
        """The joined rows that are new (``plus``) or gone, one frame for each source that changed."""
        found = []
        for i, t in enumerate(self._tables):
            deltas = [d for d in t.deltas if self.built < d.t_lo and d.t_hi <= self.until]
            if not deltas or (not plus and not t.schema.keyed):
                continue
            if self.spec.how == "merge" or not t.schema.keyed:
                changed = table_rows(self.session, self.store, plan_scan(t, deltas, merge=False))
                changed = changed if self.only is None else changed.where(self.only)
            else:
                changed = self._content(t, self.until if plus else self.built, deltas)
            before = [self._content(s, self.until) for s in self._tables[:i]]
            behind = [self._content(s, self.built) for s in self._tables[i + 1 :]]
            found.append(self._rows([*before, changed, *behind]))
        return found

    def _keys(self, t: TableState, deltas: Sequence[Delta]) -> DataFrame:
        from pyspark.sql import functions as F

        stored = stored_rows(self.session, self.store, plan_scan(t, deltas))
        return stored.select(*[F.col(quote(k)).alias(f"__k{i}") for i, k in enumerate(t.schema.key)]).distinct()

    def _content(self, t: TableState, at: int, changed: Sequence[Delta] = ()) -> DataFrame:
        """The rows of a table at a timestamp as a query sees them; only those whose keys ``changed`` has, if given."""
        from pyspark.sql import functions as F

        deltas = [d for d in t.deltas if d.t_hi <= at]
        near = files_near(self.store, t, deltas, changed) if changed else None

        def near_keys(stored: DataFrame) -> DataFrame:
            same = [F.col(quote(k)).eqNullSafe(F.col(f"__k{i}")) for i, k in enumerate(t.schema.key)]
            return stored.join(F.broadcast(self._keys(t, changed)), same, "left_semi") if changed else stored

        return table_rows(self.session, self.store, plan_scan(t, deltas, files=near), near_keys)

    def _rows(self, frames: Sequence[DataFrame]) -> DataFrame:
        for source, frame in zip(self.spec.sources, frames, strict=True):
            frame.createOrReplaceTempView(quote(source.alias))
        return self.session.sql(rows_text(self.spec))


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda a, b: a.unionByName(b), frames)
