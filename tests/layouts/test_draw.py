"""A picture shows every block, what queries read, and irregular blocks below what lies in their holes."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from parquetry.layouts.draw import draw_svg
from parquetry.layouts.draw_features import feature_lines
from parquetry.model.box import Box, Interval
from parquetry.model.layout import Cluster, Cut, Feature, FeatureLayout, Groups, Leaf, NestedLayout, TreeLayout
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import ANYTHING, And, Opaque, Range

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


# -- features ----------------------------------------------------------------------------------------

LIKE = Opaque("s LIKE 'a%'", ("s",))
FEATURES = (Feature(Range("x", 10, 20)), Feature(opaque=(LIKE,)), Feature(Range("z", hi=3, hi_open=True)))
BY_FEATURES = FeatureLayout(
    "warp", ("x", "s", "z"), FEATURES, (Cluster(0b001), Cluster(0b010), Cluster(0b111)), {1: 0, 2: 1}
)
EXTENTS = {
    0: Box({"x": Interval(10, 20), "y": Interval(0, 50)}),
    1: Box({"x": Interval(30, 90), "y": Interval(40, 100)}),
}
ASKED = [LoggedQuery(Range("x", 12, 15))] * 3 + [LoggedQuery(ANYTHING, opaque=(LIKE,))]


def texts(svg: str) -> list[str]:
    return [e.text or "" for e in ET.fromstring(svg) if e.tag.endswith("text")]


def test_blocks_of_features_are_drawn_by_their_smallest_and_largest_values() -> None:
    svg = draw_svg(BY_FEATURES, "x", "y", DOMAINS, ASKED, extents=EXTENTS)
    blocks = [e.attrib for e in ET.fromstring(svg) if e.get("fill-opacity") == "0.4" and e.get("stroke") == "#8fa0b5"]
    assert len(blocks) == 2, "a block without rows is not drawn"
    assert [float(b["width"]) for b in blocks] == [76.0, 456.0]
    assert [float(b["height"]) for b in blocks] == [380.0, 456.0]


def test_features_are_listed_with_their_share_of_the_queries_and_their_blocks() -> None:
    lines = feature_lines(BY_FEATURES, ASKED)
    assert [(line.text, line.share, line.blocks, line.of) for line in lines] == [
        ("x >= 10 AND x <= 20", 0.75, 2, 3),
        ("s LIKE 'a%'", 0.25, 2, 3),
        ("z < 3", 0.0, 1, 3),
    ]
    said = texts(draw_svg(BY_FEATURES, "x", "y", DOMAINS, ASKED, extents=EXTENTS))
    for line in ("x >= 10 AND x <= 20", "s LIKE 'a%'", "z < 3", "75%", "2 of 3", "share of queries"):
        assert line in said
    assert any("cannot show" in line for line in said), "what the picture leaves out is said"


def test_a_block_that_features_rule_out_is_not_shown_as_read() -> None:
    drawn = draw_svg(BY_FEATURES, "x", "y", DOMAINS, [LoggedQuery(Range("z", hi=1))], extents=EXTENTS)
    first, second = [e for e in ET.fromstring(drawn) if e.get("fill-opacity") == "0.4" and e.get("stroke") == "#8fa0b5"]
    assert first.get("fill") == second.get("fill") == "#f8fafc"


def test_features_of_nested_layouts_are_listed_once() -> None:
    nested = NestedLayout("warp", "x", (50,), (BY_FEATURES, BY_FEATURES))
    assert [(line.blocks, line.of) for line in feature_lines(nested, ())] == [(4, 6), (4, 6), (2, 6)]
    ET.fromstring(draw_svg(nested, "x", "y", DOMAINS, extents=EXTENTS))


def test_layouts_without_features_have_no_list() -> None:
    assert feature_lines(SPEC, [QUERY]) == []
