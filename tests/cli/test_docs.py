"""No verb, option, rule or setting without its place in the documentation."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from parquetry.cli.app import app
from parquetry.layouts.registry import LEARNERS
from parquetry.model import retention
from parquetry.model.settings import Settings
from parquetry.query.rules import RULE_NAMES as RULES

DOCS = Path(__file__).parents[2] / "docs"
CLI = (DOCS / "cli.md").read_text()
SETTINGS = (DOCS / "settings.md").read_text()
COMMAND: Any = typer.main.get_command(app)


def section(verb: str) -> str:
    found = re.search(rf"^### {re.escape(verb)}\n(.*?)(?=^##|\Z)", CLI, re.MULTILINE | re.DOTALL)
    assert found, f"docs/cli.md has no section '### {verb}'"
    return found[1]


@pytest.mark.parametrize("verb", sorted(COMMAND.commands))
def test_every_verb_and_its_options_are_documented_with_an_example(verb: str) -> None:
    text = section(verb)
    assert re.search(rf"^parquetry (-w \S+ )?{re.escape(verb)}\b", text, re.MULTILINE), "an example is missing"
    command = COMMAND.commands[verb]
    below = list(getattr(command, "commands", {}).values())
    options = {o for c in (command, *below) for p in c.params for o in p.opts if o.startswith("--")}
    missing = sorted(o for o in options - {"--json", "--help"} if o not in text)
    missing += [c.name for c in below if not re.search(rf"^parquetry {re.escape(verb)} {c.name}\b", text, re.MULTILINE)]
    assert not missing


def test_no_section_without_a_verb() -> None:
    assert set(re.findall(r"^### (.*)$", CLI, re.MULTILINE)) == set(COMMAND.commands)


def test_global_options_are_documented() -> None:
    head = CLI.partition("\n## ")[0]
    missing = [o for p in COMMAND.params for o in p.opts if o not in head]
    assert not missing
    assert "PARQUETRY_WAREHOUSE" in head
    assert "--json" in head


@pytest.mark.parametrize("learner", [*LEARNERS, "auto"])
def test_every_learner_is_documented(learner: str) -> None:
    assert f"`{learner}`" in section("relayout")
    (given,) = (p for p in COMMAND.commands["relayout"].params if p.name == "learner")
    assert learner in re.findall(r"\w+", given.help)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_documented(rule: str) -> None:
    assert f"`{rule}`" in section("rules")


@pytest.mark.parametrize("field", [f for f in dataclasses.fields(Settings) if f.name in Settings.names()])
def test_every_setting_is_documented_with_its_default(field: dataclasses.Field[Any]) -> None:
    assert f"| `{field.name}` | {field.default} |" in SETTINGS


def test_no_documented_setting_is_unknown() -> None:
    known = {*Settings.names(), *retention.names()}
    assert set(re.findall(r"^\| `(\w+)` \|", SETTINGS, re.MULTILINE)) == known
