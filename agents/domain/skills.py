"""The life of a skill: a draft that is edited, versions that never change, one of them published. As with agents."""

import re
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Max
from django.db.models.functions import Now

from agents import queries, skills
from agents.definition.document import NAME
from agents.domain.definitions import MAX_NOTE, check_tenant
from agents.errors import SkillExists, SkillInUse, SkillInvalid
from agents.models import Agent, Skill, SkillVersion
from governance.actors import Actor
from governance.domain import audit
from governance.errors import NotFound, VersionConflict
from governance.text import clean

_SAVED = ["draft", "draft_counter", "draft_saved_by", "draft_saved_at"]


@transaction.atomic
def create_skill(*, tenant_id: UUID, name: str, document: Any, by: Actor) -> Skill:
    """A new skill with `document` as its draft: {"description", "instructions", "resources"}.

    Raises SkillInvalid by field and SkillExists.
    """
    check_tenant(tenant_id, by, "agents.write")
    if not isinstance(name, str) or len(name) > 64 or not re.fullmatch(NAME, name) or not name.strip("."):
        raise SkillInvalid(errors={"name": ["Use 1 to 64 letters, digits, dots, _ and -."]})
    skill = insert(tenant_id=tenant_id, name=name, draft=skills.read(document), by=by)
    _record("skill.created", skill, by)
    return skill


def insert(*, tenant_id: UUID, name: str, draft: dict, by: Actor) -> Skill:
    """The row of a new skill. Raises SkillExists, also when somebody else creates it at the same moment."""
    skill = Skill(tenant_id=tenant_id, name=name, draft=draft, draft_saved_by=by.label)
    try:
        with transaction.atomic():
            skill.save(force_insert=True)
    except IntegrityError:
        raise SkillExists(name) from None
    skill.refresh_from_db()
    return skill


@transaction.atomic
def save_draft(*, skill: Skill, document: Any, expected: int, by: Actor) -> Skill:
    """Store the draft. `expected` is the counter that the editor opened.

    Raises SkillInvalid, and VersionConflict when somebody saved meanwhile, with `current` and `yours` in `extra`.
    """
    draft = skills.read(document)
    locked = _locked(skill, by)
    if locked.draft_counter != expected:
        raise VersionConflict(current=_current(locked), yours=draft)
    if locked.draft != draft:
        Skill.objects.filter(pk=locked.pk).update(
            draft=draft, draft_counter=expected + 1, draft_saved_by=by.label, draft_saved_at=Now()
        )
        _record("skill.saved", locked, by, counter=expected + 1)
    skill.refresh_from_db(fields=_SAVED)
    return skill


@transaction.atomic
def publish(*, skill: Skill, note: str = "", by: Actor, expected: int | None = None) -> SkillVersion:
    """Make the draft an immutable version that runs use from now on. What is published already is returned as it is.

    Raises SkillInvalid when something is missing, and VersionConflict.
    """
    locked = _locked(skill, by)
    if expected is not None and locked.draft_counter != expected:
        raise VersionConflict(current=_current(locked))
    return _published(locked, skill, locked.draft, note=note, by=by, action="skill.published")


@transaction.atomic
def rollback(*, skill: Skill, number: int, note: str = "", by: Actor) -> SkillVersion:
    """Publish an earlier version again, as a new one. The draft stays as it is. Raises NotFound."""
    locked = _locked(skill, by)
    old = queries.skill_version(locked, number)
    note = note or f"Back to version {number}"
    return _published(locked, skill, old.document, note=note, by=by, action="skill.rolled_back", source=number)


def disable(*, skill: Skill, by: Actor) -> Skill:
    """No run opens it any more; agents that name it have a problem until they are published without it."""
    return _switch(skill, by, "skill.disabled", True)


def enable(*, skill: Skill, by: Actor) -> Skill:
    return _switch(skill, by, "skill.enabled", False)


@transaction.atomic
def delete_skill(*, skill: Skill, by: Actor) -> None:
    """Raises SkillInUse while the published version of an agent names it."""
    locked = _locked(skill, by)
    if agents := agents_using(locked):
        raise SkillInUse(locked.name, agents)
    _record("skill.deleted", locked, by, versions=locked.versions.count())
    locked.delete()


def agents_using(skill: Skill) -> list[str]:
    """Names of the agents whose published version names the skill."""
    found = Agent.objects.of(skill.tenant_id).filter(published__document__skills__contains=[skill.name])
    return list(found.order_by("name").values_list("name", flat=True))


def add_version(*, skill: Skill, document: dict, note: str, by: Actor) -> SkillVersion:
    """The next version of a locked skill, published at once."""
    number = (skill.versions.aggregate(last=Max("number"))["last"] or 0) + 1
    version = SkillVersion.objects.create(
        skill=skill, tenant_id=skill.tenant_id, number=number, document=document, digest=skills.digest(document),
        note=clean(note)[:MAX_NOTE], published_by=by.label,
    )  # fmt: skip
    version.refresh_from_db(fields=["created_at"])
    Skill.objects.filter(pk=skill.pk).update(published=version)
    skill.published = version
    return version


def _published(locked: Skill, skill: Skill, document: dict, *, note: str, by: Actor, action: str, **payload) -> SkillVersion:
    if problems := skills.problems_of_publishing(document):
        raise SkillInvalid(errors=problems)
    if locked.published is not None and locked.published.digest == skills.digest(document):
        return locked.published
    version = add_version(skill=locked, document=document, note=note, by=by)
    # The caller's object tells the truth as well.
    skill.published = version
    _record(action, locked, by, version=version.number, **payload)
    return version


@transaction.atomic
def _switch(skill: Skill, by: Actor, action: str, value: bool) -> Skill:
    check_tenant(skill.tenant_id, by, "agents.write")
    rows = Skill.objects.filter(pk=skill.pk, tenant_id=by.tenant_id)
    changed = rows.filter(is_disabled=not value).update(is_disabled=value)
    if not changed and not rows.exists():
        raise NotFound
    skill.is_disabled = value
    if changed:
        _record(action, skill, by)
    return skill


def _locked(skill: Skill, by: Actor) -> Skill:
    check_tenant(skill.tenant_id, by, "agents.write")
    locked = Skill.objects.select_for_update().filter(pk=skill.pk, tenant_id=by.tenant_id).first()
    if locked is None:
        raise NotFound
    return locked


def _current(skill: Skill) -> dict:
    return {
        "counter": skill.draft_counter,
        "saved_by": skill.draft_saved_by,
        "saved_at": skill.draft_saved_at.isoformat(),
        "document": skill.draft,
    }


def _record(action: str, skill: Skill, by: Actor, **payload: Any) -> None:
    audit.record(action, by=by, object_type="skill", object_ref=skill.pk, object_label=skill.name, **payload)
