from rest_framework import serializers

from agents import skills
from console.api.serializers.agents import AgentVersionSummary
from console.api.serializers.base import Id, JsonObject, Name, Output, Strict, Text, Time


class Resource(Strict):
    name = Name(max_length=100, help_text="How the instructions speak of it, for example `forms/claim.md`.")
    description = Text(required=False, allow_blank=True, max_length=500)
    text = Text(required=False, allow_blank=True, max_length=skills.MAX_RESOURCE)


class SkillText(Strict):
    """The draft of a skill; what is not sent is empty."""

    description = Text(required=False, allow_blank=True, max_length=1000, help_text="When to use it. The agent sees only this until it opens the skill.")
    instructions = Text(required=False, allow_blank=True, max_length=skills.MAX_INSTRUCTIONS, help_text="How the task is done.")
    resources = Resource(many=True, required=False)


class SkillBody(SkillText):
    name = Name(max_length=64)


class SkillSummary(Output):
    """A skill without its texts."""

    id = Id("skl")
    name = serializers.CharField()
    description = serializers.SerializerMethodField(help_text="Of the published version; of the draft while there is none.")
    is_disabled = serializers.BooleanField()
    published_version = serializers.IntegerField(source="published.number", default=None, allow_null=True)
    draft_counter = serializers.IntegerField(help_text="Rises with every save of the draft; the number in the ETag.")
    draft_saved_at = Time()
    draft_saved_by = serializers.CharField()
    created_at = Time()

    def get_description(self, skill) -> str:
        document = skill.published.document if skill.published else skill.draft
        return document.get("description", "")


class Skill(SkillSummary):
    """A skill with its draft."""

    draft = JsonObject(help_text="{description, instructions, resources: [{name, description, text}]}")


class SkillVersionSummary(AgentVersionSummary):
    digest = serializers.CharField(help_text="SHA-256 of the canonical document.")


class SkillVersion(SkillVersionSummary):
    document = JsonObject(help_text="{description, instructions, resources}")
