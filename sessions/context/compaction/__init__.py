"""Compaction: what a long history gives way to. Pure functions over descriptions of items, linear in their number.

Compaction changes what the model sees and never what is stored.
"""

from sessions.context.compaction.plan import Plan, compaction_of, plan
from sessions.context.compaction.texts import SHORTENED_TOKENS, SUMMARY_TOKENS

__all__ = ["SHORTENED_TOKENS", "SUMMARY_TOKENS", "Plan", "compaction_of", "plan"]
