"""A query as sorted, disjoint ranges of keys, matched against many index entries at once (PP-13, PP-22, PP-23)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from parquetry.splits.entries import Entries, Ints, Keys, Mask, keys_of

_FEW_RANGES = 16


class KeyRanges:
    """Ranges ``[lo, hi)``; only the last may be unbounded (None). No ranges match nothing, ``everything()`` all."""

    def __init__(self, ranges: Sequence[tuple[bytes, bytes | None]]) -> None:
        self.los = keys_of([lo for lo, _ in ranges])
        self.unbounded = bool(ranges) and ranges[-1][1] is None
        self.his = keys_of([hi for _, hi in ranges if hi is not None])

    @classmethod
    def everything(cls) -> KeyRanges:
        return cls([(b"", None)])

    def __len__(self) -> int:
        return len(self.los)

    @property
    def ranges(self) -> list[tuple[bytes, bytes | None]]:
        return list(zip(self.los, [*self.his, *([None] if self.unbounded else [])], strict=True))

    def match(self, entries: Entries) -> Entries:
        """The entries that overlap the query, with ``partial`` set where they hold other keys too."""
        if not len(self) or not len(entries):
            return entries.take(np.zeros(len(entries), bool))
        if len(self) == 1 and self.unbounded and self.los[0] == b"":
            return entries
        passed = self._passed(entries)  # ranges that end at or before the entry's start
        begun = np.searchsorted(self.los, entries.ends, "left")  # ranges that begin before the entry's end
        overlapping = passed < begun
        kept, at = entries.take(overlapping), passed[overlapping]
        return replace(kept, partial=~self._inside(kept, at))

    def match_nodes(self, entries: Entries, node: Ints) -> Entries:
        """The same for entries that come node by node, each in key order: few ranges are looked up in a node at once.

        ``node`` tells the node of each entry; those of one stand together.
        """
        heads = np.flatnonzero(np.diff(node, prepend=-1))
        tails = np.append(heads[1:], len(node)) - 1
        first = np.searchsorted(self.his, entries.starts[heads], "right")
        stop = np.searchsorted(self.los, entries.ends[tails], "left")
        if int((stop - first).max(initial=0)) > _FEW_RANGES:
            return self.match(entries)
        kept, partial = np.zeros(len(entries), bool), np.zeros(len(entries), bool)
        for head, tail, i, j in zip(heads.tolist(), tails.tolist(), first.tolist(), stop.tolist(), strict=True):
            starts, ends = entries.starts[head : tail + 1], entries.ends[head : tail + 1]
            for r in range(i, j):
                lo, hi = self.los[r], self.his[r] if r < len(self.his) else None
                a = int(np.searchsorted(ends, lo, "right"))
                b = len(starts) if hi is None else int(np.searchsorted(starts, hi, "left"))
                if a >= b:
                    continue
                kept[head + a : head + b] = True
                # Sorted entries can stick out of a range only at its two ends, but more than one where they overlap.
                c = int(np.searchsorted(starts, lo, "left"))
                d = b if hi is None else int(np.searchsorted(ends, hi, "right"))
                partial[head + a : head + min(b, c)] = True
                partial[head + max(a, d) : head + b] = True
        return replace(entries, partial=partial).take(kept)

    def overlaps(self, starts: Keys, ends: Keys) -> Mask:
        """Which of the ranges ``[start, end)`` hold a key of the query."""
        found: Mask = np.searchsorted(self.his, starts, "right") < np.searchsorted(self.los, ends, "left")
        return found

    def _passed(self, entries: Entries) -> Ints:
        return np.searchsorted(self.his, entries.starts, "right")

    def _inside(self, entries: Entries, at: Ints) -> Mask:
        begins: Mask = (self.los[at] <= entries.starts).astype(bool)
        open_end = at == len(self.his)
        ends = np.ones(len(entries), bool)
        closed = ~open_end
        ends[closed] = (self.his[at[closed]] >= entries.ends[closed]).astype(bool)
        return begins & ends
