"""The people that data is about, and what names them."""

from uuid import UUID

from django.db import IntegrityError, transaction

from governance import crypto, queries
from governance.actors import Actor
from governance.domain import audit, fences
from governance.errors import AmbiguousIdentifier, Conflict, NotFound
from governance.identifiers import VERSIONS, normalise
from governance.models import Subject, SubjectIdentifier

_NAMED = """
SELECT s.id, s.tenant_id, s.epoch, s.state, s.display_ref, s.created_at
FROM governance_subject s JOIN governance_subjectidentifier i ON i.subject_id = s.id
WHERE i.tenant_id = %s AND i.kind = %s AND i.value_hmac = %s
"""


def resolve(*, tenant_id: UUID, value: str, kind: str = "external", source: str = "api") -> Subject:
    """The subject that `value` names, made at its first appearance. One query when it exists.

    Two callers who bring the same new value at the same time get the same subject. Raises Invalid for what cannot be
    an identifier of that kind.
    """
    value = normalise(kind, value)
    mark = crypto.identifier_hmac(tenant_id=tenant_id, kind=kind, value=value)
    found = _named(tenant_id, kind, value)
    if found is not None:
        return found
    try:
        with transaction.atomic():
            subject = Subject.objects.create(tenant_id=tenant_id)
            _name(subject, kind, value, mark, source)
            return subject
    except IntegrityError:
        # Somebody else was first. Their transaction has committed: the unique index made us wait for it.
        return _named(tenant_id, kind, value) or resolve(tenant_id=tenant_id, value=value, kind=kind, source=source)


def find(*, tenant_id: UUID, value: str, kind: str = "external") -> Subject | None:
    """The subject that `value` names, if there is one."""
    return _named(tenant_id, kind, normalise(kind, value))


@transaction.atomic
def search(*, tenant_id: UUID, q: str, by: Actor) -> list[Subject]:
    """Subjects that `q` names exactly: by an identifier of any kind, by id or by display reference.

    Audited, with the number of matches and without the question.
    """
    by.require("subject.search")
    found = queries.subjects_named(tenant_id, q)
    audit.record("subject.searched", by=by, object_type="subject", matches=len(found))
    return found


@transaction.atomic
def add_identifier(*, subject: Subject, kind: str, value: str, source: str = "console", by: Actor) -> SubjectIdentifier:
    """Let one more identifier name the subject. Raises AmbiguousIdentifier when it already names somebody else."""
    by.require("subject.search")
    if subject.tenant_id != by.tenant_id:
        raise NotFound
    fences.check(subject=subject)
    value = normalise(kind, value)
    mark = crypto.identifier_hmac(tenant_id=subject.tenant_id, kind=kind, value=value)
    if (present := _named_as(subject, kind, value)) is not None:
        return present
    try:
        with transaction.atomic(), fences.told():
            identifier = _name(subject, kind, value, mark, source)
    except IntegrityError:
        # Somebody else wrote it at the same moment.
        if (present := _named_as(subject, kind, value)) is not None:
            return present
        raise _ambiguous(subject, None) from None
    audit.record(
        "subject.identifier_added", by=by, object_type="subject", object_ref=subject.id, object_label=subject.display_ref,
        kind=kind,
    )  # fmt: skip
    return identifier


def name(*, subject: Subject, kind: str, value: str, source: str) -> bool:
    """Let `value` name the subject, inside the caller's transaction. Raises AmbiguousIdentifier when it names another."""
    value = normalise(kind, value)
    mark = crypto.identifier_hmac(tenant_id=subject.tenant_id, kind=kind, value=value)
    other = _named(subject.tenant_id, kind, value)
    if other is not None:
        raise _ambiguous(subject, other)
    _name(subject, kind, value, mark, source)
    return True


@transaction.atomic
def correct_identifier(*, identifier: SubjectIdentifier, value: str, by: Actor) -> SubjectIdentifier:
    """Give an identifier its right value. Raises AmbiguousIdentifier when that names somebody, SubjectFenced."""
    by.require("subject.rectify")
    if identifier.tenant_id != by.tenant_id:
        raise NotFound
    subject = identifier.subject
    fences.check(subject=subject)
    value = normalise(identifier.kind, value)
    mark = crypto.identifier_hmac(tenant_id=subject.tenant_id, kind=identifier.kind, value=value)
    other = _named(subject.tenant_id, identifier.kind, value)
    if other is not None and other.id != subject.id:
        raise _ambiguous(subject, other)
    if other is not None:
        raise Conflict("This subject has this identifier already.")
    identifier.value_hmac, identifier.verified_at, identifier.source = mark, None, "correction"
    context = _context(subject, identifier.kind)
    identifier.value_enc = crypto.encrypt(value.encode(), tenant_id=subject.tenant_id, context=context)
    try:
        with transaction.atomic(), fences.told():
            identifier.save(update_fields=["value_hmac", "value_enc", "verified_at", "source"])
    except IntegrityError:
        # Somebody else was named like this at the same moment.
        raise _ambiguous(subject, None) from None
    audit.record(
        "subject.identifier_corrected", by=by, object_type="subject", object_ref=subject.id,
        object_label=subject.display_ref, kind=identifier.kind,
    )  # fmt: skip
    return identifier


def identifiers_of(*, subject: Subject) -> list[tuple[str, str]]:
    """(kind, value) pairs, decrypted. Reading them is reading personal data: audit it where a person asked."""
    return [
        (identifier.kind, _value(identifier))
        for identifier in SubjectIdentifier.objects.filter(tenant_id=subject.tenant_id, subject=subject).order_by("id")
    ]


def _named_as(subject: Subject, kind: str, value: str) -> SubjectIdentifier | None:
    """The identifier that names the subject so already. Raises AmbiguousIdentifier when it names somebody else."""
    marks = crypto.identifier_hmacs(tenant_id=subject.tenant_id, kind=kind, value=value)
    found = SubjectIdentifier.objects.filter(tenant_id=subject.tenant_id, kind=kind, value_hmac__in=marks).first()
    if found is not None and found.subject_id != subject.id:
        raise _ambiguous(subject, found.subject)
    return found


def _named(tenant_id: UUID, kind: str, value: str) -> Subject | None:
    # On the path of every call that asserts a subject; spelled out, it costs a third of the same query built by the ORM.
    for mark in crypto.identifier_hmacs(tenant_id=tenant_id, kind=kind, value=value):
        if (found := next(iter(Subject.objects.raw(_NAMED, [tenant_id, kind, mark])), None)) is not None:
            return found
    return None


def _name(subject: Subject, kind: str, value: str, mark: bytes, source: str) -> SubjectIdentifier:
    return SubjectIdentifier.objects.create(
        tenant_id=subject.tenant_id,
        subject=subject,
        kind=kind,
        value_hmac=mark,
        norm_version=VERSIONS[kind],
        value_enc=crypto.encrypt(value.encode(), tenant_id=subject.tenant_id, context=_context(subject, kind)),
        source=source,
    )


def _ambiguous(subject: Subject, other: Subject | None) -> AmbiguousIdentifier:
    refs = sorted({subject.display_ref, *([other.display_ref] if other else [])})
    return AmbiguousIdentifier(f"This identifier names more than one subject: {' and '.join(refs)}.", subjects=refs)


def _value(identifier: SubjectIdentifier) -> str:
    context = f"identifier|{identifier.subject_id}|{identifier.kind}"
    return crypto.decrypt(identifier.value_enc, tenant_id=identifier.tenant_id, context=context).decode()


def _context(subject: Subject, kind: str) -> str:
    return f"identifier|{subject.id}|{kind}"
