"""Random expressions and conditions of a wanted type over columns in scope."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from tests.fuzz.rows import TABLES, VALUES

KINDS = {
    "int": "int",
    "bigint": "int",
    "double": "float",
    "float": "float",
    "decimal(10,2)": "decimal",
    "string": "string",
    "date": "date",
    "timestamp": "timestamp",
    "boolean": "boolean",
}
_LITERALS = {kind: VALUES[type_] for type_, kind in reversed(KINDS.items())}
ORDERED = ("int", "float", "decimal", "string", "date", "timestamp")


@dataclass(frozen=True)
class Column:
    text: str  # as an expression names it
    name: str
    kind: str


Scope = Sequence[Column]
Env = Mapping[str, tuple[tuple[str, str], ...]]  # CTEs: names and kinds of their columns


class Expressions:
    """Of one random generator. ``tame`` ones say nothing that other settings would read differently."""

    def __init__(
        self, rng: random.Random, *, tame: bool = False, tables: Mapping[str, Mapping[str, str]] = TABLES
    ) -> None:
        self.rng, self.tame, self.tables = rng, tame, tables
        self._names = 0

    # -- small things -----------------------------------------------------------------------------

    def name(self, prefix: str = "c") -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def kind(self, scope: Scope) -> str:
        return self.rng.choice([c.kind for c in scope if c.kind != "other"] or ["int"])

    def _pick(self, *choices: Callable[[], Any]) -> Any:
        return self.rng.choice(choices)()

    def literal(self, kind: str) -> str:
        rng, value = self.rng, self.rng.choice(_LITERALS[kind])
        if self.tame and kind == "string":
            value = value.replace("$", "").replace("\\", "")
        if (kind == "string" and "\\" in value) or value != value:
            value = rng.choice([value, *_LITERALS[kind]])  # less often: they leave less to the local executor
        if kind == "int" and rng.random() < 0.6:
            value = rng.randint(-3, 205)
        match value:
            case bool():
                return str(value).lower()
            case float():
                plain = value == value and abs(value) != float("inf")
                return f"{value!r}D" if plain else f"double('{str(value).replace('inf', 'Infinity')}')"
            case str():
                return self._quoted(value)
            case datetime():
                return f"timestamp '{value:%Y-%m-%d %H:%M:%S.%f}'"
            case date():
                return f"date '{value}'"
        return str(value) if kind != "decimal" or rng.random() < 0.7 else f"{value}BD"

    def _quoted(self, value: str) -> str:
        rng = self.rng
        escaped = value.replace("\\", "\\\\").replace("'", "''" if self.tame or rng.random() < 0.7 else "\\'")
        if "'" not in value and "\\" not in value and not self.tame and rng.random() < 0.05:
            return self._pick(lambda: f'"{value}"', lambda: f"r'{value}'", lambda: f"'{value}' ''")
        return f"'{escaped}'"

    # -- expressions ------------------------------------------------------------------------------

    def expression(self, kind: str, scope: Scope, depth: int) -> str:
        rng = self.rng
        same = [c.text for c in scope if c.kind == kind]
        if depth <= 0 or rng.random() < 0.4:
            return rng.choice(same) if same and rng.random() < 0.8 else self.literal(kind)
        e: Callable[[str], str] = lambda k: self.expression(k, scope, depth - 1)  # noqa: E731
        shapes: list[Callable[[], str]] = [
            lambda: f"coalesce({e(kind)}, {e(kind)})",
            lambda: f"CASE WHEN {self.condition(scope, depth - 1)} THEN {e(kind)} ELSE {e(kind)} END",
            lambda: f"if({self.condition(scope, depth - 1)}, {e(kind)}, {e(kind)})",
            lambda: f"nullif({e(kind)}, {e(kind)})",
            lambda: f"({e(kind)})",
        ]
        match kind:
            case "int":
                shapes += [
                    lambda: f"({e('int')} {rng.choice('+-')} {e('int')})",
                    lambda: f"-{e('int')}" if rng.random() < 0.5 else f"abs({e('int')})",
                    lambda: f"{e('int')} % 7",
                    lambda: f"length({e('string')})",
                    lambda: f"year({e('date')})",
                    lambda: f"month({e('date')})",
                    lambda: f"CAST({e('boolean')} AS INT)",
                    lambda: f"datediff({e('date')}, {e('date')})",
                ]
            case "float":
                shapes += [
                    lambda: f"({e('float')} {rng.choice('+-')} {e('float')})",
                    lambda: f"CAST({e('int')} AS DOUBLE)",
                    lambda: f"-{e('float')}",
                    lambda: f"({e('float')} * 2)",
                ]
            case "decimal":
                shapes += [
                    lambda: f"({e('decimal')} {rng.choice('+-')} {e('decimal')})",
                    lambda: f"CAST({e('int')} AS DECIMAL(12,2))",
                ]
            case "string":
                shapes += [
                    lambda: f"concat({e('string')}, {e('string')})",
                    lambda: f"{e('string')} || {e('string')}",
                    lambda: f"{rng.choice(['upper', 'lower', 'trim', 'reverse'])}({e('string')})",
                    lambda: f"substring({e('string')}, {rng.randint(0, 3)}, {rng.randint(0, 3)})",
                    lambda: f"CAST({e(rng.choice(['int', 'date', 'boolean', 'decimal']))} AS STRING)",
                ]
            case "date":
                shapes += [
                    lambda: f"date_add({e('date')}, {rng.randint(-9, 9)})",
                    lambda: f"CAST({e('timestamp')} AS DATE)",
                    lambda: f"trunc({e('date')}, 'MM')",
                ]
            case "timestamp":
                shapes += [
                    lambda: f"CAST({e('date')} AS TIMESTAMP)",
                    lambda: f"date_trunc('DAY', {e('timestamp')})",
                    lambda: f"({e('timestamp')} + INTERVAL {rng.randint(1, 9)} HOURS)",
                ]
            case "boolean":
                return f"({self.condition(scope, depth)})"
        return str(rng.choice(shapes)())

    def condition(self, scope: Scope, depth: int, env: Env | None = None) -> str:
        rng = self.rng
        roll = rng.random()
        if depth > 0 and roll < 0.35:
            parts = [self.condition(scope, depth - 1, env) for _ in range(rng.choice([2, 2, 3]))]
            joined = f" {rng.choice(['AND', 'AND', 'OR'])} ".join(f"({p})" if " OR " in p else p for p in parts)
            return joined if rng.random() < 0.7 else f"NOT ({joined})"
        if depth > 0 and env is not None and roll < 0.5:
            return self.nested_condition(scope, depth, env)
        kind = self.kind(scope)
        same = [c.text for c in scope if c.kind == kind]
        left = rng.choice(same) if same and rng.random() < 0.8 else self.expression(kind, scope, depth)
        if kind == "boolean" and rng.random() < 0.6:
            return rng.choice([left, f"NOT {left}", f"{left} IS NOT TRUE", f"{left} IS FALSE"])
        right: Callable[[], str] = lambda: (  # noqa: E731
            self.literal(kind) if rng.random() < 0.7 else self.expression(kind, scope, depth - 1)
        )
        shapes: list[Callable[[], str]] = [
            lambda: f"{left} {rng.choice(['=', '=', '<', '<=', '>', '>=', '<>', '!=', '==', '<=>'])} {right()}",
            lambda: f"{right()} {rng.choice(['=', '<', '<=', '>', '>='])} {left}",
            lambda: f"{left} {rng.choice(['', 'NOT '])}IN ({', '.join(right() for _ in range(rng.randint(1, 4)))})",
            lambda: f"{left} IS {rng.choice(['', 'NOT '])}NULL",
            lambda: f"{left} IN ({right()}, NULL)",
        ]
        if kind in ORDERED:
            shapes.append(lambda: f"{left} {rng.choice(['', '', 'NOT '])}BETWEEN {right()} AND {right()}")
        if kind == "string":
            shapes += [
                lambda: f"{left} {rng.choice(['', 'NOT '])}LIKE {self.literal('string')}",
                lambda: f"{left} LIKE '{rng.choice(['a%', '%b%', '_', 'é%', ''])}'",
                lambda: f"startswith({left}, {right()})",
            ]
        if kind == "int":
            low = rng.randint(-3, 200)
            shapes += [lambda: f"{left} BETWEEN {low} AND {low + rng.randint(0, 60)}"] * 2
            shapes += [lambda: f"{left} >= {low} AND {left} < {low + rng.randint(1, 60)}"]
            shapes += [
                lambda: f"{left} {rng.choice(['=', '<', '>='])} {self.literal('float')}",
                lambda: f"{left} {rng.choice(['=', '<', '>='])} '{rng.randint(0, 200)}'",
                lambda: f"{left} {rng.choice(['=', '<', '>='])} {rng.randint(0, 200)}.5",
                lambda: f"{left} {rng.choice(['<', '>'])} {10 ** rng.choice([1, 9, 18, 30])}",
            ]
        if kind in ("date", "timestamp"):
            shapes.append(lambda: f"{left} {rng.choice(['=', '<', '>='])} '{rng.choice(VALUES['date'])}'")
        return str(rng.choice(shapes)())

    def nested_condition(self, scope: Scope, depth: int, env: Env) -> str:
        """A condition with a query inside."""
        raise NotImplementedError

    def aggregate(self, scope: Scope, depth: int) -> tuple[str, str]:
        rng, kind = self.rng, self.kind(scope)
        e = self.expression(kind, scope, depth)
        extremes = [(f"{f}({e})", kind) for f in ("min", "max")] if kind in ORDERED else []
        sums = [(f"sum({e})", kind), (f"avg({e})", "other")] if kind in ("int", "float", "decimal") else []
        counts = [("count(*)", "int"), (f"count({e})", "int"), (f"count(DISTINCT {e})", "int")]
        found = rng.choice(extremes + sums + counts)
        if rng.random() < 0.1:
            return f"{found[0]} FILTER (WHERE {self.condition(scope, 0)})", found[1]
        return found
