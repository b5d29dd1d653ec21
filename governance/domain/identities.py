"""When two subjects turn out to be one person, or one to be two: everything moves, nothing is copied.

Both subjects' keys are taken exclusively, in order, so that no writer is inside; both epochs rise, which ends runs that
were started before.
"""

from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

import structlog
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F, Q

from governance import crypto
from governance.actors import Actor
from governance.domain import audit, clock, fences, groups, registry, rotation, shredding
from governance.domain.category import Scope
from governance.domain.tables import TableCategory
from governance.errors import Conflict, Invalid, NotFound, SubjectFenced
from governance.identifiers import VERSIONS, candidates, normalise
from governance.models import Fence, Lineage, Subject, SubjectIdentifier, SubjectRequest

log = structlog.get_logger("lethe.governance")


class SubjectBusy(Conflict):
    code, title = "subject_busy", "Work for this subject is under way"


class NotMergeable(Conflict):
    code, title = "not_mergeable", "These subjects cannot be merged"


def merge(*, subject: Subject, other: Subject, by: Actor) -> Subject:
    """Let `subject` have everything of `other`, whose id takes no data from then on. Returns `subject`.

    Raises NotMergeable for the same or an inactive subject, SubjectBusy for open requests and running work, Held where a
    legal hold covers rows that would move.
    """
    _check(by, subject, other)
    if subject.pk == other.pk:
        raise NotMergeable("These are two names of one subject already.")
    for one in (subject, other):
        _quiesce(one)
    return fences.alone([subject.pk, other.pk], lambda: _merge(subject, other, by))


def split(
    *, subject: Subject, identifiers: Iterable[str | UUID] = (), rows: dict[str, list[UUID]] | None = None, by: Actor
) -> Subject:
    """Give some of the subject's identifiers and rows to a new subject, which is returned.

    `identifiers` are values as the person is named by them, or their ids; `rows` ids by category ("sessions"), which take along what
    belongs to them. Raises Invalid when nothing or something else is named, and what `merge` raises.
    """
    _check(by, subject)
    named, roots = _named(subject, identifiers), _roots(subject, rows or {})
    if not named and not roots:
        raise Invalid("Say which identifiers or rows belong to the other person.")
    _quiesce(subject)
    return fences.alone([subject.pk], lambda: _split(subject, named, roots, by))


def _merge(subject: Subject, other: Subject, by: Actor) -> Subject:
    source, target = Scope(other.tenant_id, other.pk), Scope(subject.tenant_id, subject.pk)
    moved = {}
    with fences.told():
        _lock(subject, other)
        for category in registry.erase_order():
            moved[category.key] = category.move(source=source, target=target)
        Lineage.objects.filter(tenant_id=subject.tenant_id, parent_subject_id=other.pk).update(parent_subject_id=subject.pk)
    _check_moved(source)
    Subject.objects.filter(pk__in=[subject.pk, other.pk]).update(epoch=F("epoch") + 1)
    Subject.objects.filter(pk=other.pk).update(state=Subject.State.MERGED, merged_into=subject.pk)
    # Whoever still writes for the old id is refused, as for one that was erased.
    Fence.objects.create(tenant_id=other.tenant_id, subject=other, mode=Fence.Mode.SUPPRESS)
    audit.record(
        "subject.merged", by=by, object_type="subject", object_ref=subject.pk, object_label=subject.display_ref,
        other=other.pk, rows={key: rows for key, rows in moved.items() if rows},
    )  # fmt: skip
    return Subject.objects.get(pk=subject.pk)


def _split(subject: Subject, named: list[SubjectIdentifier], roots: dict[str, list[UUID]], by: Actor) -> Subject:
    fresh = Subject.objects.create(tenant_id=subject.tenant_id)
    target, moved = Scope(fresh.tenant_id, fresh.pk), {}
    with fences.told():
        _lock(subject)
        for identifier in named:
            readdress(identifier, fresh.pk)
        for root, ids in roots.items():
            for key, rows in groups.move(category=root, tenant_id=subject.tenant_id, ids=ids, target=target).items():
                moved[key] = moved.get(key, 0) + rows
        # What is theirs now must not go with the key of somebody else.
        if rotation.reseal_subject(tenant_id=fresh.tenant_id, subject_id=fresh.pk):
            shredding.note_moved(tenant_id=fresh.tenant_id)
    Subject.objects.filter(pk=subject.pk).update(epoch=F("epoch") + 1)
    audit.record(
        "subject.split", by=by, object_type="subject", object_ref=subject.pk, object_label=subject.display_ref,
        other=fresh.pk, identifiers=len(named), rows={key: rows for key, rows in moved.items() if rows},
    )  # fmt: skip
    return Subject.objects.get(pk=fresh.pk)


def readdress(identifier: SubjectIdentifier, subject_id: UUID) -> None:
    """Let an identifier name another subject. Its ciphertext is bound to the old one and is made anew."""
    value = crypto.decrypt(identifier.value_enc, tenant_id=identifier.tenant_id, context=_context(identifier))
    identifier.subject_id = subject_id
    identifier.value_enc = crypto.encrypt(value, tenant_id=identifier.tenant_id, context=_context(identifier))
    identifier.save(update_fields=["subject", "value_enc"])


