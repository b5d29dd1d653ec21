"""Rows that name no subject: how many, whose they may be, and what somebody decided about them.

An erasure cannot find what names nobody. Such rows are counted in every preview, and worked off here: they are given to
their subject, or waived with a reason because they are about nobody.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import F, QuerySet

from governance import crypto
from governance.actors import Actor
from governance.domain import audit, fences, groups, registry, shredding
from governance.domain.category import Scope
from governance.domain.tables import TableCategory
from governance.errors import Conflict, Invalid, NotFound
from governance.identifiers import candidates
from governance.models import Subject, SubjectIdentifier, SubjectLink, UnattributedWaiver

MOST = 500
REASONS = dict(UnattributedWaiver.Reason.choices)


class NotAssignable(Conflict):
    code, title = "not_assignable", "These rows cannot be given to this subject"


@dataclass(frozen=True, slots=True)
class Standing:
    """A category with rows of nobody: how many are `open`, how many were waived, and whether it was as a whole."""

    category: TableCategory
    open: int
    waived: int
    is_waived: bool

    @property
    def key(self) -> str:
        return self.category.key

    @property
    def title(self) -> str:
        return self.category.title


@dataclass(frozen=True, slots=True)
class Unowned:
    """One row of nobody. `why` says what the suggestion rests on: "identifier" or "link"."""

    id: UUID
    created_at: Any
    agent: str
    is_waived: bool
    suggestion: Subject | None
    why: str


def standing(*, tenant_id: UUID) -> list[Standing]:
    """Every category that has rows of nobody, the most open ones first."""
    waived = _waived(tenant_id)
    found = []
    for category in _categories():
        whole = "" in waived.get(category.key, ())
        rows = category.unowned(tenant_id=tenant_id)
        total = rows.count()
        done = total if whole else rows.filter(pk__in=waived[category.key]).count() if category.key in waived else 0
        if total:
            found.append(Standing(category, total - done, done, whole))
    return sorted(found, key=lambda one: (-one.open, one.key))


def open_rows(*, tenant_id: UUID) -> int:
    """Rows of the tenant that name nobody and that nobody has decided about."""
    others = (one for one in registry.categories().values() if not isinstance(one, TableCategory))
    return sum(one.open for one in standing(tenant_id=tenant_id)) + sum(one.unattributed(tenant_id=tenant_id) for one in others)


def category_of(key: str) -> TableCategory:
    """Raises NotFound for a category whose rows are not worked off one by one."""
    category = registry.get(key)
    if category not in _categories():
        raise NotFound("Rows of this category follow others, or always name somebody.")
    return category


def rows_of(*, tenant_id: UUID, category: TableCategory) -> QuerySet:
    """The category's rows of nobody, each with `agent_label` where it knows its agent."""
    rows = category.unowned(tenant_id=tenant_id)
    return rows.annotate(agent_label=F(category.agent_field)) if category.agent_field else rows


def described(*, tenant_id: UUID, category: TableCategory, rows: Iterable[Any]) -> list[Unowned]:
    """Rows as a page shows them, with whose they may be: by what names a person in them, or by a link of an author.

    Nothing of their content, and no more queries for many rows than for one.
    """
    rows = list(rows)
    waived, created = _waived(tenant_id).get(category.key, set()), category.ages.get("created", "created_at")
    found = _suggestions(tenant_id, category, rows)
    return [
        Unowned(
            row.pk, getattr(row, created, None), getattr(row, "agent_label", None) or "", bool({"", str(row.pk)} & waived),
            *found.get(row.pk, (None, "")),
        )
        for row in rows
    ]  # fmt: skip


def assign(*, category: str, ids: list[UUID], subject: Subject, by: Actor) -> dict[str, int]:
    """Give rows of nobody, with all that goes along, to a subject. Rows by category.

    Sessions take their forks along. Raises NotFound for a row that is gone or has a subject by now, NotAssignable while
    a run is at work there, for a subject that is not active, or where the subject has one of the same name.
    """
    by.require("subject.merge")
    if subject.tenant_id != by.tenant_id:
        raise NotFound
    kind = category_of(category)
    names = kind.family(tenant_id=by.tenant_id, ids=_checked(ids))
    try:
        return fences.alone([subject.pk], lambda: _assign(kind, names, subject, by))
    except IntegrityError:
        raise NotAssignable("The subject has such a row already. Merge or rename one of them first.") from None


@transaction.atomic
def waive(*, category: str, ids: list[UUID] | None = None, reason: str, by: Actor) -> int:
    """Let rows of nobody stay so, or the whole category with those to come. Returns how many rows are waived now."""
    by.require("subject.merge")
    kind = category_of(category)
    if reason not in REASONS:
        raise Invalid(errors={"reason": [f"Choose one of {', '.join(REASONS)}."]})
    found = _present(kind, by.tenant_id, _checked(ids)) if ids is not None else [""]
    UnattributedWaiver.objects.bulk_create(
        (
            UnattributedWaiver(
                tenant_id=by.tenant_id, category=category, row_id=str(one), reason=reason, waived_by=by.ref, waived_by_label=by.label
            )
            for one in found
        ),
        ignore_conflicts=True,
    )
    rows = len(found) if ids is not None else kind.unowned(tenant_id=by.tenant_id).count()
    audit.record(
        "unattributed.waived", by=by, object_type="category", object_ref=category, reason=reason, rows=rows, whole=ids is None
    )
    return rows


