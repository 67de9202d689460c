"""Progressive partitioning: even splits of a query from the upper parts of the index, refined where needed (PP-40).

Two modes. ``literal`` is Algorithm 2 as printed. The default adds what its own tests call for:

- *edge rule* (3.1-10): a large entry that lies only partly in the query is read too, cut or not, since its full size
  would distort the total and with it every target;
- an entry as large as a whole split is read at once, as some target falls into it whatever the total turns out to be,
  and entries of all levels that are too large are read in the same round: fewer rounds (3.1-19);
- neighbouring entries far smaller than a split are taken together, so that memory and time grow with the number
  of splits, not with the entries of a node;
- it stops when the evenest possible result would save less than reading on costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from parquetry.errors import QueryError
from parquetry.splits.candidates import Candidates, accumulate, cut_pairs, running_sizes
from parquetry.splits.entries import Entries, Floats, Ints, Mask, SplitIndex, concat, heads_of
from parquetry.splits.ranges import KeyRanges
from parquetry.splits.selection import Judged, Wish, choose_points, judge, targets
from parquetry.splits.shorten_key import Shorten, shorten_bytes

MODES = ("default", "literal")

# Found by `./run bench papers/splits`; each trades index reads for evenness, and none is critical by a factor of two.
_EDGE = 0.25  # an entry partly outside the query may be this part of its delta's share of a split
_SMALL, _SMALL_EVEN = 0.1, 0.2  # an entry below these parts of a margin is not worth a read
_WIDE = 0.5  # an entry whose keys span this part of a split
_LIKELY_CUT = 0.4  # an entry of this part of a split will be cut sooner or later: it is read at once
_EXPECTED = 0.3  # how far the largest split usually exceeds the ideal, as a part of the points' margins
_FRONT = (16_384, 16)  # entries kept at least, and per split


@dataclass(frozen=True)
class Precision:
    """How even is good enough: ``theta`` allows a margin of this share of a split (PP-17), 0 reads all that helps.

    ``round_size`` and ``node_size`` are what a round of reads and one node cost, as the size that a worker scans in
    the same time; the default mode weighs the gain of reading on against them.
    """

    theta: float = 1.0
    mode: str = "default"
    round_size: float = 0.0
    node_size: float = 0.0

    def __post_init__(self) -> None:
        if not self.theta >= 0:
            raise QueryError(f"theta must be at least 0, not {self.theta}")
        if self.mode not in MODES:
            raise QueryError(f"unknown mode '{self.mode}'; choose one of {', '.join(MODES)}")


GOOD_ENOUGH = Precision()


@dataclass(frozen=True, eq=False)
class Split:
    """The keys ``[lo, hi)``, None being unbounded. ``size`` is estimated; the truth lies in ``[least, most]``."""

    lo: bytes | None
    hi: bytes | None
    size: float
    least: float
    most: float


@dataclass(frozen=True, eq=False)
class Splits:
    """The splits in key order, and what it took to find them. An empty query has none."""

    splits: tuple[Split, ...]
    wanted: int  # P as derived from the last total
    total: float
    rounds: int
    nodes: int
    entries: int
    qualified: bool  # theta was met

    def __len__(self) -> int:
        return len(self.splits)

    @property
    def skew(self) -> float:
        """The largest estimated split against the average one (PP-52)."""
        sizes = [s.size for s in self.splits]
        return max(sizes) * len(sizes) / sum(sizes) if sizes and sum(sizes) else 1.0


def cut_into_splits(
    index: SplitIndex,
    query: KeyRanges,
    wish: Wish,
    precision: Precision = GOOD_ENOUGH,
    shorten: Shorten = shorten_bytes,
) -> Splits:
    """Splits that cover the query's keys exactly once and in order, nearly even by the sizes in the index."""
    entries = query.match(index.roots())
    rounds = nodes = 0
    pick = _pick_literally if precision.mode == "literal" else _pick
    while True:
        if not len(entries):
            return Splits((), 1, 0.0, rounds, nodes, 0, True)
        c = accumulate(entries)
        splits = wish.derive(c.total)
        wanted, default = targets(c.total, splits), precision.mode == "default"
        points = choose_points(c, wanted, narrow_ties=default)
        judged = judge(c, points, precision.theta, wanted if default else None)
        drilled = pick(entries, c, judged, splits, precision)
        reading = entries.take(drilled)
        if not len(reading):
            done = create_splits(entries, c, points, shorten)
            return Splits(done, splits, c.total, rounds, nodes, len(entries), not judged.unqualified.any())
        assert (reading.level > 0).all()  # so the loop ends: every round goes down somewhere (3.1-7)
        rounds += 1
        nodes += int(reading.count.sum())
        bounded = default and precision.theta > 0
        grain = _grain(entries, splits)[reading.delta] if bounded else np.zeros(len(reading))
        entries = concat([entries.take(~drilled), drill_down(index, reading, query, grain)])
        if bounded:
            entries = _bound_front(entries, splits)


