"""Sessions: the list, the transcript of one, and what can be done with it."""

import json
import secrets

from django import forms
from django.contrib import messages
from django.db import transaction
from django.db.models import Count
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_GET, require_POST

from console import access, reading, turns
from console.listing import (
    FilterForm,
    agent_field,
    choice_field,
    date_field,
    listing,
    render_list,
    search_field,
    subject_field,
    text_field,
)
from governance.domain import audit
from governance.domain.expiry import left
from governance.errors import LetheError, NotFound, VersionConflict
from governance.ids import shown
from sessions import queries
from sessions.domain import blobs, compacting, todos, transcripts, workspace
from sessions.domain import sessions as session_verbs
from sessions.errors import SessionBusy
from sessions.models import Aggregation, Approval, Blob, Item, Session, Summary, WorkspaceFile

# Files that the session's page lists; the others are on their own.
FILES = 12
STATES = (("open", gettext_lazy("open")), ("closed", gettext_lazy("closed")), ("archived", gettext_lazy("archived")))


class SessionFilters(FilterForm):
    q = search_field(gettext_lazy("Title or key contains"))
    agent = agent_field()
    state = choice_field(gettext_lazy("State"), STATES, gettext_lazy("Open and closed"))
    label = text_field(gettext_lazy("Label"), max_length=64)
    subject = subject_field()
    active_from = date_field(gettext_lazy("Active from"))
    active_to = date_field(gettext_lazy("To"))

    def rows(self):
        """The sessions that match, or None when a filter is not valid."""
        if not self.is_valid():
            return None
        given = self.cleaned_data
        state = given["state"]
        return queries.sessions_of(
            self.request.tenant.pk,
            q=given["q"] or None,
            agent=given["agent"] or None,
            state=state if state in Session.State.values else None,
            archived=state == "archived",
            label=given["label"] or None,
            subject_id=given["subject"].id if given["subject"] else None,
            active_after=self.day_start("active_from"),
            active_before=self.day_end("active_to"),
        )


class DetailsForm(forms.Form):
    title = forms.CharField(label=gettext_lazy("Title"), required=False, max_length=200, help_text=gettext_lazy("Shown instead of the key."))
    labels = forms.CharField(label=gettext_lazy("Labels"), required=False, help_text=gettext_lazy("Separated by commas, at most 20."))

    def clean_labels(self):
        return [label.strip() for label in self.cleaned_data["labels"].split(",") if label.strip()]


class TodosForm(forms.Form):
    """The session's list as it was when the page was made, each todo with a title and a mark of its own."""

    seen = forms.CharField(widget=forms.HiddenInput)
    new = forms.CharField(
        label=gettext_lazy("Add"), required=False, help_text=gettext_lazy("One a line."), widget=forms.Textarea(attrs={"rows": 3})
    )

    def __init__(self, agent_session, data=None):
        self.numbers = [todo["id"] for todo in todos.todos_of(agent_session)]
        super().__init__(data, auto_id="todos-%s", initial={"seen": todos.digest(todos.todos_of(agent_session))})
        for todo in todos.todos_of(agent_session):
            number, title = todo["id"], todo["title"]
            done = forms.CheckboxInput(attrs={"aria-label": _("Done: %(title)s") % {"title": title}})
            text = forms.TextInput(attrs={"aria-label": _("Todo %(number)s") % {"number": number}, "autocomplete": "off", "class": "input"})
            self.fields[f"done-{number}"] = forms.BooleanField(required=False, initial=todo["done"], widget=done)
            self.fields[f"title-{number}"] = forms.CharField(required=False, initial=title, widget=text)

    @property
    def rows(self):
        """Pairs of a mark and a title."""
        return [(self[f"done-{number}"], self[f"title-{number}"]) for number in self.numbers]

    def changed(self) -> dict[int, tuple[str, bool]]:
        given = self.cleaned_data
        return {number: (given[f"title-{number}"], given[f"done-{number}"]) for number in self.numbers}


class ForkForm(forms.Form):
    key = forms.CharField(label=gettext_lazy("Key of the new session"), min_length=1, max_length=200)
    at_seq = forms.IntegerField(min_value=1, required=False, widget=forms.HiddenInput)


@require_GET
@access.may("sessions.read")
def sessions(request):
    form = SessionFilters(request)
    found = listing(request, form, form.rows(), order=("-last_active_at", "-id"))
    return render_list(request, "sessions/list.html", form, {"listing": found})


@require_GET
def session(request, ref):
    agent_session = access.session_for(request, ref)
    before = request.GET.get("before")
    transcript = reading.transcript(agent_session, before=before, after=request.GET.get("after"))
    audit.record("content.read", by=request.actor, object_type="session", object_ref=shown("ses", agent_session.id))
    if request.htmx and before:
        return render(request, "sessions/detail.html#older", {"agent_session": agent_session, "transcript": transcript})
    response = render(request, "sessions/detail.html", _detail(request, agent_session, transcript))
    if "watch" in request.GET and transcript.is_live:
        # Without a script the page shows the run by loading itself again until it is over.
        response["Refresh"] = "2"
    return response