def _check(by: Actor, *subjects: Subject) -> None:
    by.require("subject.merge")
    for subject in subjects:
        if subject.tenant_id != by.tenant_id:
            raise NotFound
        if subject.state != Subject.State.ACTIVE:
            raise NotMergeable(f"{subject.display_ref} is {subject.state}. Only active subjects are merged or split.")
        unfinished = SubjectRequest.objects.filter(subject=subject).exclude(state__in=SubjectRequest.FINAL)
        if refs := sorted(unfinished.values_list("ref", flat=True)):
            raise SubjectBusy(f"End {', '.join(refs)} first: what was shown there would no longer be true.", requests=refs)


def _quiesce(subject: Subject) -> None:
    scope = Scope(subject.tenant_id, subject.pk)
    deadline = clock.now() + timedelta(seconds=settings.LETHE.get("quiesce_seconds", 20))
    if any(category.quiesce(scope=scope, deadline=deadline) for category in registry.erase_order()):
        raise SubjectBusy(f"A run of {subject.display_ref} did not stop. Try again when it has ended.")


def _lock(*subjects: Subject) -> None:
    """Look again under the lock: what was checked may have changed while it was waited for."""
    found = Subject.objects.select_for_update(no_key=True).filter(pk__in=[subject.pk for subject in subjects]).order_by("pk")
    fences.enter(subject_ids=[subject.pk for subject in subjects])
    if any(one.state != Subject.State.ACTIVE for one in found):
        raise NotMergeable("One of these subjects changed meanwhile. Look at both again.")


def _check_moved(source: Scope) -> None:
    left = [category.title for category in registry.erase_order() if category.verify(scope=source)]
    if left:
        raise NotMergeable(f"Rows of {', '.join(left)} cannot be moved to another subject.")


def _named(subject: Subject, values: Iterable[str | UUID]) -> list[SubjectIdentifier]:
    own = {(row.kind, bytes(row.value_hmac)): row for row in SubjectIdentifier.objects.filter(subject=subject)}
    by_id = {row.pk: row for row in own.values()}
    found: dict[UUID, SubjectIdentifier] = {}
    for value in values:
        if isinstance(value, UUID) and value in by_id:
            found[value] = by_id[value]
            continue
        marks = (
            (kind, mark)
            for kind, text in candidates(str(value))
            for mark in crypto.identifier_hmacs(tenant_id=subject.tenant_id, kind=kind, value=text)
        )
        rows = [own[mark] for mark in marks if mark in own]
        if not rows:
            raise Invalid(errors={"identifiers": ["One of these does not name this subject."]})
        found |= {row.pk: row for row in rows}
    return list(found.values())


def _roots(subject: Subject, rows: dict[str, list[UUID]]) -> dict[str, list[UUID]]:
    """The ids, with those that share content with them: a fork goes along with its parent."""
    roots = {}
    for key, ids in rows.items():
        category = registry.get(key)
        if not isinstance(category, TableCategory) or len(category.order) > 1:
            raise Invalid(errors={"rows": [f"Rows of {key} do not move by themselves."]})
        names = {str(row_id) for row_id in category.family(tenant_id=subject.tenant_id, ids=list(ids))}
        model = category.model._default_manager.filter(**{category.tenant_field: subject.tenant_id, category.subject_field: subject.pk})
        found = list(model.filter(pk__in=names).values_list("pk", flat=True))
        if len(found) != len(names):
            raise NotFound
        if found:
            roots[key] = found
    return roots


def _context(identifier: SubjectIdentifier) -> str:
    return f"identifier|{identifier.subject_id}|{identifier.kind}"


def rehash(*, limit: int = 500) -> int:
    """Recompute what identifiers are found by, after the normalisation of their kind has changed. Returns how many.

    One that now reads like another of the tenant is left and told: two subjects may be one person.
    """
    outdated = Q()
    for kind, version in VERSIONS.items():
        outdated |= Q(kind=kind, norm_version__lt=version)
    return sum(_rehash(row) for row in SubjectIdentifier.objects.filter(outdated).order_by("id")[:limit])


def _rehash(row: SubjectIdentifier) -> bool:
    value = normalise(row.kind, crypto.decrypt(row.value_enc, tenant_id=row.tenant_id, context=_context(row)).decode())
    row.value_hmac = crypto.identifier_hmac(tenant_id=row.tenant_id, kind=row.kind, value=value)
    row.value_enc = crypto.encrypt(value.encode(), tenant_id=row.tenant_id, context=_context(row))
    row.norm_version = VERSIONS[row.kind]
    try:
        with transaction.atomic(), fences.told():
            row.save(update_fields=["value_hmac", "value_enc", "norm_version"])
    except IntegrityError:
        log.warning("identifier_ambiguous", subject=str(row.subject_id), kind=row.kind)
        return False
    except SubjectFenced:
        return False
    return True
