"""Plots of the layout benchmark: the grid as a picture, and how each layout does over the workloads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def grid(path: Path, cells: Sequence[dict[str, Any]], labels: Sequence[str]) -> None:
    """Bytes over the least possible for every layout and cell; a frame around what the advisor chose."""
    plt = _pyplot()
    ratios = np.array(
        [[c["costs"].get(name, {}).get("bytes", np.nan) / c["bound_bytes"] for c in cells] for name in labels]
    )
    figure, axes = plt.subplots(figsize=(1.0 * len(cells) + 3, 0.45 * len(labels) + 2), layout="constrained")
    shown = axes.imshow(np.log10(ratios), cmap="YlOrRd", aspect="auto")
    for i, name in enumerate(labels):
        for j, cell in enumerate(cells):
            if np.isfinite(ratios[i, j]):
                axes.text(j, i, f"{ratios[i, j]:.3g}", ha="center", va="center", fontsize=7)
            if cell["chosen"] == name:
                axes.add_patch(plt.Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor="blue", linewidth=2))
    axes.set_xticks(range(len(cells)), [f"{c['data']}\n{c['workload']}" for c in cells], rotation=45, ha="right")
    axes.set_yticks(range(len(labels)), labels)
    axes.set_title("bytes read / least possible; blue: the advisor's choice")
    figure.colorbar(shown, label="log10")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def build_times(path: Path, cells: Sequence[dict[str, Any]], labels: Sequence[str]) -> None:
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    times = [[c["costs"][name]["build_s"] for c in cells if name in c["costs"]] for name in labels]
    axes.boxplot(times, tick_labels=labels)
    axes.tick_params(axis="x", rotation=60)
    axes.set(ylabel="seconds to learn", yscale="log")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def predictions(path: Path, pairs: Sequence[tuple[float, int]]) -> None:
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(4, 4), layout="constrained")
    predicted, real = zip(*[(p, r) for p, r in pairs if p and r], strict=True)
    axes.loglog(real, predicted, ".", markersize=3)
    ends = [min(real), max(real)]
    axes.loglog(ends, ends, color="black", linewidth=0.7)
    axes.set(xlabel="bytes read", ylabel="bytes predicted before the rewrite")
    figure.savefig(path, dpi=130)
    plt.close(figure)