@transaction.atomic
def reopen(*, category: str, ids: list[UUID] | None = None, by: Actor) -> int:
    """Take waivers back: of rows, or the one of the whole category. Returns how many there were."""
    by.require("subject.merge")
    category_of(category)
    names = [str(one) for one in _checked(ids)] if ids is not None else [""]
    gone, _ = UnattributedWaiver.objects.filter(tenant_id=by.tenant_id, category=category, row_id__in=names).delete()
    audit.record("unattributed.reopened", by=by, object_type="category", object_ref=category, waivers=gone, whole=ids is None)
    return gone


def _assign(category: TableCategory, ids: list[UUID], subject: Subject, by: Actor) -> dict[str, int]:
    with fences.told():
        fences.enter(subject_ids=[subject.pk])
        if not Subject.objects.select_for_update(no_key=True).filter(pk=subject.pk, state=Subject.State.ACTIVE).exists():
            raise NotAssignable(f"{subject.display_ref} is not active.")
        rows = category.unowned(tenant_id=subject.tenant_id).filter(pk__in=ids).select_for_update(of=("self",))
        if len(list(rows)) != len(ids):
            raise NotFound("Some of these rows are gone, or belong to somebody by now.")
        idle = category.eligible.get("active_run")
        if idle is not None and category.unowned(tenant_id=subject.tenant_id).filter(idle, pk__in=ids).count() != len(ids):
            raise NotAssignable("A run is at work there. Try again when it has ended.")
        moved = groups.assign(
            category=category.key, tenant_id=subject.tenant_id, ids=ids, target=Scope(subject.tenant_id, subject.pk)
        )
    shredding.note_plain(tenant_id=subject.tenant_id)
    names = [str(one) for one in ids]
    UnattributedWaiver.objects.filter(tenant_id=subject.tenant_id, category=category.key, row_id__in=names).delete()
    audit.record(
        "subject.assigned", by=by, object_type="subject", object_ref=subject.pk, object_label=subject.display_ref,
        category=category.key, rows={key: rows for key, rows in moved.items() if rows},
    )  # fmt: skip
    return {key: rows for key, rows in moved.items() if rows}


def _suggestions(tenant_id: UUID, category: TableCategory, rows: list[Any]) -> dict[UUID, tuple[Subject, str]]:
    texts = {(row.pk, getattr(row, name)) for row in rows for name in category.named_in if getattr(row, name)}
    marks = {
        (kind, mark): row_id
        for row_id, text in texts
        for kind, value in candidates(text)
        for mark in crypto.identifier_hmacs(tenant_id=tenant_id, kind=kind, value=value)
    }
    named = SubjectIdentifier.objects.filter(
        tenant_id=tenant_id, value_hmac__in={mark for _, mark in marks}, subject__state=Subject.State.ACTIVE
    ).select_related("subject")
    found = {marks[key]: (one.subject, "identifier") for one in named if (key := (one.kind, bytes(one.value_hmac))) in marks}
    links = SubjectLink.objects.filter(
        tenant_id=tenant_id, category=category.key, role=SubjectLink.Role.AUTHOR, row_id__in=[str(row.pk) for row in rows]
    )
    authors = {link.row_id: link.subject_id for link in links}
    people = Subject.objects.in_bulk(authors.values())
    return found | {row.pk: (people[authors[str(row.pk)]], "link") for row in rows if authors.get(str(row.pk)) in people}


def _present(category: TableCategory, tenant_id: UUID, ids: list[UUID]) -> list[UUID]:
    found = list(category.unowned(tenant_id=tenant_id).filter(pk__in=ids).values_list("pk", flat=True))
    if len(found) != len(ids):
        raise NotFound("Some of these rows are gone, or belong to somebody by now.")
    return found


def _checked(ids: list[UUID]) -> list[UUID]:
    ids = list(dict.fromkeys(ids))
    if not 0 < len(ids) <= MOST:
        raise Invalid(errors={"ids": [f"Name 1 to {MOST} rows."]})
    return ids


def _categories() -> list[TableCategory]:
    """Those whose rows have one id, and may be without a subject."""
    return [
        category
        for category in registry.categories().values()
        if isinstance(category, TableCategory)
        and not category.ownerless
        and category.order == (category.model._meta.pk.column,)
        and category.model._meta.get_field(category.subject_field).null
    ]


def _waived(tenant_id: UUID) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for key, row_id in UnattributedWaiver.objects.filter(tenant_id=tenant_id).values_list("category", "row_id"):
        found.setdefault(key, set()).add(row_id)
    return found