def without_empty(splits: Sequence[Split]) -> list[Split]:
    """Those that can have a key: where borders stand between values of some columns only, two may be the same."""
    found: list[Split] = []
    waiting = 0.0  # the size of parts without any value, which goes to the next
    for split in splits:
        if split.lo is not None and split.lo == split.hi:
            waiting += split.size
        else:
            found.append(replace(split, size=split.size + waiting))
            waiting = 0.0
    return found


def drill_down(index: SplitIndex, reading: Entries, query: KeyRanges, grain: Floats) -> Entries:
    """The children of entries that match the query; below an entry inside the query all do (PP-24, PP-25)."""
    found, parent = index.children(reading, np.where(reading.partial, 0.0, grain))
    at_edge = reading.partial[parent]
    if not at_edge.any():
        return found
    return concat([found.take(~at_edge), query.match_nodes(found.take(at_edge), parent[at_edge])])


def _pick_literally(e: Entries, c: Candidates, judged: Judged, splits: int, precision: Precision) -> Mask:
    """Of what each unqualified point cuts, the entries of the highest level (PP-35, PP-39)."""
    chosen = np.zeros(len(e), bool)
    points = np.unique(judged.points[judged.unqualified])
    if not len(points):
        return chosen
    point, entry = cut_pairs(c, points)
    highest = np.zeros(c.count, np.int64)
    np.maximum.at(highest, point, e.level[entry])
    level = e.level[entry]
    chosen[entry[(level > 0) & (level == highest[point])]] = True
    return chosen


def _pick(e: Entries, c: Candidates, judged: Judged, splits: int, precision: Precision) -> Mask:
    """Large entries at the query's edges, and wherever the place of an unqualified target may turn out to be."""
    chosen = np.zeros(len(e), bool)
    if splits == 1:
        return chosen
    ideal = c.total / splits
    share = _shares(e)
    inner = e.level > 0
    chosen |= inner & e.partial & (e.sizes > _EDGE * share * ideal)
    if judged.unqualified.any():
        # Target t truly lies where low <= t <= high; read all of that, or the next round would only chase it.
        wanted = targets(c.total, splits)[judged.unqualified]
        first = np.minimum(np.searchsorted(c.high, wanted, "left"), c.count - 1)
        last = np.clip(np.searchsorted(c.low, wanted, "right") - 1, first, c.count - 1)
        middle = np.clip(np.searchsorted(c.low + c.high, 2 * wanted, "left"), 0, c.count - 1)
        weight = np.bincount(e.delta, e.sizes) / c.total
        even = 1 / np.count_nonzero(weight)
        large = inner & (e.sizes > precision.theta * ideal * np.maximum(_SMALL * share, _SMALL_EVEN * even))
        # Where a delta has many entries per split, those in the middle must do.
        wide = e.sizes >= _WIDE * ideal * weight[e.delta]
        likely = e.sizes >= _LIKELY_CUT * ideal
        chosen |= large & (likely | _touched(c, np.maximum(middle - 1, 0), middle) | (wide & _touched(c, first, last)))
    chosen &= e.sizes > precision.node_size * e.count  # a node saves at most the size of its entry
    cost = precision.round_size + precision.node_size * float(e.count[chosen].sum())
    if cost > 0 and _largest(c, judged, ideal) - (1 + _EXPECTED * precision.theta) * ideal < cost:
        chosen[:] = False
    return chosen


