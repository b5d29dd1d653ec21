"""What was derived from a subject's rows and is not the subject's own: it goes along, or is rebuilt without them.

A derived row all of whose living sources go is erased in the same job. One with other living sources is hidden when the
erasure begins and then rebuilt from those alone; where that fails twice, or the request is due, it is deleted.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import Q

from governance.domain import clock, coverage, fences, jobs, lineage, registry
from governance.domain.category import Ref, Scope
from governance.domain.lineage import Source
from governance.errors import Held, LetheError
from governance.models import Lineage, Regeneration, SubjectLink, SubjectRequest

log = structlog.get_logger("lethe.governance")

ATTEMPTS = 2
Outcome = Regeneration.Outcome
Role = SubjectLink.Role


class RegenerationFailed(LetheError):
    code, title = "regeneration_failed", "A derived text could not be rebuilt"
    detail = "A text with other sources could not be rebuilt without this person. It is hidden and tried again once; then it is deleted."


@dataclass(frozen=True, slots=True)
class Closure:
    """Keys of derived rows by category: `also` go with the subject's rows, `mixed` are rebuilt, with their depth. `held` would
    be rebuilt, but a hold keeps them as they are; they are hidden until it is released.
    """

    also: dict[str, list[str]] = field(default_factory=dict)
    mixed: dict[str, dict[str, int]] = field(default_factory=dict)
    held: dict[str, dict[str, int]] = field(default_factory=dict)

    def as_json(self) -> dict:
        return {"also": self.also, "mixed": self.mixed, "held": self.held}

    @property
    def rebuilt(self) -> dict[str, dict[str, int]]:
        """All rows with other sources, held or not."""
        keys = sorted({*self.mixed, *self.held})
        return {key: {**self.mixed.get(key, {}), **self.held.get(key, {})} for key in keys}


def of(scope: Scope) -> Closure:
    """Everything derived from the subject's rows, breadth first; what is derived in a circle ends where it began.

    Other people's rows that the subject is linked to count as well: what they wrote goes, what mentions them is rebuilt
    where the category can do that. An operator's link goes, and the row stays.
    """
    written, mentioning = _linked(scope, Role.AUTHOR), _linked(scope, Role.MENTIONED)
    mentioning = {ref for ref in mentioning - written if registry.get(ref.category).can_regenerate}
    depths: dict[Ref, int] = dict.fromkeys(written | mentioning, 0)
    found = lineage.edges(scope.tenant_id, Q(parent_subject_id=scope.subject_id)) + lineage.of_parents(scope.tenant_id, depths)
    depth = 0
    while fresh := {lineage.child_of(edge) for edge in found if edge.subject_id != scope.subject_id} - set(depths):
        depths |= dict.fromkeys(fresh, depth)
        found, depth = lineage.of_parents(scope.tenant_id, fresh), depth + 1
    living = lineage.alive(scope.tenant_id, depths)
    sole = _sole(scope, living - mentioning, written) | (written & living)
    also: dict[str, list[str]] = {}
    mixed: dict[str, dict[str, int]] = {}
    for ref in sorted(living, key=lambda ref: (ref.category, ref.row_id)):
        if ref in sole:
            also.setdefault(ref.category, []).append(ref.row_id)
        else:
            mixed.setdefault(ref.category, {})[ref.row_id] = depths[ref]
    return Closure(also, mixed)


def _linked(scope: Scope, role: str) -> set[Ref]:
    """Other people's rows to which the subject has this role."""
    links = SubjectLink.objects.filter(tenant_id=scope.tenant_id, subject_id=scope.subject_id, role=role)
    refs = [Ref(category, row_id) for category, row_id in links.values_list("category", "row_id")]
    return lineage.alive(scope.tenant_id, refs, not_of=scope.subject_id)


def _sole(scope: Scope, reached: set[Ref], written: set[Ref]) -> set[Ref]:
    """Those of the rows that stand on nothing but the subject's rows and each other: the greatest such set. What the
    subject wrote goes whatever it stands on.
    """
    edges = lineage.of_children(scope.tenant_id, reached)
    outside = {lineage.parent_of(edge) for edge in edges if edge.parent_subject_id != scope.subject_id} - reached
    living = lineage.alive(scope.tenant_id, outside)
    sole = set(reached)
    while True:
        supported = {
            lineage.child_of(edge)
            for edge in edges
            if edge.parent_subject_id != scope.subject_id
            and (lineage.parent_of(edge) in living or lineage.parent_of(edge) in reached - sole)
        }
        if not supported & sole - written:
            return sole
        sole -= supported - written


