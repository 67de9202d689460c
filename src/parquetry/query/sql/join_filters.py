"""What each kind of join lets a condition say about its two sides, without changing the answer."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp


@dataclass(frozen=True)
class JoinRule:
    """Which sides a condition of ON may filter, which sides it null-extends, and where equal columns pass values."""

    filters_left: bool
    filters_right: bool
    nulls_left: bool = False
    nulls_right: bool = False
    equal_to_left: bool = False  # a range known of the right column holds for the equal left one
    equal_to_right: bool = False
    hides_right: bool = False


_INNER = JoinRule(True, True, equal_to_left=True, equal_to_right=True)
_RULES = {
    "INNER": _INNER,
    "LEFT": JoinRule(False, True, nulls_right=True, equal_to_right=True),
    "RIGHT": JoinRule(True, False, nulls_left=True, equal_to_left=True),
    "FULL": JoinRule(False, False, nulls_left=True, nulls_right=True),
    "SEMI": JoinRule(True, True, equal_to_left=True, equal_to_right=True, hides_right=True),
    "ANTI": JoinRule(False, True, equal_to_right=True, hides_right=True),
}
_UNKNOWN = _RULES["FULL"]


def rule_of(join: exp.Join) -> JoinRule:
    """The join's rule; a kind not known here lets nothing through."""
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if join.method and join.method.upper() != "NATURAL":
        return _UNKNOWN
    if kind in ("SEMI", "ANTI"):
        return _RULES[kind] if side in ("", "LEFT") else _UNKNOWN
    if side in _RULES:
        return _RULES[side]
    return _INNER if side == "" and kind in ("", "INNER", "CROSS") else _UNKNOWN
