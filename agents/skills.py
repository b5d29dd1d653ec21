"""What a skill is made of, and how it is read."""

import hashlib
from typing import Annotated, Any

from pydantic import StringConstraints, ValidationError

from agents.definition.base import Part, setting
from agents.definition.reading import canonical, check_shape
from agents.errors import DefinitionUnreadable, SkillInvalid
from governance.text import clean_json

MAX_RESOURCES = 20
MAX_INSTRUCTIONS = 50_000
MAX_RESOURCE = 65_536
ResourceName = Annotated[
    str, StringConstraints(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$")
]


class Resource(Part):
    """A text that belongs to a skill and is read when it is needed."""

    name: ResourceName = setting(title="Name", about="How the instructions speak of it, for example forms/claim.md.")
    description: str = setting("", title="Description", about="What is in it.", max_length=500)
    text: str = setting("", title="Text", about="What the agent reads.", kind="long_text", max_length=MAX_RESOURCE)


class SkillDocument(Part):
    """A skill without its name."""

    description: str = setting(
        "", title="Description", about="When to use it: the agent sees only this until it opens the skill.", max_length=1000
    )
    instructions: str = setting(
        "", title="Instructions", about="How the task is done, step by step.", kind="long_text", max_length=MAX_INSTRUCTIONS
    )
    resources: list[Resource] = setting(
        list, title="Resources", about="Texts that the instructions refer to.", max_length=MAX_RESOURCES
    )


def read(document: Any) -> dict:
    """The document in one spelling, defaults left out. Raises SkillInvalid with the problems by path."""
    try:
        check_shape(document)
        found = SkillDocument.model_validate(clean_json(document))
    except DefinitionUnreadable as error:
        raise SkillInvalid(error.detail.replace("The definition", "The skill").replace("A definition", "A skill")) from None
    except ValidationError as error:
        raise SkillInvalid(errors=_problems(error)) from None
    names = [resource.name for resource in found.resources]
    twice = {f"resources.{at}.name": ["This name is used twice."] for at, name in enumerate(names) if name in names[:at]}
    if twice:
        raise SkillInvalid(errors=twice)
    return found.model_dump(mode="json", exclude_defaults=True)


def problems_of_publishing(document: dict) -> dict[str, list[str]]:
    """What a skill lacks before an agent can use it, by path."""
    found = {}
    if not document.get("description", "").strip():
        found["description"] = ["Say when the skill is to be used: without this no agent opens it."]
    if not document.get("instructions", "").strip():
        found["instructions"] = ["Say how the task is done."]
    return found


def digest(document: dict) -> str:
    """SHA-256 over the canonical text of a document that was read, as hex."""
    return hashlib.sha256(canonical(document).encode()).hexdigest()


def _problems(error: ValidationError) -> dict[str, list[str]]:
    errors: dict[str, list[str]] = {}
    for detail in error.errors(include_url=False)[:50]:
        path = ".".join(str(step) for step in detail["loc"])
        sentence = "Letters, digits, dots, _ and -, in folders if you like." if detail["type"] == "string_pattern_mismatch" else f"{detail['msg']}."
        errors.setdefault(path, []).append(sentence)
    return errors
