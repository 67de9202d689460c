"""Figures 8 to 11 of paper 000."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def curves(path: Path, rows: Sequence[Mapping[str, Any]], x: str, label: str, *, log: bool = False) -> None:
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
    for name in (k for k in rows[0] if k != x):
        axes.plot([r[x] for r in rows], [r[name] for r in rows], marker="o", label=name)
    axes.set(xlabel=x, ylabel=label, **({"xscale": "log", "yscale": "log"} if log else {}))
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def bars(path: Path, rows: Sequence[Mapping[str, Any]], series: Sequence[str], label: str) -> None:
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    for i, name in enumerate(series):
        axes.bar(np.arange(len(rows)) + 0.4 * i, [r[name] for r in rows], 0.4, label=name)
    axes.set_xticks(np.arange(len(rows)) + 0.2, [r["method"] for r in rows], fontsize=7)
    axes.set(ylabel=label, yscale="log")
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=130)
    plt.close(figure)
