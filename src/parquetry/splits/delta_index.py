"""The indexes of a snapshot's deltas as a SplitIndex: sizes in bytes of what pruning has kept.

Row groups that a proof has ruled out count nothing at any level, so a query over a learned layout is cut by what it
will really read. Entries of row groups and above come from the table of row groups, which pruning has in memory;
leaves are read as needed, all of a round at once and the deltas side by side (PP-25, PP-45).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from parquetry.model.delta import Delta
from parquetry.model.keys import successor
from parquetry.splits.entries import Entries, Floats, Ints, Keys, Mask, concat, heads_of, keys_of, make_entries, ranges
from parquetry.splits.ranges import KeyRanges
from parquetry.storage.index import KEY_BYTES, Node
from parquetry.storage.index_reader import IndexReader, open_index
from parquetry.storage.snapshot_index import SnapshotIndex
from parquetry.storage.store import Store

_MOST_EDGES = 1000
_POOL = ThreadPoolExecutor(8, thread_name_prefix="parquetry index")  # threads start when first needed


@dataclass(frozen=True, eq=False)
class _Delta:
    reader: IndexReader
    starts: Keys
    ends: Keys
    kept: Floats  # bytes before each row group, ruled-out ones left out

    def covered(self, level: int, at: Ints) -> tuple[Ints, Ints]:
        """The row groups ``[first, stop)`` of entries of a level from 1 up."""
        width = self.reader.fan_out ** (level - 1)
        return at * width, np.minimum((at + 1) * width, len(self.starts))


class DeltaIndex:
    """``keep`` tells of every row group of the snapshot whether the query reads it."""

    def __init__(self, snapshot: SnapshotIndex, deltas: Sequence[Delta], store: Store, keep: Mask) -> None:
        keys = _prepared_keys(snapshot)
        sizes = np.where(keep, snapshot.bytes, 0).astype(np.float64)
        self._unique = snapshot.schema.keyed
        self.rounds_read = 0  # rounds in which the file of an index was read
        self.nodes_read = 0  # nodes read from there; all others were in memory
        self._deltas = []
        for i, d in enumerate(deltas):
            a, b = int(snapshot.offsets[i]), int(snapshot.offsets[i + 1])
            before = np.concatenate(([0.0], np.cumsum(sizes[a:b])))
            self._deltas.append(_Delta(open_index(store, d.index), *keys[i], before))

    def roots(self) -> Entries:
        found = []
        for i, d in enumerate(self._deltas):
            kept = np.flatnonzero(np.diff(d.kept))
            if len(kept):
                # As tight as the kept row groups: keys before and after them cost nothing.
                first, last = int(kept[0]), int(kept[-1])
                starts, ends = d.starts[first : first + 1], d.ends[last : last + 1]
                found.append(make_entries(i, d.reader.levels, 0, d.kept[-1:], starts, ends))
        return concat(found)

    def children(self, parents: Entries, grain: Floats) -> tuple[Entries, Ints]:
        parts: list[Entries] = []
        owners: list[Ints] = []
        leaves: dict[int, Ints] = {}
        for delta, level in np.unique(np.stack((parents.delta, parents.level - 1), 1), axis=0).tolist():
            own = np.flatnonzero((parents.delta == delta) & (parents.level == level + 1))
            own = own[np.argsort(parents.first[own])]
            if level == 0:
                leaves[delta] = own
                continue
            found, owner = self._inner(self._deltas[delta], delta, level, parents.take(own), own, grain)
            parts.append(found)
            owners.append(owner)
        for found, owner in self._leaves(parents, leaves):
            parts.append(found)
            owners.append(owner)
        return concat(parts), np.concatenate(owners)

    def _inner(
        self, d: _Delta, delta: int, level: int, parents: Entries, own: Ints, grain: Floats
    ) -> tuple[Entries, Ints]:
        width = d.reader.fan_out ** (level - 1)
        entries = -(-len(d.starts) // width)
        first = parents.first * d.reader.fan_out
        stop = np.minimum((parents.first + parents.count) * d.reader.fan_out, entries)
        at, owner = ranges(first, stop), np.repeat(own, stop - first)
        a, b = d.covered(level, at)
        size = d.kept[b] - d.kept[a]
        some = size > 0
        at, owner, size, a, b = at[some], owner[some], size[some], a[some], b[some]
        heads = heads_of(size, grain[owner], np.diff(at, prepend=-9) == 1)
        count = np.diff(np.append(heads, len(at)))
        sizes = np.add.reduceat(size, heads) if len(heads) else size
        found = make_entries(delta, level, at[heads], sizes, d.starts[a[heads]], d.ends[b[heads + count - 1] - 1])
        return replace(found, count=count), owner[heads]

    def _leaves(self, parents: Entries, wanted: dict[int, Ints]) -> list[tuple[Entries, Ints]]:
        def read(delta: int) -> tuple[int, tuple[Entries, Ints]]:
            own, d = wanted[delta], self._deltas[delta]
            ordinals = ranges(parents.first[own], parents.first[own] + parents.count[own])
            owner = np.repeat(own, parents.count[own])
            some = d.kept[ordinals + 1] > d.kept[ordinals]
            ordinals, owner = ordinals[some], owner[some]
            fetched = d.reader.fetch_leaves(ordinals.tolist())
            nodes = d.reader.leaves(ordinals.tolist())
            counts = [len(n) for n in nodes]
            starts = keys_of([k for n in nodes for k in n.starts])
            ends = keys_of([k for n in nodes for k in self._ends(n)])
            sizes = np.concatenate([n.bytes for n in nodes]) if nodes else np.zeros(0)
            return fetched, (make_entries(delta, 0, 0, sizes, starts, ends), np.repeat(owner, counts))

        found = [read(delta) for delta in wanted] if len(wanted) <= 1 else list(_POOL.map(read, wanted))
        self._count(sum(fetched for fetched, _ in found))
        return [entries for _, entries in found]

    def _count(self, fetched: int) -> None:
        self.nodes_read += fetched
        self.rounds_read += fetched > 0

    def rows_touched(self, query: KeyRanges) -> dict[int, list[tuple[int, int]]]:
        """Of kept row groups that lie only partly in the query: the rows ``[first, stop)`` of data blocks that meet it.

        By ordinal in the snapshot. Where there are very many, reading them whole is cheaper than finding out.
        """
        found: dict[int, list[tuple[int, int]]] = {}
        offset = fetched = 0
        for i, d in enumerate(self._deltas):
            kept = np.flatnonzero(np.diff(d.kept))
            matched = query.match(make_entries(i, 1, kept, np.ones(len(kept)), d.starts[kept], d.ends[kept]))
            edges = matched.first[matched.partial].tolist()
            if len(edges) <= _MOST_EDGES:
                fetched += d.reader.fetch_leaves(edges)
                for ordinal, leaf in zip(edges, d.reader.leaves(edges), strict=True):
                    touched = query.overlaps(keys_of(leaf.starts), keys_of(self._ends(leaf)))
                    stop = np.cumsum(leaf.rows)
                    rows = np.stack((stop - leaf.rows, stop), 1)[touched].tolist()
                    found[offset + ordinal] = [(int(a), int(b)) for a, b in rows]
            offset += len(d.starts)
        self._count(fetched)
        return found

    def _ends(self, leaf: Node) -> list[bytes]:
        """Ends above every key of a data block: equal keys may go on in the next one, and long keys are cut."""
        inside = leaf.starts[1:]
        if not self._unique:
            inside = [k + b"\x00" for k in inside]
        if any(len(k) > KEY_BYTES for k in inside):
            inside = [k if len(k) <= KEY_BYTES else successor(k[:KEY_BYTES]) or k for k in inside]
        return [*inside, leaf.ends[-1]]


def _prepared_keys(snapshot: SnapshotIndex) -> list[tuple[Keys, Keys]]:
    """Starts and ends of the row groups of each delta as arrays, made at the first query of a snapshot."""
    if "split keys" not in snapshot.prepared:
        snapshot.prepared["split keys"] = [(keys_of(t.starts), keys_of(t.ends)) for t in snapshot.tables]
    found: list[tuple[Keys, Keys]] = snapshot.prepared["split keys"]
    return found