def _largest(c: Candidates, judged: Judged, ideal: float) -> float:
    """How large the largest split will probably be if reading stops here."""
    middle = (c.low[judged.points] + c.high[judged.points]) / 2
    likely = float(np.diff(middle, prepend=0.0, append=c.total).max())
    return max(likely, ideal + _EXPECTED * float(judged.margins.mean()))


def _touched(c: Candidates, first: Ints, last: Ints) -> Mask:
    """Which entries some of the candidates ``first … last`` cut."""
    change = np.zeros(len(c.keys) + 1, np.int64)
    np.add.at(change, first, 1)
    np.add.at(change, last + 1, -1)
    inside = np.concatenate(([0], np.cumsum(np.cumsum(change)[:-1] > 0)))
    found: Mask = inside[c.end_at] > inside[c.start_at]
    return found


def _shares(e: Entries) -> Floats:
    """The part of a split's margin that each entry's delta may use: most to large deltas, where it saves most reads.

    With parts as the square roots of the deltas' sizes the number of entries needed for a given margin is least.
    """
    roots = np.sqrt(np.bincount(e.delta, e.sizes))
    found: Floats = (roots / max(roots.sum(), 1e-300))[e.delta]
    return found


def _grain(e: Entries, splits: int) -> Floats:
    """Per delta the size below which neighbours may be taken together, so that the front keeps to its bound.

    Then memory grows with the number of splits, whatever the nodes' fan-out. A margin grows by at most
    ``2 D / entries per split`` of a split; with deltas of exponential sizes D counts as about six.
    Only what is surely in the query counts, so a later and smaller total makes no stretch too large.
    """
    roots = np.sqrt(np.bincount(e.delta, np.where(e.partial, 0.0, e.sizes)))
    found: Floats = roots * roots.sum() / _most_entries(splits)
    return found


def _most_entries(splits: int) -> int:
    return max(_FRONT[0], _FRONT[1] * splits)


def _bound_front(e: Entries, splits: int) -> Entries:
    """The same among entries that were read in different rounds, once there are too many."""
    if len(e) <= _most_entries(splits):
        return e
    s = e.take(np.lexsort((e.first, e.level, e.delta)))
    follows = np.zeros(len(s), bool)
    follows[1:] = (
        (s.delta[1:] == s.delta[:-1])
        & (s.level[1:] == s.level[:-1])
        & (s.first[1:] == s.first[:-1] + s.count[:-1])
        & ~(s.partial[1:] | s.partial[:-1])
    )
    heads = heads_of(s.sizes, _grain(s, splits)[s.delta], follows)
    sizes, counts = np.add.reduceat(s.sizes, heads), np.add.reduceat(s.count, heads)
    return replace(s.take(heads), sizes=sizes, count=counts, ends=np.maximum.reduceat(s.ends, heads))


def create_splits(e: Entries, c: Candidates, points: Ints, shorten: Shorten) -> tuple[Split, ...]:
    """Split keys with estimated sizes and true bounds of them (PP-41)."""
    at = np.unique(points)
    judged = judge(c, at, 0.0)
    cuts = [shorten(c.keys[i], c.keys[i + 1]) for i in at]
    low, high = (np.concatenate(([0.0], s[at], [c.total])) for s in (c.low, c.high))
    sure = running_sizes(c.start_at, c.end_at, np.where(e.partial, 0.0, e.sizes), len(c.keys))  # PP-23
    sure_low, sure_high = (np.concatenate(([0.0], s[at], [s[-1]])) for s in sure)
    most = high[1:] - low[:-1]
    least = np.maximum(0.0, sure_low[1:] - sure_high[:-1])
    bounds = zip([None, *cuts], [*cuts, None], judged.sizes.tolist(), least.tolist(), most.tolist(), strict=True)
    return tuple(Split(*b) for b in bounds)
