"""Skills: ways of working that agents open when they need them."""

from agents import queries
from agents.domain import skills
from agents.models import SkillVersion
from console.api import etag
from console.api.endpoint import Endpoint
from console.api.operations import operation
from console.api.schema import IF_MATCH, IF_MATCH_OPTIONAL
from console.api.serializers import skills as shapes
from console.api.serializers.agents import PublishBody, RollbackBody
from console.api.views.agents import version_number
from console.api.views.responses import json_answer, not_modified


class SkillEndpoint(Endpoint):
    tag = "Skills"
    path_help = {"name": "The skill's name.", "number": "Number of a version."}

    def skill(self, name):
        return queries.skill_named(tenant_id=self.tenant_id, name=name)


class Skills(SkillEndpoint):
    permission = {"GET": "agents.read", "POST": "agents.write"}

    @operation("List skills", answer=shapes.SkillSummary, order=("name",))
    def get(self, request):
        return queries.skills_of(self.tenant_id)

    @operation("Create a skill", body=shapes.SkillBody, answer=shapes.Skill, status=201, errors=(409, 422))
    def post(self, request):
        """What is sent becomes the draft. Agents can use the skill once it is published."""
        document = dict(self.data)
        skill = skills.create_skill(tenant_id=self.tenant_id, name=document.pop("name"), document=document, by=self.actor)
        self.headers["Location"] = f"/api/skills/{skill.name}"
        self.headers["ETag"] = etag.tag(skill.draft_counter)
        return skill


class Skill(SkillEndpoint):
    permission = {"GET": "agents.read", "PUT": "agents.write", "DELETE": "agents.write"}

    @operation("Read a skill", answer=shapes.Skill)
    def get(self, request, name):
        """The skill with its draft. The ETag is what saving the draft expects as `If-Match`."""
        skill = self.skill(name)
        self.headers["ETag"] = etag.tag(skill.draft_counter)
        return not_modified() if etag.is_fresh(request, skill.draft_counter) else skill

    @operation("Save the draft of a skill", body=shapes.SkillText, answer=shapes.Skill, parameters=(IF_MATCH,), errors=(409, 422, 428))
    def put(self, request, name):
        """Replace the draft. When somebody else saved first: 409 `version_conflict` with both texts."""
        skill = self.skill(name)
        expected = etag.expected(request, current=skill.draft_counter)
        saved = skills.save_draft(skill=skill, document=dict(self.data), expected=expected, by=self.actor)
        self.headers["ETag"] = etag.tag(saved.draft_counter)
        return saved

    @operation("Delete a skill", errors=(409,))
    def delete(self, request, name):
        """Refused while a published agent uses it."""
        skills.delete_skill(skill=self.skill(name), by=self.actor)


class SkillChange(SkillEndpoint):
    permission = {"POST": "agents.write"}


class Publish(SkillChange):
    @operation(
        "Publish the draft of a skill",
        body=PublishBody,
        answer=shapes.SkillVersion,
        answers={(201, "application/json"): shapes.SkillVersion, (200, "application/json"): shapes.SkillVersion},
        parameters=(IF_MATCH_OPTIONAL,),
        errors=(409, 422),
    )
    def post(self, request, name):
        """Make the draft an immutable version; runs that begin from now on use it. Nothing changed: 200."""
        skill = self.skill(name)
        before = skill.published
        expected = etag.expected(request, current=skill.draft_counter) if "If-Match" in request.headers else None
        version = skills.publish(skill=skill, note=self.data["note"], expected=expected, by=self.actor)
        return json_answer(shapes.SkillVersion(version).data, status=200 if version == before else 201)


class Rollback(SkillChange):
    @operation("Publish an earlier version of a skill", body=RollbackBody, answer=shapes.SkillVersion, status=201, errors=(409, 422))
    def post(self, request, name):
        return skills.rollback(skill=self.skill(name), number=self.data["number"], note=self.data["note"], by=self.actor)


class Disable(SkillChange):
    @operation("Disable a skill", answer=shapes.SkillSummary)
    def post(self, request, name):
        """Agents that name it cannot run until it is enabled, or they are published without it."""
        return skills.disable(skill=self.skill(name), by=self.actor)


class Enable(SkillChange):
    @operation("Enable a skill", answer=shapes.SkillSummary)
    def post(self, request, name):
        return skills.enable(skill=self.skill(name), by=self.actor)


class Versions(SkillEndpoint):
    permission = {"GET": "agents.read"}

    @operation("List versions of a skill", answer=shapes.SkillVersionSummary, order=("-number",))
    def get(self, request, name):
        return SkillVersion.objects.filter(skill=self.skill(name), tenant_id=self.tenant_id).defer("document")


class Version(SkillEndpoint):
    permission = {"GET": "agents.read"}

    @operation("Read a version of a skill", answer=shapes.SkillVersion)
    def get(self, request, name, number):
        return queries.skill_version(self.skill(name), version_number(number))
