"""What was derived from what: written with the derived row, followed by erasures, and kept free of loose ends."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from governance.domain import clock, fences, registry
from governance.domain.category import Ref
from governance.errors import SubjectFenced
from governance.models import Lineage

_SWEPT = 500


@dataclass(frozen=True, slots=True)
class Source:
    """A row that something was derived from, and whose it is."""

    ref: Ref
    subject_id: UUID | None


def record(
    *, tenant_id: UUID, child: Ref, subject_id: UUID | None, sources: Iterable[Source], method: str, model: str = ""
) -> None:
    """Note all sources of a derived row in the transaction that writes it, in place of those noted before.

    Takes part as a writer for everybody concerned: raises SubjectFenced when one of them is being erased. Raises
    ValueError without sources: text that comes from nowhere could not follow anything.
    """
    sources = list(sources)
    if not sources:
        raise ValueError("A derived row has at least one source.")
    fences.enter(subject_ids={source.subject_id for source in sources if source.subject_id} | ({subject_id} - {None}))
    of_child = Lineage.objects.filter(tenant_id=tenant_id, child_category=child.category, child_id=child.row_id)
    of_child.delete()
    Lineage.objects.bulk_create(
        Lineage(
            tenant_id=tenant_id, subject_id=subject_id, child_category=child.category, child_id=child.row_id,
            parent_category=source.ref.category, parent_id=source.ref.row_id, parent_subject_id=source.subject_id,
            method=method, model=model,
        )
        for source in sources
    )  # fmt: skip


def edges(tenant_id: UUID, where: Q) -> list[Lineage]:
    return list(Lineage.objects.filter(where, tenant_id=tenant_id).order_by("id"))


def of_children(tenant_id: UUID, refs: Iterable[Ref]) -> list[Lineage]:
    """Every source of these rows."""
    return [edge for part in _by_category(refs) for edge in edges(tenant_id, Q(child_category=part[0], child_id__in=part[1]))]


def of_parents(tenant_id: UUID, refs: Iterable[Ref]) -> list[Lineage]:
    """Everything that was derived from these rows."""
    return [edge for part in _by_category(refs) for edge in edges(tenant_id, Q(parent_category=part[0], parent_id__in=part[1]))]


def alive(tenant_id: UUID, refs: Iterable[Ref], *, not_of: UUID | None = None) -> set[Ref]:
    """Those of the rows that are still there; with `not_of`, without that subject's own."""
    found = set()
    for key, ids in _by_category(refs):
        if key in registry.categories():
            found |= {Ref(key, row_id) for row_id in registry.get(key).alive(tenant_id=tenant_id, ids=ids, not_of=not_of)}
    return found


def sweep() -> int:
    """Follow what ordinary deletes and retention took: a derived row without a living source goes, and so does lineage of
    rows that are gone. Looks at some rows each time, those first that were not looked at for longest. Returns how many
    derived rows were deleted.
    """
    oldest = list(Lineage.objects.order_by("checked_at")[:_SWEPT])
    Lineage.objects.filter(pk__in=[edge.pk for edge in oldest]).update(checked_at=clock.ClockTime())
    deleted = 0
    for tenant_id, child in sorted({(edge.tenant_id, child_of(edge)) for edge in oldest}, key=str):
        # Rows of a fenced subject are somebody else's business; they are looked at again.
        with suppress(SubjectFenced):
            deleted += _follow(tenant_id, child)
    return deleted


def _follow(tenant_id: UUID, child: Ref) -> int:
    found = of_children(tenant_id, [child])
    is_there = bool(alive(tenant_id, [child]))
    if is_there and alive(tenant_id, {parent_of(edge) for edge in found}):
        return 0
    with transaction.atomic(), fences.told():
        deleted = registry.get(child.category).delete_rows(tenant_id=tenant_id, ids=[child.row_id]) if is_there else 0
        Lineage.objects.filter(pk__in=[edge.pk for edge in found]).delete()
    return deleted


def child_of(edge: Lineage) -> Ref:
    return Ref(edge.child_category, edge.child_id)


def parent_of(edge: Lineage) -> Ref:
    return Ref(edge.parent_category, edge.parent_id)


def _by_category(refs: Iterable[Ref]) -> Iterator[tuple[str, list[str]]]:
    grouped: dict[str, list[str]] = {}
    for ref in refs:
        grouped.setdefault(ref.category, []).append(ref.row_id)
    yield from sorted((key, sorted(ids)) for key, ids in grouped.items())
