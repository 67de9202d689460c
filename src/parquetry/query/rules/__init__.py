"""Every rule in its order; each can be switched off, and answers stay the same."""

from parquetry.query.rules.choose_executor import LOCAL
from parquetry.query.rules.choose_view import PRICING, VIEWS
from parquetry.query.rules.cut_splits import SCAN_WORKERS
from parquetry.query.rules.hold_rows import HOLD_ROWS
from parquetry.query.rules.join_workers import JOIN_RULES
from parquetry.query.rules.pick_row_groups import PICK_ROW_GROUPS
from parquetry.query.rules.push_key_filter import PUSH_KEY_FILTER

RULES = (*PRICING, VIEWS, LOCAL, PUSH_KEY_FILTER, HOLD_ROWS, SCAN_WORKERS, *JOIN_RULES, PICK_ROW_GROUPS)
RULE_NAMES = tuple(rule.name for rule in RULES)
AGAIN = tuple(rule for rule in RULES if rule is not VIEWS)
"""For a plan whose view, or table, is chosen already."""
