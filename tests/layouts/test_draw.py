"""A picture shows every block, what queries read, and irregular blocks below what lies in their holes."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from parquetry.layouts.draw import draw_svg
from parquetry.model.box import Box, Interval
from parquetry.model.layout import Cut, Groups, Leaf, TreeLayout
from parquetry.model.predicate import And, Range
from parquetry.model.workload import LoggedQuery

HOLE = Box({"x": Interval(10, 20), "y": Interval(10, 20)})
SPEC = TreeLayout("paw", ("x", "y"), (Cut("x", "<", 50, 1, 4), Groups((HOLE,), (2,), 3), Leaf(0), Leaf(1), Leaf(2)))
DOMAINS = {"x": (0, 100), "y": (0, 100)}
QUERY = LoggedQuery(And((Range("x", 12, 18), Range("y", 12, 18))))


def fills(svg: str) -> list[str]:
    return [e.attrib["fill"] for e in ET.fromstring(svg) if e.tag.endswith("rect") and float(e.get("x", "0")) > 0]


def test_irregular_blocks_lie_below_and_blocks_that_are_read_stand_out() -> None:
    drawn = fills(draw_svg(SPEC, "x", "y", DOMAINS, [QUERY]))
    irregular, read, skipped = drawn[:3]
    assert len({irregular, read, skipped}) == 3
    legend = drawn[-5:]
    assert legend[1:4] == [read, skipped, irregular]


def test_the_legend_names_only_what_occurs() -> None:
    svg = draw_svg(TreeLayout("kdtree", ("x", "y"), (Leaf(0),)), "x", "y", DOMAINS)
    assert "irregular" not in svg
    assert "query" not in svg


def test_titles_and_names_are_escaped() -> None:
    svg = draw_svg(SPEC, "x", "y", DOMAINS, title="a < b & c")
    assert "a &lt; b &amp; c" in svg
    ET.fromstring(svg)