def with_holds(tenant_id: UUID, closure: Closure) -> Closure:
    """The closure as holds leave it now: what they keep from changing is not rebuilt."""
    mixed: dict[str, dict[str, int]] = {}
    held: dict[str, dict[str, int]] = {}
    for key, rows in closure.rebuilt.items():
        kept = coverage.held_among(tenant_id, key, rows) if registry.get(key).on_hold == "refuse" else set()
        for row_id, depth in rows.items():
            (held if row_id in kept else mixed).setdefault(key, {})[row_id] = depth
    return replace(closure, mixed=mixed, held=held)


def extend(scope: Scope, closure: Closure) -> Scope:
    """The scope with the derived rows that go along, and with those that would be rebuilt if they were not held."""
    also = {key: list(ids) for key, ids in closure.also.items()}
    for key, rows in closure.held.items():
        also.setdefault(key, []).extend(sorted(rows))
    return replace(scope, also={key: tuple(ids) for key, ids in also.items()})


def stored(request: SubjectRequest) -> Closure:
    """As the request's plan has it."""
    kept = (request.preview or {}).get("derived") or {}
    return Closure(kept.get("also", {}), kept.get("mixed", {}), kept.get("held", {}))


def hide(*, lease: jobs.Lease, request: SubjectRequest) -> None:
    """Take derived rows with other sources out of every read path, before their sources go. Doing it twice is harmless."""
    known = stored(request)
    if not known.rebuilt:
        return
    with transaction.atomic():
        lease.renew(progress_at=clock.ClockTime())
        for key, rows in known.rebuilt.items():
            registry.get(key).hide(tenant_id=request.tenant_id, ids=sorted(rows))
        _intend(request, known.mixed)


def _intend(request: SubjectRequest, mixed: dict[str, dict[str, int]]) -> None:
    Regeneration.objects.bulk_create(
        (
            Regeneration(request=request, tenant_id=request.tenant_id, category=key, row_id=row_id, depth=depth)
            for key, rows in mixed.items()
            for row_id, depth in rows.items()
        ),
        ignore_conflicts=True,
    )


def settle(*, lease: jobs.Lease, request: SubjectRequest) -> None:
    """Rebuild or delete what is hidden, sources first. What a hold keeps is left for the request that follows this one.

    Raises RegenerationFailed while something may be tried again.
    """
    _look_at_holds(lease, request)
    failed = False
    pending = Regeneration.objects.filter(request=request, outcome="")
    for row in pending.order_by("depth", "id"):
        lease.renew(progress_at=clock.ClockTime())
        is_due = request.due_at is not None and clock.now() >= request.due_at
        sources = _surviving(request, row)
        # What only mentions the person may be derived from nothing; it is rebuilt from itself.
        is_orphan = not sources and bool(lineage.of_children(request.tenant_id, [Ref(row.category, row.row_id)]))
        if row.attempts >= ATTEMPTS or is_due or is_orphan:
            try:
                _end(lease, row, lambda row=row: _delete(row))
            except Held:
                _leave(lease, request, row)
        elif not _rebuild(lease, row, sources):
            row.attempts += 1
            row.save(update_fields=["attempts"])
            failed = True
    if failed:
        raise RegenerationFailed
    with transaction.atomic():
        lease.renew()
        with fences.executor(request_id=lease.id, lease_no=lease.number), fences.told():
            of_tenant = Lineage.objects.filter(tenant_id=request.tenant_id)
            of_sources = list(of_tenant.filter(parent_subject_id=request.subject_id))
            # What a hold keeps is still the source of what was derived from it.
            living = lineage.alive(request.tenant_id, {lineage.parent_of(edge) for edge in of_sources})
            # And what a hold keeps has to be found again when it is released.
            known = stored(request)
            also = {Ref(key, row_id) for key, ids in known.also.items() for row_id in ids}
            kept = lineage.alive(request.tenant_id, also) | {Ref(key, row_id) for key, rows in known.held.items() for row_id in rows}
            gone = [edge.pk for edge in of_sources if lineage.parent_of(edge) not in living and lineage.child_of(edge) not in kept]
            of_tenant.filter(pk__in=[*gone, *(edge.pk for edge in lineage.of_children(request.tenant_id, also - kept))]).delete()


