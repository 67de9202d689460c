"""The whitelist: Spark SQL expressions whose value, type and name DuckDB reproduces exactly. All else is refused."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from sqlglot import exp

from parquetry.errors import UnknownColumn
from parquetry.model.schema import TableSchema
from parquetry.model.types import is_nested
from parquetry.query.compile.spark_names import constant_name, listed, named
from parquetry.query.compile.typed import (
    Refused,
    Typed,
    computed,
    convert,
    duck_type,
    left_to_spark,
    literal,
    merged_type,
    quote,
    retyped,
    string_becomes,
    wide_factor,
    widens,
)
from parquetry.query.sql.scopes import BARE_FUNCTIONS
from parquetry.workload.bounds import beyond_bigint
from parquetry.workload.coercion import (
    INTEGRAL,
    arithmetic_type,
    as_decimal,
    common_type,
    decimal,
    decimal_of,
    is_exact,
    is_numeric,
)
from parquetry.workload.constants import fold, type_name_of
from parquetry.workload.plain_select import not_a_column
from parquetry.workload.predicates import COMPARISONS

_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_PARTS: dict[type[exp.Expr], str] = {
    exp.Year: "year",
    exp.Month: "month",
    exp.Day: "day",
    exp.DayOfMonth: "dayofmonth",
}
_READ_ARGS = {"this", "expression", "expressions", "table", "low", "high", "negate", "ifs", "default", "true", "false"}
_READ_ARGS |= {"to", "safe", "typed", "quoted", "is_string", "unit", "big_int", "_type"}


@dataclass(frozen=True)
class RowSource:
    """What expressions may name: one table's columns, by its name or alias.

    ``prefix`` goes before every column's name in the text. ``aliases`` are names that Spark may read as an expression
    of the SELECT list where no column has that name. ``sql`` is the whole text, which tells what the parser forgets.
    """

    schema: TableSchema
    name: str
    prefix: str
    sql: str
    aliases: tuple[str, ...] = ()


class Expressions:
    """Compiles expressions over the rows of one source."""

    def __init__(self, source: RowSource) -> None:
        self.source = source
        self.text = source.sql.lower()  # tells what the parser forgets
        self.coalesce_named = "nvl" not in self.text and "ifnull" not in self.text
        self.columns = {c.name.lower(): c for c in source.schema.columns}
        self.other_names = BARE_FUNCTIONS | {a.lower() for a in source.aliases}

    def boolean(self, e: exp.Expr) -> Typed:
        t = self.compile(e)
        if t.type not in ("boolean", "void"):
            raise Refused(f"a condition of type {t.type}")
        return t

    def compile(self, e: exp.Expr | None) -> Typed:
        """The typed text of ``e``; raises Refused with the reason when it is not on the whitelist."""
        if e is None:
            raise Refused("an argument is missing")
        if any(v for k, v in e.args.items() if k not in _READ_ARGS):
            raise left_to_spark(e)
        match e:
            case exp.Paren():
                return self.compile(e.this)
            case exp.Column():
                return self.column(e)
            case exp.Literal() | exp.Boolean() | exp.Null() | exp.HexString():
                return self._constant(e)
            case exp.Neg():
                return self._constant(e) if isinstance(e.this, exp.Literal) else self._minus(e)
            case exp.And() | exp.Or():
                return self._connect(e)
            case exp.Not():
                return self._not(e)
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                return self.comparison(COMPARISONS[type(e)], self.compile(e.this), self.compile(e.expression))
            case exp.NullSafeEQ() | exp.NullSafeNEQ():
                return self._null_safe(e)
            case exp.Between():
                return self._between(e)
            case exp.In() if e.expressions:
                return self._in(e)
            case exp.Is():
                return self._is(e)
            case exp.Like():
                return self._like(e)
            case exp.Add() | exp.Sub() | exp.Mul():
                folded = fold(e)
                if folded is not None and folded.type in ("date", "timestamp", "timestamp_ntz"):
                    return Typed(folded.type, literal(folded), None, constant=folded)
                return self._arithmetic(_ARITHMETIC[type(e)], self.compile(e.this), self.compile(e.expression))
            case exp.Div():
                return self._divide(self.compile(e.this), self.compile(e.expression))
            case exp.Case():
                return self._case(e)
            case exp.If():
                return self._if(e)
            case exp.Coalesce():
                return self._coalesce(e)
            case exp.Cast():
                return self._cast(e)
            case exp.TsOrDsAdd() | exp.AddMonths() | exp.TsOrDsToDate():
                return self._folded(e)
            case exp.Year() | exp.Month() | exp.Day() | exp.DayOfMonth():
                return self._date_part(e)
        raise left_to_spark(e)

    # -- leaves -----------------------------------------------------------------------------------

    def column(self, e: exp.Column) -> Typed:
        foreign = e.table and e.table.lower() != self.source.name.lower()
        if len(e.parts) > 2 or foreign or isinstance(e.this, exp.Star):
            raise Refused(not_a_column(e))
        found = self.columns.get(e.name.lower())
        if found is None and not e.table and e.name.lower() in self.other_names:
            raise Refused(f"{e.name} stands for another expression")
        if found is None:
            raise UnknownColumn(e.name, self.source.name, self.source.schema.names)
        if is_nested(found.arrow):
            raise Refused(f"column {found.name} has the nested type {found.type}")
        return Typed(found.type, self.source.prefix + quote(found.name), e.name, frozenset([found.name]))

    def _constant(self, e: exp.Expr) -> Typed:
        c = fold(e)
        if c is None:
            raise Refused(f"the constant {_shown(e)}")
        return Typed(c.type, literal(c), constant_name(c), constant=c, written=True)

    def _folded(self, e: exp.Expr) -> Typed:
        c = fold(e)
        if c is None:
            raise left_to_spark(e)
        return Typed(c.type, literal(c), None, constant=c)

    # -- conditions -------------------------------------------------------------------------------

    def _connect(self, e: exp.Expr) -> Typed:
        word = "AND" if isinstance(e, exp.And) else "OR"
        parts = [self.boolean(x) for x in e.flatten(unnest=False)]
        # Spark balances chains of three and more, so their names are not simply nested.
        name = named(f"({{}} {word} {{}})", parts) if len(parts) == 2 else None
        return computed("boolean", "(" + f" {word} ".join(p.sql for p in parts) + ")", name, parts)

    def _not(self, e: exp.Not) -> Typed:
        t = self.boolean(e.this)
        if isinstance(e.this, exp.Is) and isinstance(e.this.expression, exp.Null) and t.name:
            return computed("boolean", f"(NOT {t.sql})", t.name.replace(" IS NULL)", " IS NOT NULL)"), [t])
        return computed("boolean", f"(NOT {t.sql})", named("(NOT {})", [t]), [t])

    def comparison(self, op: str, a: Typed, b: Typed) -> Typed:
        left, right = self._comparable(a, b)
        for x, c in ((a, b), (b, a)):
            value = c.constant.value if c.constant is not None else None
            if x.type in INTEGRAL and isinstance(value, Decimal) and beyond_bigint(value):
                raise Refused("an integer compared with a decimal beyond bigint")
        # Spark rewrites comparisons of an integer with a decimal literal before it names them.
        plain = (a.type in INTEGRAL) == (b.type in INTEGRAL) or not (is_exact(a.type) and is_exact(b.type))
        name = named("({} = {})" if op == "<>" else f"({{}} {op} {{}})", [a, b]) if plain else None
        if op == "<>" and name:
            name = f"(NOT {name})"
        return computed("boolean", f"({left} {op} {right})", name, [a, b])

    def _comparable(self, a: Typed, b: Typed) -> tuple[str, str]:
        """Both sides' text in the type Spark compares them in."""
        for text, other in ((a, b), (b, a)):
            if text.type == "string" and other.type not in ("string", "void") and text.constant is not None:
                target = string_becomes(other.type)
                sides = retyped(text, target).sql, convert(other, target)
                return sides if text is a else (sides[1], sides[0])
        common = common_type(a.beside(b), b.beside(a))
        if common is None:
            raise Refused(f"a comparison of {a.type} with {b.type}")
        return convert(a, common), convert(b, common)

    def _null_safe(self, e: exp.Expr) -> Typed:
        a, b = self.compile(e.this), self.compile(e.expression)
        left, right = self._comparable(a, b)
        if isinstance(e, exp.NullSafeNEQ):
            return computed("boolean", f"({left} IS DISTINCT FROM {right})", None, [a, b])
        return computed("boolean", f"({left} IS NOT DISTINCT FROM {right})", named("({} <=> {})", [a, b]), [a, b])

    def _between(self, e: exp.Between) -> Typed:
        x, low, high = (self.compile(p) for p in (e.this, e.args["low"], e.args["high"]))
        above, below = self.comparison(">=", x, low), self.comparison("<=", x, high)
        name = named("between({}, {}, {})", [x, low, high])
        return computed("boolean", f"({above.sql} AND {below.sql})", name, [x, low, high])

    def _in(self, e: exp.In) -> Typed:
        x, items = self.compile(e.this), [self.compile(i) for i in e.expressions]
        target: str | None = x.type
        texts = [i.type == "string" for i in items]
        if x.type != "string" and all(texts):
            target = string_becomes(x.type)
            items = [retyped(i, target) for i in items]
        for i in items:
            target = common_type(target, i.type) if target else None
        if target is None or (any(texts) and not all(texts)):
            raise Refused("an IN list of mixed types")
        inside = ", ".join(_whole_number(i) or convert(i, target) for i in items)
        name = named("({} IN ({}))", [x], listed(items))
        return computed("boolean", f"({convert(x, target)} IN ({inside}))", name, [x, *items])

    def _is(self, e: exp.Is) -> Typed:
        t = self.compile(e.this)
        if isinstance(e.expression, exp.Null):
            return computed("boolean", f"({t.sql} IS NULL)", named("({} IS NULL)", [t]), [t])
        if isinstance(e.expression, exp.Boolean) and t.type == "boolean":
            word = "TRUE" if e.expression.this else "FALSE"
            return computed("boolean", f"({t.sql} IS NOT DISTINCT FROM {word})", None, [t])
        raise left_to_spark(e)

    def _like(self, e: exp.Like) -> Typed:
        t, pattern = self.compile(e.this), self.compile(e.expression)
        if t.type != "string" or pattern.constant is None or pattern.type != "string":
            raise Refused("LIKE on anything but a string with a constant pattern")
        made = computed("boolean", f"({t.sql} LIKE {pattern.sql})", named("{} LIKE {}", [t, pattern]), [t])
        if e.args.get("negate"):
            return computed("boolean", f"(NOT {made.sql})", named("(NOT {})", [made]), [t])
        return made

    # -- arithmetic -------------------------------------------------------------------------------

    def _minus(self, e: exp.Neg) -> Typed:
        t = self.compile(e.this)
        if not is_numeric(t.type):
            raise Refused(f"minus a {t.type}")
        return computed(t.type, f"CAST((- {t.sql}) AS {duck_type(t.type)})", named("(- {})", [t]), [t])

    def _arithmetic(self, op: str, a: Typed, b: Typed) -> Typed:
        left, right = a.beside(b), b.beside(a)
        type_ = arithmetic_type(op, left, right)
        if type_ is None:
            raise Refused(f"{a.type} {op} {b.type}")
        name = named(f"({{}} {op} {{}})", [a, b])
        if decimal_of(type_) and op == "*":
            sides = [convert(a, wide_factor(left, type_)), convert(b, decimal(*(as_decimal(right) or (0, 0))))]
        else:
            sides = [convert(a, type_), convert(b, type_)]
        return computed(type_, f"CAST(({sides[0]} {op} {sides[1]}) AS {duck_type(type_)})", name, [a, b])

    def _divide(self, a: Typed, b: Typed) -> Typed:
        """Only by a constant other than zero, and never decimals: Spark rounds those by rules of its own."""
        if not (is_numeric(a.type) and is_numeric(b.type)) or b.constant is None or not b.constant.value:
            raise Refused("a division by anything but a constant other than zero")
        inexact = not is_exact(a.type) or not is_exact(b.type)
        if not inexact and (decimal_of(a.type) or decimal_of(b.type)):
            raise Refused("a division of decimals")
        text = f"({convert(a, 'double')} / {convert(b, 'double')})"
        return computed("double", text, named("({} / {})", [a, b]), [a, b])

    # -- choices ----------------------------------------------------------------------------------

    def _case(self, e: exp.Case) -> Typed:
        conditions, values = [], []
        for branch in e.args["ifs"]:
            test = self.compile(branch.this)
            if e.this is not None:
                test = self.comparison("=", self.compile(e.this), test)
            if test.type not in ("boolean", "void"):
                raise Refused("a CASE condition that is no boolean")
            conditions.append(test)
            values.append(self.compile(branch.args["true"]))
        default = self.compile(e.args["default"]) if e.args.get("default") is not None else None
        chosen = [*values, default] if default else values
        type_ = merged_type(chosen)
        text = " ".join(f"WHEN {c.sql} THEN {convert(v, type_)}" for c, v in zip(conditions, values, strict=True))
        name: str | None = None
        if all(x.name is not None for x in (*conditions, *chosen)):
            whens = " ".join(f"WHEN {c.name} THEN {v.name}" for c, v in zip(conditions, values, strict=True))
            name = f"CASE {whens} ELSE {default.name} END" if default else f"CASE {whens} END"
        otherwise = f" ELSE {convert(default, type_)}" if default else ""
        return computed(type_, f"CASE {text}{otherwise} END", name, [*conditions, *chosen])

    def _if(self, e: exp.If) -> Typed:
        test, yes = self.boolean(e.this), self.compile(e.args["true"])
        if e.args.get("false") is None:
            raise Refused("IF without its third part")
        no = self.compile(e.args["false"])
        type_ = merged_type([yes, no])
        text = f"CASE WHEN {test.sql} THEN {convert(yes, type_)} ELSE {convert(no, type_)} END"
        return computed(type_, text, named("(IF({}, {}, {}))", [test, yes, no]), [test, yes, no])

    def _coalesce(self, e: exp.Coalesce) -> Typed:
        parts = [self.compile(x) for x in (e.this, *e.expressions)]
        type_ = merged_type(parts)
        name = named("coalesce({})", [], listed(parts)) if self.coalesce_named else None
        return computed(type_, f"coalesce({', '.join(convert(p, type_) for p in parts)})", name, parts)

    # -- casts and dates --------------------------------------------------------------------------

    def _cast(self, e: exp.Cast) -> Typed:
        target = type_name_of(e.args["to"])
        if target is None:
            raise left_to_spark(e)
        c = fold(e)
        if c is not None:
            return Typed(c.type, literal(c), None, constant=c)
        t = self.compile(e.this)
        if t.constant is not None or not widens(t.type, target):
            raise Refused(f"a cast from {t.type} to {target} may fail or round")
        word = "TRY_CAST" if e.args.get("safe") else "CAST"
        return computed(target, convert(t, target), named(f"{word}({{}} AS {target.upper()})", [t]), [t])

    def _date_part(self, e: exp.Expr) -> Typed:
        inner = e.this.this if isinstance(e.this, exp.TsOrDsToDate) and not e.this.args.get("format") else e.this
        t = self.compile(inner)
        if t.type != "date":
            raise Refused(f"{_PARTS[type(e)]} of a {t.type}")
        function = _PARTS[type(e)]
        name = named(f"{function}({{}})", [t])
        return computed("int", f"CAST({function}({t.sql}) AS INTEGER)", name, [t])


def _shown(e: exp.Expr) -> str:
    return e.sql("spark")[:60]


def _whole_number(t: Typed) -> str:
    """A constant integer as a bare number: a list of casts takes DuckDB longer to bind than to look up."""
    c = t.constant
    return str(c.value) if c is not None and c.type in INTEGRAL and c.value is not None else ""
