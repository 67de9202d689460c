"""Which rows stay in memory: a bounded number of bytes, of what is asked for most."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from parquetry.query.local.prepared import Held
from parquetry.storage.scan.scan import Piece

_MOST_PIECE_BYTES = 32 << 20  # of memory
_MOST_BYTES = 256 << 20  # of memory, for all copies
_REFERENCE = 16  # bytes of a value of any length, short ones included
_LEAST_ASKED = 2  # so often a piece is read before it is copied
_MOST_COUNTED = 4096

Files = tuple[str, ...]
"""The paths of the files of several deltas."""


@dataclass(frozen=True, eq=False)
class Copy:
    held: Held
    table_id: int
    weight: int


class Copies:
    """Copies of pieces of files, and what was merged of them; the least recently used leave first.

    Whoever calls it keeps other threads out. What leaves is returned: to free it takes time.
    """

    def __init__(self) -> None:
        self.pieces: OrderedDict[Piece, Copy] = OrderedDict()
        self.merged: dict[Files, Copy] = {}
        self._asked: Counter[Piece] = Counter()

    def note(self, pieces: Collection[Piece]) -> list[Piece]:
        """Counts that these were asked for; those of them that are worth a copy by now."""
        if len(self._asked) > _MOST_COUNTED:
            self._asked.clear()
        self._asked.update(list(pieces))
        worth = []
        for piece in pieces:
            if piece in self.pieces:
                self.pieces.move_to_end(piece)
            # Asked for the second, fourth, eighth... time: one for which there was no room may have it later.
            elif self._asked[piece] >= _LEAST_ASKED and self._asked[piece].bit_count() == 1:
                worth.append(piece)
        return worth

    def expect(self, new: Iterable[Piece], held: Iterable[Piece]) -> None:
        """New pieces of a table count as if they had been asked for as often as those that it has in memory."""
        most = max(self._asked[piece] for piece in held)
        self._asked.update({piece: max(0, most - self._asked[piece]) for piece in new})

    def find(self, pieces: Iterable[Piece], several: Iterable[Files]) -> dict[str, list[Held]]:
        """What holds these pieces, by path; nothing unless all are there. Of files that are merged in one copy, that
        one."""
        merged = {path: self.merged[files].held for files in several if files in self.merged for path in files}
        found: dict[str, list[Held]] = {}
        for piece in pieces:
            path, _ = piece
            if piece not in self.pieces:
                return {}
            if path in merged:
                found[path] = [merged[path]]
            else:
                found.setdefault(path, []).append(self.pieces[piece].held)
        return found

    def by_table(self) -> dict[int, list[Piece]]:
        """The pieces in memory of each table."""
        found: dict[int, list[Piece]] = {copy.table_id: [] for copy in self.merged.values()}
        for piece, copy in self.pieces.items():
            found.setdefault(copy.table_id, []).append(piece)
        return found

    def free(self) -> int:
        return _MOST_BYTES - sum(c.weight for c in (*self.pieces.values(), *self.merged.values()))

    def make_room(self, piece: Piece, weight: int) -> list[Copy] | None:
        """Takes out copies that are asked for less; None if that makes no room, or the piece needs none."""
        if weight > _MOST_PIECE_BYTES or piece in self.pieces:
            return None
        free, leaving = self.free(), []
        for old, copy in self.pieces.items():
            if free >= weight:
                break
            if self._asked[old] < self._asked[piece]:
                leaving.append(old)
                free += copy.weight
        return self.take_out(leaving) if free >= weight else None

    def take_out(self, pieces: Collection[Piece]) -> list[Copy]:
        """Takes out copies, and what was merged of them."""
        paths = {path for path, _ in pieces}
        merged = [m for m in self.merged if not paths.isdisjoint(m)]
        return [self.pieces.pop(piece) for piece in pieces] + [self.merged.pop(m) for m in merged]

    def clear(self) -> None:
        self.pieces.clear()
        self.merged.clear()


def weight_of(schema: pa.Schema, groups: Sequence[Any]) -> int:
    """The bytes that row groups take in DuckDB's memory, roughly: values of a fixed width, or references to encoded
    ones, of which several may be the same."""
    widths = {field.name: _width(field.type) for field in schema}
    fixed = sum(g.num_rows for g in groups) * sum(w or _REFERENCE for w in widths.values())
    chunks = [g.column(i) for g in groups for i in range(g.num_columns)]
    variable = [c for c in chunks if widths[c.path_in_schema.partition(".")[0]] is None]
    return int(fixed + 4 * sum(c.total_uncompressed_size for c in variable))


def _width(kind: pa.DataType) -> int | None:
    """The bytes of a value, if all have the same."""
    if pa.types.is_decimal(kind):
        return 16 if kind.precision > 18 else 8
    return max(1, int(kind.bit_width) // 8) if pa.types.is_primitive(kind) else None
