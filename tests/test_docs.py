"""The documentation's links lead somewhere and its examples run.

A fenced block whose info string is `python run` or `bash run` is executed. The blocks of a page run in order in one
empty folder; neighbouring blocks of one language are one program. All of them use the suite's Spark session.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from parquetry.layouts import registry
from tests.one_process import run_python, run_shell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])
FENCE = re.compile(r"^(?P<ticks>`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=ticks)\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)")


def runnable(text: str) -> list[tuple[str, str]]:
    """The page's examples as (language, program), neighbours of one language joined."""
    blocks = [(block["info"].split(), block["body"]) for block in FENCE.finditer(text)]
    marked = [(info[0], body) for info, body in blocks if len(info) == 2 and info[1] == "run"]
    return [
        (language, "\n".join(body for _, body in group))
        for language, group in itertools.groupby(marked, key=lambda block: block[0])
    ]


def anchors(page: Path) -> set[str]:
    """The names under which a page's headings can be linked to."""
    headings = re.findall(r"^#+\s+(.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.finditer(FENCE.sub("", page.read_text())):
        target, _, anchor = link["target"].partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        there = (page.parent / target).resolve() if target else page
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            broken.append(link["target"])
    assert not broken


def test_the_parts_of_the_code_are_all_named_and_there() -> None:
    package = ROOT / "src" / "parquetry"
    section = (ROOT / "docs" / "impl.md").read_text().partition("## The code")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([\w/]+(?:\.py|/))`", section)) - {"src/parquetry/"}
    parts = {p.name if p.is_file() else f"{p.name}/" for p in package.iterdir() if not p.name.startswith(("_", "."))}
    assert not {part for part in parts if part.endswith((".py", "/"))} - named
    assert not [path for path in named if not (package / path).exists() and not (ROOT / path).exists()]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", FENCE.sub("", page.read_text())))
    assert not [path for path in named if not (ROOT / path).exists() and not (ROOT / "src/parquetry" / path).exists()]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_prose_is_wrapped(page: Path) -> None:
    prose = [t for t in FENCE.sub("", page.read_text()).splitlines() if not t.startswith(("|", "![", "#"))]
    assert not [line for line in prose if len(line) > 100]


def test_the_folders_that_the_benchmarks_page_names_are_there() -> None:
    named = re.findall(r"^\| `([\w/]+/)` \|", (ROOT / "benchmarks" / "README.md").read_text(), re.MULTILINE)
    assert named
    assert not [folder for folder in named if not (ROOT / folder).is_dir()]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_examples_in_python_close_the_connections_that_they_open(page: Path) -> None:
    blocks = [b["body"] for b in FENCE.finditer(page.read_text()) if b["info"].split()[:1] == ["python"]]
    opened = sum(len(re.findall(r"^\s*\w+ = parquetry\.connect\(", body, re.MULTILINE)) for body in blocks)
    assert opened <= sum(body.count(".close()") for body in blocks)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page.read_text())], ids=name)
def test_examples_run(page: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "LEARNERS", dict(registry.LEARNERS))  # an example adds one
    for language, program in runnable(page.read_text()):
        {"python": run_python, "bash": run_shell}[language](program, tmp_path)
