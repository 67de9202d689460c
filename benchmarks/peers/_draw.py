"""Plots of the comparison: time and bytes of every arm of a workload."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

_PANES = ("p50 ms", "MB read", "batch s", "MB stored")


def bars(path: Path, title: str, rows: Sequence[dict[str, Any]]) -> None:
    """One pane per measure, one bar per arm, on a logarithmic scale; Parquetry's own bars stand out."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    panes = [c for c in _PANES if any(r[c] for r in rows)]
    figure, all_axes = plt.subplots(
        1, len(panes), figsize=(3.2 * len(panes) + 2, 0.32 * len(rows) + 1.4), layout="constrained", sharey=True,
        squeeze=False,
    )  # fmt: skip
    names = [r[""] for r in rows]
    colours = ["tab:green" if n.startswith("Parquetry") else "tab:gray" for n in names]
    for axes, column in zip(all_axes[0], panes, strict=True):
        values = [r[column] or 0 for r in rows]
        axes.barh(names, values, color=colours)
        axes.bar_label(axes.containers[0], [f"{v:.3g}" if v else "" for v in values], fontsize=7, padding=2)
        axes.set(xscale="log", xlabel=column)
        axes.margins(x=0.2)
    all_axes[0][0].invert_yaxis()
    figure.suptitle(title)
    figure.savefig(path, dpi=130)
    plt.close(figure)
