"""Plots of the paper benchmarks: costs as lines and bars, layouts as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parquetry.layouts.pruning.regions import regions
from parquetry.model.box import Box, Interval

if TYPE_CHECKING:
    from benchmarks.papers._measure import Layout, Workload


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def lines(path: Path, rows: Sequence[Mapping[str, Any]], x: str, series: Sequence[str]) -> None:
    """One line per method over the swept parameter, on a logarithmic scale of cost."""
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
    for name in series:
        if name in rows[0] and name != "LBexact":
            style = {"linestyle": "--", "color": "black"} if name == "LBblk" else {"marker": "o"}
            axes.plot([str(r[x]) for r in rows], [r[name] for r in rows], label=name, **style)
    axes.set(xlabel=x, ylabel="rows read, % of the table", yscale="log")
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def bars(path: Path, groups: Mapping[str, Mapping[str, float]], series: Sequence[str]) -> None:
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    names = [s for s in series if s != "LBexact" and any(s in g for g in groups.values())]
    for i, name in enumerate(names):
        heights = [g.get(name, np.nan) for g in groups.values()]
        axes.bar(np.arange(len(groups)) + i / (len(names) + 1), heights, 1 / (len(names) + 1), label=name)
    axes.set_xticks(np.arange(len(groups)) + 0.4, list(groups))
    axes.set(ylabel="rows read, % of the table", yscale="log")
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def layouts(path: Path, made: Mapping[str, Layout], workload: Workload) -> None:
    """Blocks (green) and future queries (red) over two columns, as in the paper's Figure 14."""
    plt = _pyplot()
    figure, panes = plt.subplots(1, len(made), figsize=(4.5 * len(made), 4.3), layout="constrained", sharey=True)
    x, y = workload.columns[:2]
    (x_lo, x_hi), (y_lo, y_hi) = workload.data.domain[:2].tolist()
    for axes, (name, layout) in zip(np.atleast_1d(panes), made.items(), strict=True):
        for region in regions(layout.spec):
            for box in (region.box, *region.holes):
                _outline(axes, box, x, y, (x_lo, x_hi, y_lo, y_hi), edgecolor="green", linewidth=0.6)
        for query in workload.future:
            (a, b), (c, d) = query[:2].tolist()
            axes.add_patch(plt.Rectangle((a, c), b - a, d - c, fill=False, edgecolor="red", linewidth=0.9))
        axes.set(title=f"{name}: {layout.spec.blocks} blocks", xlim=(x_lo, x_hi), ylim=(y_lo, y_hi), xlabel=x)
    np.atleast_1d(panes)[0].set_ylabel(y)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _outline(axes: Any, box: Box, x: str, y: str, frame: tuple[float, float, float, float], **style: Any) -> None:
    plt = _pyplot()
    across, up = box.intervals.get(x, Interval()), box.intervals.get(y, Interval())
    a, b = frame[0] if across.lo is None else across.lo, frame[1] if across.hi is None else across.hi
    c, d = frame[2] if up.lo is None else up.lo, frame[3] if up.hi is None else up.hi
    axes.add_patch(plt.Rectangle((a, c), b - a, d - c, fill=False, **style))
