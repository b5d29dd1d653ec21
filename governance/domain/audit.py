"""The audit trail's only writer.

An event commits or vanishes with the change it tells of. It holds ids, counts and codes; no free text, no identifier
of a person. What an action may be called is listed here, so the trail can be read without reading the code. The
database gives each event its place in the tenant's chain at the commit (see governance/chain.py); `trail` checks it.
"""

import re
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import transaction

from governance.actors import Actor
from governance.models import AuditEvent, AuditHead

ACTIONS = frozenset(
    f"{noun}.{verb}"
    for noun, verbs in {
        "agent": "created saved published rolled_back disabled enabled archived restored deleted exported imported",
        "skill": "created saved published rolled_back disabled enabled deleted imported",
        "provider": "created updated deleted tested key_changed",
        "mcp_server": "created updated deleted checked secrets_changed",
        "egress": "updated",
        "run": "started cancelled",
        "session": (
            "renamed labelled closed reopened archived restored forked deleted state_changed read exported compacted todos_changed file_written"
            " file_deleted"
        ),
        "file": "written deleted",
        "approval": "approved rejected expired withdrawn",
        "approval_rule": "created revoked",
        "quota": "created updated deleted",
        "tenant": "created renamed settings_changed",
        "member": "created added removed roles_changed password_reset password_changed signed_in signed_out sign_in_failed",
        "api_key": "created revoked",
        "subject": "searched restricted restriction_lifted identifier_added identifier_corrected erased merged split assigned key_destroyed",
        "unattributed": "waived reopened",
        "request": (
            "received identity_asked first_answered previewed confirmed approved declined cancelled fenced drifted accepted_additions"
            " executing verifying completed failed extended expired alarm alarm_seen break_glass corrected"
            " recipient_told recipient_acknowledged receipt_issued resumed"
        ),
        "export": "requested created downloaded expired failed link_created imported",
        "hold": "placed released expired",
        "retention_policy": "created updated deleted previewed approved",
        "retention_run": "started completed failed",
        "content": "read",
        "audit": "exported pruned",
        "ledger": "replayed break_glass",
    }.items()
    for verb in verbs.split()
)

# A code, an id, a name of a field or a number in text; nothing in which a sentence or an address would fit.
_CODE = re.compile(r"[\w.:+\-/]{0,128}")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


@transaction.atomic
def record(
    action: str, *, by: Actor, object_type: str = "", object_ref: Any = "", object_label: str = "", **payload: Any
) -> AuditEvent:
    """Write one event, in the transaction of the change. Raises ValueError for an unknown action or a payload of prose.

    `payload` takes UUIDs, numbers, booleans, dates, codes (`[\\w.:+-/]`, up to 128 characters), and lists or one level
    of mappings of these. `object_label` is the name of a thing, never of a person who is a subject.
    """
    if action not in ACTIONS:
        raise ValueError(f"{action!r} is not an audited action; list it in governance.domain.audit.ACTIONS.")
    return AuditEvent.objects.create(
        tenant_id=by.tenant_id,
        actor_kind=by.kind,
        actor_ref=by.ref[:64],
        actor_label=by.label[:200],
        action=action,
        object_type=object_type,
        object_ref=object_ref.hex if isinstance(object_ref, UUID) else str(object_ref)[:64],
        object_label=object_label[:200],
        payload={_name(action, name): _value(action, name, value) for name, value in payload.items()},
    )


def head(*, tenant_id: UUID) -> dict[str, Any]:
    """The end of the tenant's chain: `seq` and `hash` in hex, as receipts carry it; both None before the first event."""
    found = AuditHead.objects.filter(tenant_id=tenant_id, seq__gt=0).first()
    return {"seq": found.seq, "hash": bytes(found.hash).hex()} if found else {"seq": None, "hash": None}


def _name(action: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{action}: {name!r} cannot be the name of a payload entry.")
    return name


def _value(action: str, name: str, value: Any) -> Any:
    if isinstance(value, list | tuple | set | frozenset):
        entries = sorted(value) if isinstance(value, set | frozenset) else value
        return [_plain(action, name, entry) for entry in entries]
    if isinstance(value, dict):
        return {_plain(action, name, str(key)): _plain(action, name, entry) for key, entry in value.items()}
    return _plain(action, name, value)


def _plain(action: str, name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, UUID):
        return value.hex
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, str) and _CODE.fullmatch(value):
        return str(value)
    raise ValueError(f"{action}: {name} is not an id, a count or a code. Free text does not belong in the audit trail.")
