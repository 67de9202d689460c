"""Columns that are equal in every row of a join, directly or by way of others."""

from __future__ import annotations

from collections.abc import Iterable


class Equal:
    """Classes of equal names.

    >>> Equal([("a", "b"), ("c", "b")]).same("a", "c")
    True
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._class: dict[str, set[str]] = {}
        for a, b in pairs:
            both = self.of(a) | self.of(b)
            self._class |= dict.fromkeys(both, both)

    def of(self, name: str) -> set[str]:
        """The names that equal ``name``, itself included."""
        return self._class.get(name, {name})

    def same(self, a: str, b: str) -> bool:
        return b in self.of(a)
