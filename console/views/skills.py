"""Skills: the list, one skill with its versions, editing the draft, publishing, comparing and going back."""

from django.contrib import messages
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from agents import queries
from agents.domain import diffs, skills
from console.access import may, skill_for
from console.forms.base import tell
from console.forms.skills import PublishSkillForm, ResourceFormSet, SkillForm
from governance.errors import LetheError, VersionConflict

VERSIONS = 50


@require_GET
@may("agents.read")
def skill_list(request):
    words = request.GET.get("q", "").strip()
    found = queries.skills_of(request.tenant.pk)
    if words:
        found = found.filter(name__icontains=words)
    context = {"skills": found, "q": request.GET.get("q", "")}
    return render(request, "console/skills.html#table" if request.htmx else "console/skills.html", context)


@require_GET
def skill_detail(request, name):
    return render(request, "console/skill.html", _about(request, skill_for(request, name)))


def _about(request, skill, form=None) -> dict:
    published = skill.published
    changes = diffs.diff(published.document, skill.draft) if published else []
    return {
        "skill": skill,
        "document": published.document if published else skill.draft,
        "changes": changes,
        "is_changed": published is None or bool(changes),
        "versions": list(skill.versions.defer("document")[:VERSIONS]),
        "used_by": skills.agents_using(skill),
        "form": form or PublishSkillForm(initial={"counter": skill.draft_counter}),
    }


@require_http_methods(["GET", "POST"])
@may("agents.write")
def skill_new(request):
    return _edit(request, None)


@require_http_methods(["GET", "POST"])
def skill_edit(request, name):
    return _edit(request, skill_for(request, name, "agents.write"))


def _edit(request, skill):
    posted = request.POST or None
    draft = skill.draft if skill else {}
    initial = {**draft, "counter": skill.draft_counter if skill else 0}
    form = SkillForm(posted, skill=skill, initial=initial)
    resources = ResourceFormSet(posted, prefix="resources", initial=draft.get("resources") if not posted else None)
    if request.method == "POST" and form.is_valid() and resources.is_valid():
        try:
            saved = _save(form.cleaned_data, resources.entries(), skill, by=request.actor)
        except VersionConflict as error:
            current = error.extra["current"]
            context = {"form": form, "resources": resources, "skill": skill, "theirs": current, "yours": error.extra["yours"]}
            return render(request, "console/skill_edit.html", context, status=409)
        except LetheError as error:
            tell(form, error)
        else:
            messages.success(request, _("%s was saved as a draft.") % saved.name)
            return redirect("skill", saved.name)
    return render(request, "console/skill_edit.html", {"form": form, "resources": resources, "skill": skill}, status=422 if form.is_bound else 200)


def _save(data, resources, skill, *, by):
    document = {name: data[name].replace("\r\n", "\n") for name in ("description", "instructions") if data[name]}
    if resources:
        document["resources"] = resources
    if skill is None:
        return skills.create_skill(tenant_id=by.tenant_id, name=data["name"], document=document, by=by)
    return skills.save_draft(skill=skill, document=document, expected=data["counter"] or 0, by=by)


@require_POST
def skill_publish(request, name):
    skill = skill_for(request, name, "agents.write")
    form = PublishSkillForm(request.POST)
    if form.is_valid():
        try:
            version = skills.publish(skill=skill, note=form.cleaned_data["note"], expected=form.cleaned_data["counter"], by=request.actor)
        except LetheError as error:
            tell(form, error)
        else:
            messages.success(request, _("Version %d is published. Runs that begin from now on use it.") % version.number)
            return redirect("skill", name)
    return render(request, "console/skill.html", _about(request, skill, form), status=422)


@require_GET
def skill_version(request, name, number):
    skill = skill_for(request, name)
    version = queries.skill_version(skill, number)
    current = skill.published
    changes = diffs.diff(version.document, current.document) if current and current != version else []
    context = {"skill": skill, "version": version, "document": version.document, "is_published": version == current, "changes": changes}
    return render(request, "console/skill_version.html", context)


@require_POST
def skill_rollback(request, name, number):
    skill = skill_for(request, name, "agents.write")
    version = skills.rollback(skill=skill, number=number, by=request.actor)
    messages.success(request, _("Version %(old)d is published again, as version %(new)d.") % {"old": number, "new": version.number})
    return redirect("skill", name)


@require_POST
def skill_switch(request, name, verb):
    skill = skill_for(request, name, "agents.write")
    getattr(skills, verb)(skill=skill, by=request.actor)
    messages.success(request, {"disable": _("%s is switched off."), "enable": _("%s is switched on.")}[verb] % skill.name)
    return redirect("skill", name)


@require_POST
def skill_delete(request, name):
    skill = skill_for(request, name, "agents.write")
    try:
        skills.delete_skill(skill=skill, by=request.actor)
    except LetheError as error:
        messages.error(request, error.detail)
        return redirect("skill", name)
    messages.success(request, _("%s was deleted.") % name)
    return redirect("skills")