def _detail(request, agent_session, transcript, **forms_given) -> dict:
    chosen = transcript.newest_run
    if request.GET.get("run"):
        chosen = access.run_for(request, request.GET["run"])
        if chosen.session_id != agent_session.id and chosen.id not in {block.run_id for block in transcript.blocks}:
            raise NotFound
    return {
        "agent_session": agent_session,
        "transcript": transcript,
        "report": reading.report(chosen),
        "parent": _parent(agent_session),
        "forks": list(queries.forks_of(agent_session)[:20]),
        "goes": _what_goes(agent_session),
        **_workspace(agent_session),
        "summaries": list(queries.summaries_of(agent_session)[:6]),
        "details_form": DetailsForm(initial={"title": agent_session.title, "labels": ", ".join(agent_session.labels)}, auto_id="details-%s"),
        "fork_form": ForkForm(initial={"key": fork_key(agent_session.key)}, auto_id="fork-%s"),
        "is_busy": agent_session.lease_run_id is not None,
        "todos_form": TodosForm(agent_session),
        "keeps_todos": todos.are_shown(agent_session),
        "may_decide": request.actor.may("approvals.decide"),
        **forms_given,
    }


def _workspace(agent_session) -> dict:
    found = workspace.files(session=agent_session)
    return {"files": found[:FILES], "more_files": max(len(found) - FILES, 0)}


def _parent(agent_session) -> Session | None:
    if agent_session.forked_from is None:
        return None
    parent = Session.objects.filter(tenant_id=agent_session.tenant_id, pk=agent_session.forked_from)
    return left(parent, tenant_id=agent_session.tenant_id).only("id", "key", "title").first()


def _what_goes(agent_session) -> list[tuple[int, str]]:
    """What a deletion takes along: (count, noun)."""
    counts = Session.objects.filter(pk=agent_session.pk).aggregate(runs=Count("runs"))
    counts["items"] = Item.objects.filter(session_id=agent_session.pk).count()
    counts["files"] = Blob.objects.filter(session_id=agent_session.pk).count()
    counts["workspace"] = WorkspaceFile.objects.filter(session_id=agent_session.pk).count()
    counts["summaries"] = Summary.objects.filter(session_id=agent_session.pk).count()
    counts["written"] = Aggregation.objects.filter(session_id=agent_session.pk, file_id__isnull=False).count()
    counts["approvals"] = Approval.objects.filter(session_id=agent_session.pk).count()
    nouns = (
        (counts["items"], ngettext("item of history", "items of history", counts["items"])),
        (counts["runs"], ngettext("run with its events and costs", "runs with their events and costs", counts["runs"])),
        (counts["files"], ngettext("attachment", "attachments", counts["files"])),
        (counts["workspace"], ngettext("file of its workspace", "files of its workspace", counts["workspace"])),
        (counts["summaries"], ngettext("summary", "summaries", counts["summaries"])),
        (counts["written"], ngettext("file that was written of it", "files that were written of it", counts["written"])),
        (counts["approvals"], ngettext("approval", "approvals", counts["approvals"])),
    )
    return [(count, noun) for count, noun in nouns if count]


def fork_key(key: str) -> str:
    """A free key for a fork, made from the key of its parent."""
    return f"{key[:180]}-fork-{secrets.token_hex(2)}"


@require_GET
def item(request, ref, seq):
    """One long text, whole: in place through htmx, or as a page."""
    agent_session = access.session_for(request, ref)
    found = reading.item(agent_session, seq)
    if found is None:
        raise NotFound
    audit.record("content.read", by=request.actor, object_type="session", object_ref=shown("ses", agent_session.id), item=found.seq)
    text = found.content.get("text", "") if "text" in found.content else turns.pretty(found.content.get("arguments"))
    context = {"agent_session": agent_session, "item": found, "text": text, "is_answer": found.kind == Item.Kind.MESSAGE and found.role == "assistant"}
    return render(request, "sessions/item.html#whole" if request.htmx else "sessions/item.html", context)


@require_GET
def file(request, ref, sha256):
    """An attachment, as a download: what somebody sent in is never shown as a page of ours."""
    agent_session = access.session_for(request, ref)
    blob = blobs.load(session=agent_session, hashes=[sha256]).get(sha256)
    if blob is None:
        raise NotFound
    audit.record("content.read", by=request.actor, object_type="session", object_ref=shown("ses", agent_session.id), file=sha256)
    response = HttpResponse(bytes(blob.data), content_type=blob.media_type)
    response.headers["Content-Disposition"] = content_disposition_header(True, blob.name or sha256[:12])
    return response