def _look_at_holds(lease: jobs.Lease, request: SubjectRequest) -> None:
    """Holds come and go while a request is carried out: what is held by now waits, what no longer is will be rebuilt.

    No lock is needed: a hold that arrives after this look has the rebuilding refused, and it is looked at again.
    """
    known = stored(request)
    ended = set(Regeneration.objects.filter(request=request).exclude(outcome="").values_list("category", "row_id"))
    now, mixed, held = with_holds(request.tenant_id, known), {}, {}
    for key, rows in known.rebuilt.items():
        for row_id, depth in rows.items():
            waits = row_id in now.held.get(key, {}) and (key, row_id) not in ended
            (held if waits else mixed).setdefault(key, {})[row_id] = depth
    if (mixed, held) == (known.mixed, known.held):
        return
    with transaction.atomic():
        lease.renew()
        _keep(request, replace(known, mixed=mixed, held=held))
        for key, rows in held.items():
            Regeneration.objects.filter(request=request, category=key, row_id__in=rows, outcome="").delete()
        _intend(request, mixed)


def _leave(lease: jobs.Lease, request: SubjectRequest, row: Regeneration) -> None:
    """A row that may be changed under its hold, and not deleted."""
    known = stored(request)
    mixed = {key: {one: depth for one, depth in rows.items() if (key, one) != (row.category, row.row_id)} for key, rows in known.mixed.items()}
    held = {**known.held, row.category: {**known.held.get(row.category, {}), row.row_id: row.depth}}
    with transaction.atomic():
        lease.renew()
        _keep(request, replace(known, mixed=mixed, held=held))
        row.delete()


def _keep(request: SubjectRequest, closure: Closure) -> None:
    request.preview = {**(request.preview or {}), "derived": closure.as_json()}
    SubjectRequest.objects.filter(pk=request.pk).update(preview=request.preview)


def outcomes(request: SubjectRequest) -> dict[str, dict[str, int]]:
    """Rows by category and outcome, for the receipt."""
    counts: dict[str, dict[str, int]] = {}
    for key, outcome in Regeneration.objects.filter(request=request).values_list("category", "outcome"):
        of_category = counts.setdefault(key, dict.fromkeys(Outcome.values, 0))
        of_category[outcome or Outcome.GONE] += 1
    return counts


def _surviving(request: SubjectRequest, row: Regeneration) -> list[Source]:
    edges = [
        edge
        for edge in lineage.of_children(request.tenant_id, [Ref(row.category, row.row_id)])
        if edge.parent_subject_id != request.subject_id
    ]
    living = lineage.alive(request.tenant_id, {lineage.parent_of(edge) for edge in edges})
    return [Source(lineage.parent_of(edge), edge.parent_subject_id) for edge in edges if lineage.parent_of(edge) in living]


def _rebuild(lease: jobs.Lease, row: Regeneration, sources: list[Source]) -> bool:
    category = registry.get(row.category)
    if not lineage.alive(row.tenant_id, [Ref(row.category, row.row_id)]):
        _end(lease, row, lambda: Outcome.GONE)
        return True
    try:
        # It may ask a model: not inside a transaction of ours.
        category.regenerate(tenant_id=row.tenant_id, row_id=row.row_id, sources=sources)
    except Exception as error:
        log.warning("regeneration_failed", category=row.category, error=type(error).__name__)
        return False
    _end(lease, row, lambda: Outcome.REGENERATED)
    return True


def _end(lease: jobs.Lease, row: Regeneration, act: Callable[[], str]) -> None:
    with transaction.atomic():
        lease.renew(progress_at=clock.ClockTime(), attempts=0)
        with fences.executor(request_id=lease.id, lease_no=lease.number), fences.told():
            row.outcome = act()
        row.save(update_fields=["outcome"])


def _delete(row: Regeneration) -> str:
    deleted = registry.get(row.category).delete_rows(tenant_id=row.tenant_id, ids=[row.row_id])
    return Outcome.DELETED if deleted else Outcome.GONE
