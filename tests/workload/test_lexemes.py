"""The words of a SQL text are those of Spark's own lexer; what it does not know is refused before anything runs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from parquetry.errors import QueryError
from parquetry.workload.lexemes import lexemes, semicolons

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = [
    *("1e309 1L 1.5BD 1D 5S 1Y .5 1. 1.e3 .5f 1e5x 1x 1_a a1 1e+5L", "0x1F", "1.2.3 a.1b a.1 t.5e 1..2", "x'1F' b'1'"),
    *(r"r'\d' R\"x\" 'a''b' 'a\'b'", '"a""b"', "`a``b` ``", "-- a\\\n b\nSELECT 1", "/* /* */ */ 1", "/* /*+ */ 5 */"),
    *(
        "/*+ BROADCAST(t) */ 1",
        "2*/*c*/3",
        "a->b a=>b a::b a:b <=> >>> !> !< |> || | != ==",
        "äöü 日本 é1",
        "file://a/b?c",
    ),
    *(
        "a\u00a0b\u3000c",
        "SELECT ${x} 'x${y}'",
        "{# c #} 1",
        "a;b",
        "#",
        "$",
        "\\",
        "x\u0663 x²",
        "\ufeffSELECT",
        "a\u200bb",
    ),
]


@pytest.mark.parametrize(
    "text", ["SELECT {# c #} 1", "SELECT ${x}", "SELECT # c", "SELECT a\\b", "SELECT x²", "SELECT a@v1"]
)
def test_what_spark_cannot_read_is_refused(text: str) -> None:
    with pytest.raises(QueryError, match="no word of Spark SQL"):
        lexemes(text)


def test_words_keep_their_kind_text_and_place() -> None:
    found = lexemes("SELECT `a``b`, 'x;''y' -- c;\nFROM t /* ; /* */ */ WHERE k >= 1.5e3")
    assert [(w.kind, w.name) for w in found] == [
        *(("name", "SELECT"), ("quoted name", "a`b"), ("sign", ","), ("string", "'x;''y'"), ("name", "FROM")),
        *(("name", "t"), ("name", "WHERE"), ("name", "k"), ("sign", ">="), ("number", "1.5e3")),
    ]


def test_statements_of_a_file_end_where_they_end_even_beside_broken_ones() -> None:
    assert semicolons("a '; b'; {# ; #}; 'open; c; /* ; */ d;") == [7, 12, 16, 23, 26, 37]


def test_random_texts_are_cut_as_by_sparks_lexer(spark: SparkSession) -> None:
    rng = random.Random(3)
    letters = [*"ab1e.xLd_'\"`\\ \n-/*+|><=!:;,()[]{}#$?é", "--", "/*", "*/", "'a'", "1e5", "0x", "BD", "r'", "SELECT"]
    texts = TEXTS + ["".join(rng.choices(letters, k=rng.randint(1, 9))) for _ in range(400)]
    for text in texts:
        try:
            ours = [(w.start, w.end) for w in lexemes(text)]
        except QueryError:
            continue
        assert ours == _cut_by_spark(spark, text), text


def _cut_by_spark(spark: SparkSession, text: str) -> list[tuple[int, int]]:
    """The words of Spark's lexer; one that it does not know has no end."""
    jvm: Any = spark._jvm
    parser = jvm.org.apache.spark.sql.catalyst.parser
    lexer = parser.SqlBaseLexer(parser.UpperCaseCharStream(jvm.org.antlr.v4.runtime.CharStreams.fromString(text)))
    lexer.removeErrorListeners()
    found = [t for t in lexer.getAllTokens() if t.getChannel() == 0]
    unknown = parser.SqlBaseLexer.UNRECOGNIZED
    return [(t.getStartIndex(), -1 if t.getType() == unknown else t.getStopIndex() + 1) for t in found]
