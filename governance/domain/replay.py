"""After a restore: everything the ledger knows and the database does not, done again in order.

Holds are placed before the erasures that met them, because the ledger has them first. Each entry is done and noted
before the next, so an interrupted replay goes on where it was.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from django.db import transaction

from governance.actors import system
from governance.domain import audit, erasure, fences, ledger, previews, registry
from governance.domain import ledger_files as files
from governance.errors import Conflict, Unavailable
from governance.models import Fence, LedgerEntry, LedgerState, Subject, SubjectRequest, Tenant

log = structlog.get_logger("lethe.governance")

REASON = "ledger_replay"
Kind = LedgerEntry.Kind
State = SubjectRequest.State
_handlers: dict[str, Callable[[dict[str, Any]], str]] = {}


class ReplayStuck(Unavailable):
    code, title = "replay_stuck", "The replay cannot go on"


class NothingToReplay(Conflict):
    code, title = "nothing_to_replay", "There is nothing to replay"


@dataclass(slots=True)
class Report:
    """What a replay did. `receipts` are references of the requests that erased again."""

    first: int
    last: int
    erased_again: int = 0
    nothing_left: int = 0
    receipts: list[str] = field(default_factory=list)
    others: dict[str, int] = field(default_factory=dict)


def handles(kind: str) -> Callable:
    """Register what does an entry of this kind again: a function of the entry, as docs/ledger.md describes it, that
    returns a word for the report. Doing it twice must be harmless."""

    def register(function):
        _handlers[kind] = function
        return function

    return register


def replay(*, who: str, told: Callable[[str], None] = lambda line: None) -> Report:
    """Bring the database up to the ledger. Raises NothingToReplay, ReplayStuck, LedgerDamaged, LedgerUnreachable.

    `who` is a code for the trail. `told` hears a line per entry.
    """
    position = ledger.position()
    state = LedgerState.objects.filter(pk=1).first()
    if position.verdict != "ahead" and not (position.agrees and state is not None and state.is_replaying):
        raise NothingToReplay(f"The database is at entry {position.local}, the ledger at {position.external}: {position.verdict}.")
    LedgerState.objects.update_or_create(pk=1, defaults={"is_replaying": True})
    report = Report(position.local + 1, position.external)
    tenants = set()
    for entry, digest in files.entries(after=position.local):
        tenants.add(entry.get("tenant"))
        told(f"{entry['no']} {entry['kind']}: {_again(entry, report)}")
        LedgerState.objects.filter(pk=1).update(high_water=entry["no"], tail=digest)
    with transaction.atomic():
        LedgerState.objects.filter(pk=1).update(is_replaying=False)
        for tenant in Tenant.objects.filter(id__in=[UUID(hex=name) for name in tenants if name]):
            audit.record(
                "ledger.replayed", by=system(tenant.id, who), object_type="ledger", first=report.first, last=report.last,
                erased_again=report.erased_again,
            )  # fmt: skip
    ledger.deliver_waiting()
    return report


def _again(entry: dict[str, Any], report: Report) -> str:
    kind = entry["kind"]
    if kind == Kind.ERASE_STARTED:
        return _erase_again(entry, report)
    if kind == Kind.ERASE_FINISHED:
        return "noted"
    if kind == Kind.BREAK_GLASS:
        return "noted"
    if kind not in _handlers:
        raise ReplayStuck(f"Entry {entry['no']} is of the kind {kind}, which this version does not know. Use the version that wrote it.")
    word = _handlers[kind](entry)
    report.others[kind] = report.others.get(kind, 0) + 1
    return word


def _erase_again(entry: dict[str, Any], report: Report) -> str:
    tenant = Tenant.objects.filter(id=UUID(hex=entry["tenant"])).first()
    if tenant is None:
        report.nothing_left += 1
        return "the tenant is not in this database"
    ledger.suppress(tenant_id=tenant.id, identifiers=entry["identifiers"], erased_at=datetime.fromisoformat(entry["at"]))
    subject = Subject.objects.filter(id=UUID(hex=entry["subject"]), tenant=tenant).first()
    if subject is None or subject.state == Subject.State.ERASED:
        report.nothing_left += 1
        return "nothing of the subject is in this database"
    request = erasure.work(request_id=_request(subject).id)
    if request is None or request.state not in SubjectRequest.FINAL:
        failure = (request.failure if request else None) or {"message": "Somebody else works on it."}
        raise ReplayStuck(f"Entry {entry['no']}: {failure['message']} Run the replay again to go on from here.")
    report.erased_again += 1
    report.receipts.append(request.ref)
    return f"erased again, {request.ref}"


def _request(subject: Subject) -> SubjectRequest:
    """The request that erases the subject again: one that the backup caught on its way, or a new one."""
    by = system(subject.tenant_id)
    underway = SubjectRequest.objects.filter(subject=subject, kind="erase", state__in=erasure.WORKING).first()
    if underway is None:
        fence = Fence.objects.filter(subject=subject, lifted_at=None).first()
        if fence is not None:
            # A restriction, or the fence of a request that waited: the erasure came after it.
            fences.lift_fence(fence=fence, by=by)
        SubjectRequest.objects.filter(subject=subject, kind="erase").exclude(state__in=SubjectRequest.FINAL).update(drift=None)
        underway, _token = previews.preview(subject=Subject.objects.get(pk=subject.pk), by=by)
        SubjectRequest.objects.filter(pk=underway.pk).update(state=State.FENCING, reason=REASON, token_digest="")
    # Nobody else works in quarantine: a lease of the time of the backup is nobody's.
    SubjectRequest.objects.filter(pk=underway.pk).update(lease_until=None)
    return underway


def residue(*, tenant_id: UUID, subject_id: UUID) -> int:
    """Rows that any read path of any category still finds."""
    scope = registry.Scope(tenant_id, subject_id)
    return sum(category.verify(scope=scope) for category in registry.categories().values())
