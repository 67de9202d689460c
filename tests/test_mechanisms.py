"""docs/mechanisms.md agrees with the code: citations resolve, paths exist, and what is there can be found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "parquetry"
PAGE = ROOT / "docs" / "mechanisms.md"
# How many mechanisms each paper has.
PAPERS = {"PP": 52, "NA": 64, "RB": 44, "WP": 27, "PW": 29}
NUMBER = r"(?:PP|NA|RB|WP|PW)-\d+|\b3\.[1-5]-\d+"
CITED = re.compile(rf"(?P<first>{NUMBER})(?:…(?P<last>{NUMBER}))?")


@dataclass(frozen=True)
class Line:
    number: str
    there: str  # "yes", "partly" or "not yet"; empty for ambiguities, which are readings and not mechanisms
    paths: tuple[str, ...]


def lines_of_page() -> Iterator[Line]:
    for text in PAGE.read_text().splitlines():
        cells = [c.strip() for c in text.strip("|").split("|")]
        if re.fullmatch(NUMBER, cells[0]):
            there = cells[2] if len(cells) == 4 else ""
            yield Line(cells[0], there, tuple(re.findall(r"`([^`]+)`", cells[-1])))


LINES = list(lines_of_page())


def citations(text: str) -> Iterator[str]:
    """Every number that a text cites; ``NA-31…NA-36`` cites six."""
    for found in CITED.finditer(text):
        paper, _, first = found["first"].rpartition("-")
        last = (found["last"] or found["first"]).rpartition("-")[2]
        yield from (f"{paper}-{n:0{len(first)}}" for n in range(int(first), int(last) + 1))


def cited_in_code() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for number in citations(path.read_text()):
            found.setdefault(number, set()).add(str(path.relative_to(SOURCE)))
    return found


def test_a_range_cites_all_that_lies_in_it() -> None:
    assert list(citations("(WP-09…WP-11, 3.4-1)")) == ["WP-09", "WP-10", "WP-11", "3.4-1"]


@pytest.mark.parametrize("paper", PAPERS)
def test_every_mechanism_of_a_paper_has_one_line_in_order(paper: str) -> None:
    named = [line.number for line in LINES if line.number.startswith(paper)]
    assert named == [f"{paper}-{n:02}" for n in range(1, PAPERS[paper] + 1)]


def test_every_citation_in_the_code_has_a_line() -> None:
    lines = {line.number for line in LINES}
    assert not {number: sorted(where) for number, where in cited_in_code().items() if number not in lines}


def test_ambiguities_are_listed_only_where_the_code_cites_them() -> None:
    in_benchmarks = {n for p in (ROOT / "benchmarks").rglob("*.py") for n in citations(p.read_text())}
    assert not {line.number for line in LINES if not line.there} - cited_in_code().keys() - in_benchmarks


def test_every_path_exists() -> None:
    wrong = [
        f"{line.number}: {path}"
        for line in LINES
        for path in line.paths
        if not ((ROOT if path.startswith("benchmarks/") else SOURCE) / path).exists()
    ]
    assert not wrong


def test_what_is_there_names_its_place_and_what_is_not_does_not() -> None:
    assert {line.there for line in LINES} == {"yes", "partly", "not yet", ""}
    assert not [line.number for line in LINES if bool(line.paths) == (line.there == "not yet")]


def test_what_the_code_cites_is_there() -> None:
    cited = cited_in_code()
    assert not [line.number for line in LINES if line.there == "not yet" and line.number in cited]
