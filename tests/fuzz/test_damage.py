"""Damaged files and catalogs: the right answer or a refusal in one line, never a wrong answer, a crash or a hang."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.cases import Budget, Fuzz
from tests.fuzz.child import QUERIES, Child
from tests.fuzz.damage import CHECKED, STATE, damage_file, damage_row, files_of

_OF_TIME = {"index": 0.07, "data": 0.07, "description": 0.01, "catalog": 0.05}


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    with Child(tmp_path_factory.mktemp("child") / "stderr") as started:
        yield started


@pytest.fixture(scope="module")
def right(child: Child, filled: Path) -> dict[str, Any]:
    """What the undamaged warehouse answers."""
    found = child.ask(filled)
    assert all("is" in found[sql] for sql in QUERIES), found
    assert found["verify"]["is"] == "[]"
    return found


@pytest.mark.parametrize("kind", ["index", "data", "description", "catalog"])
def test_files(kind: str, budget: Budget, child: Child, right: dict[str, Any], filled: Path, tmp_path: Path) -> None:
    fuzz = Fuzz(f"files and {kind}", budget, few=20, of_time=_OF_TIME[kind])
    for i, rng in fuzz.cases():
        folder = Path(shutil.copytree(filled, tmp_path / str(i)))
        told = damage_file(rng, rng.choice(files_of(folder, kind)))
        found = child.ask(folder)
        # SQLite has no checksums: a changed value of a row is another state.
        _judge(fuzz, i, told, found, right, other_state=kind == "catalog")
        if kind in ("index", "data") and found.get("verify", {}).get("is") == "[]":
            fuzz.problem(i, f"verify does not see a damaged {kind} file", told)
        shutil.rmtree(folder)
    fuzz.finish()


@pytest.mark.parametrize("part", ["checked", "state"])
def test_rows(part: str, budget: Budget, child: Child, right: dict[str, Any], filled: Path, tmp_path: Path) -> None:
    fuzz = Fuzz(f"rows and {part}", budget, few=25, of_time=0.05)
    for i, rng in fuzz.cases():
        folder = Path(shutil.copytree(filled, tmp_path / str(i)))
        told = damage_row(rng, folder / "catalog.db", CHECKED if part == "checked" else STATE)
        _judge(fuzz, i, told, child.ask(folder), right, other_state=part == "state")
        shutil.rmtree(folder)
    fuzz.finish()


def _judge(
    fuzz: Fuzz, case: int, told: str, found: dict[str, Any], right: dict[str, Any], *, other_state: bool
) -> None:
    if "died" in found:
        fuzz.problem(case, f"the reader {found['died']}", f"{told}\n{found['details']}")
        return
    refused = False
    for name, one in found.items():
        if "raw" in one:
            fuzz.problem(case, one["raw"], f"{told}; {name}\n{one['details']}")
        elif "refused" in one:
            refused = True
        elif name in QUERIES and one["is"] != right[name]["is"]:
            if other_state:
                fuzz.count("answers of another state")
            else:
                fuzz.problem(case, f"wrong answer: {name}", f"{told}\n  {one['is'][:300]}\n  {right[name]['is'][:300]}")
    fuzz.count("refused" if refused else "answered")
