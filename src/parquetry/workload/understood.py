"""Whether a query's tree holds only what the binder reads as Spark does.

The law: a text that is not understood whole is never pruned. So this is a list of what is known, not of what is
special; our parser knows more SQL than Spark, and Spark knows more than our parser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import starmap

from sqlglot import exp

from parquetry.workload.lexemes import NAME, QUOTED_NAME, Lexeme
from parquetry.workload.sql_text import read_otherwise

_MODIFIERS = {"with_", "order", "limit", "offset"}
_SELECT = {"expressions", "from_", "joins", "laterals", "where", "group", "having", "distinct", "windows", "hint"}
_QUERIES: Mapping[type[exp.Expr], set[str]] = {
    exp.Select: _MODIFIERS | _SELECT | {"qualify", "sort", "cluster", "distribute"},
    exp.Union: _MODIFIERS | {"this", "expression", "distinct", "by_name"},
    exp.Except: _MODIFIERS | {"this", "expression", "distinct"},
    exp.Intersect: _MODIFIERS | {"this", "expression", "distinct"},
    exp.Subquery: {"this", "alias", "order", "limit", "offset"},
    exp.With: {"expressions", "recursive"},
    exp.CTE: {"this", "alias"},
    exp.From: {"this"},
    exp.Join: {"this", "on", "using", "side", "kind", "method"},
    exp.Table: {"this", "alias", "db", "catalog", "joins"},
    exp.TableAlias: {"this", "columns"},
    exp.Lateral: {"this", "view", "outer", "alias"},
    exp.Values: {"expressions", "alias"},
    exp.Distinct: {"expressions"},
}
"""What a query is made of, and the arguments of each part that the binder reads."""
_AROUND = (type(None), exp.Subquery, exp.CTE, exp.In, exp.Exists, exp.SetOperation)
"""What a query stands in by itself."""
_CLAUSES = (
    *(exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Limit, exp.Offset, exp.Qualify, exp.Hint),
    *(exp.Sort, exp.Cluster, exp.Distribute, exp.Window, exp.WindowSpec, exp.Rollup, exp.Cube, exp.GroupingSets),
)
_VALUES = (
    *(exp.Identifier, exp.Column, exp.Star, exp.Literal, exp.Boolean, exp.Null, exp.HexString, exp.RawString),
    *(exp.Alias, exp.Aliases, exp.Paren, exp.Tuple, exp.Var, exp.Lambda, exp.Bracket, exp.Dot, exp.Slice),
    *(exp.DataType, exp.DataTypeParam, exp.ColumnDef, exp.Interval, exp.IntervalSpan, exp.In, exp.Between, exp.Filter),
    *(exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls, exp.PropertyEQ, exp.Kwarg, exp.JoinHint, exp.Unary),
    *(exp.Binary, exp.Func),
)
_COMPARED = (
    *(exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.GT, exp.GTE, exp.LT, exp.LTE),
    *(exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.RegexpLike),
)
_ORDER = ("select", "from", "where", "group", "having", "order", "limit", "offset")
_NO_COMMA = (",", "(", *_ORDER, "all", "distinct", "by")
"""What no comma stands behind: our parser passes over some that Spark does not."""
_SETS = ("union", "except", "minus", "intersect")
_BITS = (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseLeftShift, exp.BitwiseRightShift, exp.DPipe)


def not_understood(words: Sequence[Lexeme]) -> str:
    """Why the words alone say that our parser would not do; empty when it may."""
    for w in words:
        if w.text == "|>":
            return "the text uses pipe syntax"
        if w.kind == NAME and w.text.lower() == "table":
            return "the text names a relation by TABLE"
    return ""


def escapes(sql: str) -> str:
    """Why the constants of a text are not trusted; empty when they are."""
    return "the text has backslash escapes" if "\\" in sql else ""


def in_sparks_order(words: Sequence[Lexeme]) -> bool:
    """Whether the clauses of every SELECT come in the one order that Spark takes, without a comma too many.

    >>> from parquetry.workload.lexemes import lexemes
    >>> [in_sparks_order(lexemes(f"SELECT k FROM t {x}")) for x in ("ORDER BY k LIMIT 1", "LIMIT 1 ORDER BY k")]
    [True, False]
    """
    before = ""
    reached = [-1]  # the latest clause inside each parenthesis that is open
    if any(starmap(_of_other_dialects, zip(*(_lowered(words)[i:] for i in range(4)), strict=False))):
        return False
    for w in words:
        word = w.text.lower() if w.kind != QUOTED_NAME else ""
        if before == "as" and _names_nothing(w, word):
            return False
        clause = word in _ORDER and not (word == "from" and before == "distinct")
        if before == "," and (clause or word == ")") or word == "," and before in _NO_COMMA:
            return False
        if word == "(":
            reached.append(-1)
        elif word == ")":
            reached.pop()
        elif word in _SETS:
            if reached[-1] >= _ORDER.index("order"):
                return False
            reached[-1] = -1
        elif clause:
            if _ORDER.index(word) <= reached[-1]:
                return False
            reached[-1] = _ORDER.index(word)
        before = word
        if not reached:
            return False
    return before not in (",", "as")


def _names_nothing(w: Lexeme, word: str) -> bool:
    """What our parser takes, or passes over, behind AS, while to Spark it is no name, or AS is the name itself."""
    return w.kind not in (NAME, QUOTED_NAME) and word != "(" or word in (*_ORDER, *_SETS)


def _lowered(words: Sequence[Lexeme]) -> list[str]:
    return ["", "", *(w.text.lower() if w.kind != QUOTED_NAME else "" for w in words), ""]


def _of_other_dialects(first: str, before: str, word: str, behind: str) -> bool:
    """Whether a word stands where other dialects take it: ``a NOT NULL``, ``a ISNULL``, ``a ?? b`` and so on."""
    if word == "null":
        return before == "not" and first != "is"
    if word in ("isnull", "notnull"):
        return behind != "("
    return word in ("?", "asymmetric") or word == "unknown" and before in ("is", "not")


def not_bound(query: exp.Expr, sql: str, words: Sequence[Lexeme]) -> str:
    """Why the binder must not trust the tree of the text; empty when it knows every part of it."""
    if read_otherwise(sql, words):
        return "our parser cuts the text into other words"
    for node in query.walk():
        reason = _unknown_part(node) or _read_in_another_order(node)
        if reason:
            return reason
    return ""


def _unknown_part(node: exp.Expr) -> str:
    known = _QUERIES.get(type(node))
    if known is None:
        if isinstance(node, exp.Query) or not isinstance(node, (*_CLAUSES, *_VALUES)):
            return f"the text has {_shown(node)}"
        return "the text has COUNT without an argument" if isinstance(node, exp.Count) and node.this is None else ""
    if isinstance(node, exp.Select | exp.SetOperation) and not isinstance(node.parent, _AROUND):
        return f"the text has a query inside {_shown(node.parent)} without parentheses"
    unread = sorted(k for k, v in node.args.items() if v and k not in known)
    if unread:
        return f"the text has {unread[0].strip('_').upper()}"
    if isinstance(node, exp.Select) and not node.expressions:
        return "the text selects nothing"
    if isinstance(node, exp.Table):
        grouped = isinstance(node.parent, exp.Subquery) and not node.parent.alias
        if node.args.get("joins") and not grouped:
            return "the text joins inside a join"
    if isinstance(node, exp.Join) and node.method and node.method.upper() != "NATURAL":
        return f"the text has a join by {node.method.upper()}"
    return ""


def _read_in_another_order(node: exp.Expr) -> str:
    """Comparisons of comparisons, and mixed operators on bits: Spark binds them in an order of its own."""
    if isinstance(node, _COMPARED):
        inner: tuple[type[exp.Expr], ...] = (*_COMPARED, exp.Not, exp.And, exp.Or)
    elif isinstance(node, _BITS):
        inner = (exp.Binary, exp.Not)
    elif isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod | exp.IntDiv | exp.Neg):
        inner = (*_COMPARED, *_BITS, exp.Not, exp.And, exp.Or)
    else:
        return ""
    # Beside these our parser puts parentheses that the text does not have.
    added = isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ)
    for written in node.iter_expressions():
        child = written.unnest() if added else written
        if isinstance(child, inner) and not (isinstance(node, _BITS) and type(child) is type(node)):
            return f"the text has {_shown(child)} inside {_shown(node)} without parentheses"
    return ""


def _shown(node: exp.Expr) -> str:
    return type(node).__name__.upper()
