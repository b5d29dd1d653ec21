"""Stores that hold nothing about a subject, and who says so until when.

A table, cache, queue or log is either in a category or here; anything else stops the start-up (see governance/checks.py
and governance/inventory.py). An upper floor waives its own stores from its `categories.py`: tables by name, other stores
by key, as in "queue:celery".
"""

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True)
class Waiver:
    table: str
    reason: str
    owner: str
    review_by: date


_waivers: dict[str, Waiver] = {}


def waive(*tables: str, reason: str, owner: str, review_by: date) -> None:
    """Say that these tables hold no personal data of subjects, why, and until when that is to be looked at again."""
    for table in tables:
        _waivers[table] = Waiver(table, reason, owner, review_by)


def waivers() -> dict[str, Waiver]:
    """By table name."""
    return dict(_waivers)


_REVIEW = date(2028, 12, 31)

waive(
    "django_migrations",
    "django_content_type",
    "auth_permission",
    "auth_group",
    "auth_group_permissions",
    reason="Django's own bookkeeping: names of tables and permissions.",
    owner="governance",
    review_by=_REVIEW,
)
waive(
    "django_session",
    reason="Sign-ins to the console, by members of staff: an opaque key and the member's id, gone when they expire.",
    owner="console",
    review_by=_REVIEW,
)
waive(
    "governance_tenant",
    reason="The organisation that operates Lethe here: its name and settings.",
    owner="governance",
    review_by=_REVIEW,
)
waive(
    "governance_member",
    "governance_membership",
    reason="Members of staff and their roles. They are managed and removed on the members page; agents keep nothing on them.",
    owner="governance",
    review_by=_REVIEW,
)
waive(
    "governance_subject",
    "governance_fence",
    reason="A random id and its state. They stay after an erasure, because they are what refuses the id from then on.",
    owner="governance",
    review_by=_REVIEW,
)
waive(
    "governance_subjectrequest",
    "governance_planchunk",
    "governance_erasurestep",
    "governance_regeneration",
    "governance_requestalarm",
    "governance_requestrecipient",
    "governance_receipt",
    reason="The evidence of a request: ids, counts, hashes and dates. Bounds and samples are wiped when it ends.",
    owner="governance",
    review_by=_REVIEW,
)
waive(
    "governance_unattributedwaiver",
    reason="Which rows name nobody, as somebody decided: ids, codes and who decided it.",
    owner="governance",
    review_by=_REVIEW,
)
waive(
    "governance_auditevent",
    "governance_audithead",
    "governance_auditboundary",
    reason="Ids, counts and codes, by an allow-list; the trail outlives what it tells of.",
    owner="governance",
    review_by=_REVIEW,
)
waive(
    "governance_hold",
    "governance_heldrow",
    reason="What must be kept and why: references, ids and dates. They outlive the rows as evidence of the duty.",
    owner="governance",
    review_by=_REVIEW,
)
waive(
    "governance_retentionpolicy",
    "governance_retentionrun",
    reason="Rules and their results: names of categories, days and counts.",
    owner="governance",
    review_by=_REVIEW,
)
waive(
    "governance_ledgerentry",
    "governance_ledgerstate",
    "governance_suppressedidentifier",
    reason="What must outlive an erasure so that it survives a restore: ids, dates, keyed hashes, and bounds as ciphertext.",
    owner="governance",
    review_by=_REVIEW,
)
waive(
    "folder:postgres",
    reason="The embedded database itself: its tables are accounted for one by one.",
    owner="console",
    review_by=_REVIEW,
)
waive(
    "folder:queue",
    "queue:celery",
    reason="Messages to workers: the name of a task and one id. Nothing is kept of results.",
    owner="console",
    review_by=_REVIEW,
)
waive(
    "folder:secrets",
    "folder:static",
    "folder:run",
    "folder:beat-schedule",
    # As other builds of Python write it.
    "folder:beat-schedule.bak",
    "folder:beat-schedule.dat",
    "folder:beat-schedule.db",
    "folder:beat-schedule.dir",
    "folder:lost+found",
    "folder:backups",
    reason="Keys of the installation, the console's own files, sockets, when the scheduler last ran, and the operator's backups.",
    owner="console",
    review_by=_REVIEW,
)
waive(
    "folder:anchors",
    "folder:drills",
    "folder:ledger",
    reason="Signed checkpoints of the audit trail, evidence of restore drills, and the ledger of erasures and holds: ids, hashes and sealed bounds.",
    owner="governance",
    review_by=_REVIEW,
)
waive(
    "cache:default",
    reason="In the memory of each process and used by nothing of ours; it ends with the process.",
    owner="console",
    review_by=_REVIEW,
)
waive(
    "log:stderr",
    reason="Names of events, ids, counts and codes; bodies, query strings and texts of errors from outside are kept out.",
    owner="console",
    review_by=_REVIEW,
)
waive(
    "governance_purgejob",
    "governance_requestpurge",
    reason="Which tables are to be cleaned and when that was done: names, dates and positions.",
    owner="governance",
    review_by=_REVIEW,
)