@require_POST
def details(request, ref):
    """Title and labels."""
    agent_session = access.session_for(request, ref, "sessions.write")
    form = DetailsForm(request.POST, auto_id="details-%s")
    if form.is_valid():
        try:
            with transaction.atomic():
                session_verbs.rename(session=agent_session, title=form.cleaned_data["title"], by=request.actor)
                session_verbs.label(session=agent_session, labels=form.cleaned_data["labels"], by=request.actor)
        except LetheError as error:
            _add_errors(form, error)
    return _answer(request, agent_session, form, "details_form", _("Saved."))


@require_POST
def change_todos(request, ref):
    agent_session = access.session_for(request, ref, "sessions.write")
    form = TodosForm(agent_session, request.POST)
    if form.is_valid():
        given = form.cleaned_data
        try:
            todos.change(
                session=agent_session, changed=form.changed(), added=given["new"].splitlines(), seen=given["seen"], by=request.actor
            )
        except VersionConflict:
            messages.error(request, _("The list changed after you opened it. This is how it is now; make your change again."))
            return redirect("session", ref)
        except SessionBusy as error:
            messages.error(request, error.detail)
            return redirect("session", ref)
        except LetheError as error:
            _add_errors(form, error)
    return _answer(request, agent_session, form, "todos_form", _("Saved. The agent sees it in its next turn."))


@require_POST
def fork(request, ref):
    agent_session = access.session_for(request, ref, "sessions.write")
    form = ForkForm({"key": fork_key(agent_session.key), **request.POST.dict()}, auto_id="fork-%s")
    child = None
    if form.is_valid():
        try:
            child = session_verbs.fork(session=agent_session, at_seq=form.cleaned_data["at_seq"], key=form.cleaned_data["key"], by=request.actor)
        except LetheError as error:
            _add_errors(form, error)
    if child is None:
        return _answer(request, agent_session, form, "fork_form", "")
    messages.success(request, _("This is the fork. The original stays as it was."))
    if request.POST.get("to") == "playground":
        return redirect(f"{reverse('playground')}?session={shown('ses', child.id)}")
    return redirect("session", shown("ses", child.id))


def _answer(request, agent_session, form, name: str, success: str):
    """Back to the session, or the session again with the dialog open that holds the invalid form."""
    if form.is_valid():
        messages.success(request, success)
        return redirect("session", shown("ses", agent_session.id))
    transcript = reading.transcript(agent_session)
    return render(request, "sessions/detail.html", _detail(request, agent_session, transcript, **{name: form}), status=422)


def _add_errors(form, error: LetheError) -> None:
    named = [(field, sentences) for field, sentences in error.errors.items() if field in form.fields]
    for field, sentences in named or [(None, [error.detail])]:
        form.add_error(field, sentences)


@require_POST
def compact(request, ref):
    agent_session = access.session_for(request, ref, "sessions.write")
    try:
        summary = compacting.compact(session=agent_session, by=request.actor)
    except LetheError as error:
        messages.error(request, error.detail)
        return redirect("session", ref)
    if summary is None:
        messages.info(request, _("The summary is still being written. Load the page again in a moment."))
    else:
        messages.success(request, _("Compacted: a summary stands for items %(a)s to %(b)s in what the agent sees from now on. The history is unchanged.") % {"a": summary.from_seq, "b": summary.to_seq})
    return redirect("session", ref)


@require_POST
def close(request, ref):
    return _do(request, ref, session_verbs.close, _("Closed. It can be read and reopened; new messages are refused."))


@require_POST
def reopen(request, ref):
    return _do(request, ref, session_verbs.reopen, _("Open again."))


@require_POST
def archive(request, ref):
    return _do(request, ref, session_verbs.archive, _("Archived. It is no longer listed, and nothing was deleted."))


@require_POST
def unarchive(request, ref):
    def verb(*, session, by):
        return session_verbs.archive(session=session, by=by, archived=False)

    return _do(request, ref, verb, _("Listed again."))


def _do(request, ref, verb, success: str):
    agent_session = access.session_for(request, ref, "sessions.write")
    try:
        verb(session=agent_session, by=request.actor)
        messages.success(request, success)
    except LetheError as error:
        messages.error(request, error.detail)
    return redirect("session", ref)


@require_POST
def delete(request, ref):
    agent_session = access.session_for(request, ref, "sessions.delete")
    try:
        session_verbs.delete(session=agent_session, by=request.actor)
    except LetheError as error:
        messages.error(request, error.detail)
        return redirect("session", ref)
    messages.success(request, _("Session %(name)s is deleted.") % {"name": agent_session})
    return redirect("sessions")


@require_GET
def transcript(request, ref, format):
    """The whole conversation as a file, Markdown or JSON."""
    agent_session = access.session_for(request, ref)
    audit.record("session.exported", by=request.actor, object_type="session", object_ref=shown("ses", agent_session.id), format=format)
    if format == "json":
        body = json.dumps(transcripts.as_json(session=agent_session), ensure_ascii=False, indent=2)
        kind = "application/json"
    else:
        body, kind = transcripts.as_markdown(session=agent_session), "text/markdown; charset=utf-8"
    name = f"session-{agent_session.id.hex}.{format}"
    return HttpResponse(body, content_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})
