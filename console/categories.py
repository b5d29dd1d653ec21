"""The console's own stores, none of which holds anything about a subject."""

from datetime import date

from governance.waivers import waive

waive(
    "console_signinattempts",
    reason="Counters of failed sign-ins by members of staff, under keyed hashes, gone half an hour after the last failure.",
    owner="console",
    review_by=date(2028, 12, 31),
)
