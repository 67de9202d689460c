"""What a query may call: Spark's pure functions, and nothing that runs code, reads a file or changes the session.

Decided on the words of the text, before any parser: what is not on a list is refused, however it is written. Trusted
callers (``connect(trusted=True)``) may write anything that Spark runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from parquetry.errors import QueryError
from parquetry.workload.functions import PURE, REACHING, SPECIAL
from parquetry.workload.lexemes import NAME, QUOTED_NAME, Lexeme

_GRAMMAR = frozenset(
    re.findall(
        r"\w+",
        """
        select distinct all from where and or not on using by having when then else case in like ilike rlike regexp
        between is as over group sets cube rollup values join lateral outer limit offset union intersect except
        minus any some exists with pivot unpivot for nulls tablesample repeatable qualify distribute sort cluster
        partition order within filter interval escape div dec numeric character varchar
        """,
    )
)
"""Words that may stand before a parenthesis without being the name of a function."""
_TRUST = "trusted callers may: connect(trusted=True)"


def check_allowed(words: Sequence[Lexeme], relations: Collection[str]) -> None:
    """Raises QueryError at a call of anything but Spark's pure functions, and at scripts.

    ``relations`` are lowered names after which an alias with columns may stand: ``t x(a, b)``.
    """
    words = _without_hints(words)
    for i, word in enumerate(words):
        follows = words[i + 1].text if i + 1 < len(words) else ""
        if word.kind == NAME and word.text.lower() == "using" and follows != "(":
            raise QueryError(f"a query cannot run scripts: USING has no list of columns; {_TRUST}")
        if follows != "(" or word.kind not in (NAME, QUOTED_NAME):
            continue
        name = word.name.lower()
        if i and words[i - 1].text == ".":
            if not _of_spark(words, i):
                raise QueryError(f"a query cannot call {_qualified(words, i)}: it is no function of Spark; {_TRUST}")
        elif word.kind == NAME and name in _GRAMMAR:
            continue
        if name in REACHING:
            raise QueryError(f"a query cannot call {name}: {REACHING[name]}; {_TRUST}")
        if name not in PURE and name not in SPECIAL and not _names_columns(words, i, relations):
            raise QueryError(f"a query cannot call {word.name}: it is no function of Spark's own; {_TRUST}")


def _without_hints(words: Sequence[Lexeme]) -> list[Lexeme]:
    kept, inside = [], False
    for w in words:
        inside = inside or w.text == "/*+"
        if not inside:
            kept.append(w)
        inside = inside and w.text != "*/"
    return kept


def _of_spark(words: Sequence[Lexeme], i: int) -> bool:
    """Whether the name at ``i`` is qualified as one of Spark's own: ``builtin.f`` or ``system.builtin.f``."""
    names = [words[i - 2].name.lower()] if i >= 2 else []
    if i >= 4 and words[i - 3].text == ".":
        names.insert(0, words[i - 4].name.lower())
        if i >= 5 and words[i - 5].text == ".":
            return False
    return names in (["builtin"], ["system", "builtin"])


def _qualified(words: Sequence[Lexeme], i: int) -> str:
    start = i
    while start >= 2 and words[start - 1].text == ".":
        start -= 2
    return "".join(w.text for w in words[start : i + 1])


def _names_columns(words: Sequence[Lexeme], i: int, relations: Collection[str]) -> bool:
    """Whether ``name(…)`` at ``i`` is an alias with names for the columns, which calls nothing."""
    before = words[i - 1] if i else None
    if before is None:
        return False
    if before.text.lower() == "as" or before.text == ")" or before.kind == QUOTED_NAME:
        return True
    if before.kind == NAME and before.text.lower() in relations:
        return True
    return before.text.lower() in ("with", "recursive", ",") and _begins_cte(words, i)


def _begins_cte(words: Sequence[Lexeme], i: int) -> bool:
    """Whether ``name(a, b) AS (SELECT …`` begins at ``i``."""
    end = next((j for j in range(i + 2, len(words)) if words[j].text == ")"), len(words))
    columns = words[i + 2 : end]
    named = all(w.kind in (NAME, QUOTED_NAME) if n % 2 == 0 else w.text == "," for n, w in enumerate(columns))
    rest = [w.text.lower() for w in words[end + 1 : end + 5]]
    return named and rest[:2] == ["as", "("] and len(rest) == 4 and rest[3] not in (",", ")")
