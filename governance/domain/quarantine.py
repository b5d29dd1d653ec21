"""The boot mode in which nothing is served, because a restored database may hold what was erased.

Each process compares database and ledger once when it starts (`enter`). A process in quarantine looks again every few
seconds, so that the end of a replay opens it without a restart; one that is not never pays for the question.
"""

import time

import structlog
from django.db import transaction

from governance.actors import system
from governance.domain import audit, clock, ledger
from governance.domain import ledger_files as files
from governance.domain.ledger import Position, Quarantined
from governance.errors import Invalid
from governance.models import LedgerEntry, LedgerState, Tenant

log = structlog.get_logger("lethe.governance")

LOOK_AGAIN_SECONDS = 3.0
WORDS = {
    "ahead": "The ledger knows of erasures or holds that this database does not: it was restored from a backup. Run `manage.py governance_replay`.",
    "behind": "The ledger ends before what this database has written to it: an old copy of it was put back, or it was lost. Put the newest ledger back.",
    "differs": "The ledger is not the one that this database wrote. Put the right one back.",
    "damaged": "The ledger holds lines that are not what was written. Put an undamaged copy back.",
    "unreachable": "The ledger cannot be read. Make its folder available again.",
}

_reason: Position | None = None
_looked_at = 0.0


def check() -> Position | None:
    """Why nothing may be served, from a fresh look; None when everything is in order or somebody waived it."""
    position = ledger.position()
    state = ledger.known_state()
    if position.agrees:
        if state.is_replaying:
            return position
        if state.waived:
            LedgerState.objects.filter(pk=1).update(waived=None)
        return None
    if position.verdict == "unreachable" and state.waived:
        return None
    return position


def enter() -> Position | None:
    """At the start of a process: look, and stay in quarantine when there is a reason."""
    global _reason, _looked_at  # noqa: PLW0603 -- one answer a process
    _reason, _looked_at = check(), time.monotonic()
    if _reason is not None:
        log.error("quarantined", verdict=_reason.verdict, local=_reason.local, external=_reason.external)
    return _reason


def current() -> Position | None:
    """The reason this process serves nothing, or None. Costs nothing outside quarantine."""
    if _reason is not None and time.monotonic() - _looked_at > LOOK_AGAIN_SECONDS:
        enter()
    return _reason


def require_none() -> None:
    """Raises Quarantined."""
    if (reason := current()) is not None:
        raise Quarantined(sentence(reason), local=reason.local, external=reason.external)


def sentence(position: Position) -> str:
    return WORDS.get(position.verdict, "A replay of the ledger is at work; what was erased is being erased again.")


def break_glass(*, reason: str, who: str) -> Position:
    """Leave quarantine without a replay. What was erased may be served again: every tenant's trail says so.

    `reason` and `who` are codes. A ledger that can be written goes on after its own end with an entry that says what
    happened; one that cannot be reached is waived until it can. Returns the position that was overruled.
    """
    position = check()
    if position is None:
        raise Invalid("Lethe is not in quarantine.")
    with transaction.atomic():
        LedgerState.objects.get_or_create(pk=1)
        state = LedgerState.objects.select_for_update().get(pk=1)
        state.is_replaying = False
        if position.verdict == "damaged":
            raise Invalid("A damaged ledger cannot be continued. Move it away as evidence and break the glass again.")
        if position.verdict == "unreachable":
            state.waived = {"at": clock.now().isoformat(), "reason": reason, "who": who}
        else:
            _go_on(state, position, reason)
        state.save()
        for tenant in Tenant.objects.all():
            audit.record(
                "ledger.break_glass", by=system(tenant.id, who), object_type="ledger", verdict=position.verdict,
                local=position.local, external=position.external, reason=reason,
            )  # fmt: skip
    return position


def _go_on(state: LedgerState, position: Position, reason: str) -> None:
    with files.opened() as tail:
        body = {
            "kind": LedgerEntry.Kind.BREAK_GLASS, "at": clock.now().isoformat().replace("+00:00", "Z"),
            "local": position.local, "external": tail.number, "reason": reason,
        }  # fmt: skip
        end = files.write(tail, [body], first=max(tail.number, state.high_water) + 1)
    state.high_water, state.tail = end.number, end.hash
