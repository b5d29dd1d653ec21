"""Files that agents keep between sessions: the list, one file, changing and deleting it."""

from django import forms
from django.contrib import messages
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console import access
from console.forms.base import tell
from console.listing import (
    FilterForm,
    agent_field,
    choice_field,
    listing,
    render_list,
    search_field,
    subject_field,
    text_field,
)
from console.views.workspace import download
from governance.domain import audit
from governance.errors import LetheError
from governance.models import Subject
from sessions import queries
from sessions.domain import agent_files
from sessions.errors import FileChanged

SCOPES = (("subject", gettext_lazy("one person")), ("agent", gettext_lazy("one agent")), ("tenant", gettext_lazy("the whole tenant")))


class FileFilters(FilterForm):
    q = search_field(gettext_lazy("Words in the text"))
    below = text_field(gettext_lazy("Path begins with"), placeholder="/memory/", max_length=400)
    agent = agent_field()
    scope = choice_field(gettext_lazy("Whose"), SCOPES, gettext_lazy("Anybody's"))
    subject = subject_field()

    def rows(self):
        """The files that match, or None when a filter is not valid."""
        if not self.is_valid():
            return None
        given = self.cleaned_data
        return queries.agent_files_of(
            self.request.tenant.pk, agent=given["agent"] or None, subject_id=given["subject"].id if given["subject"] else None,
            scope=given["scope"] or None, below=given["below"].strip() or None, words=given["q"] or None,
        )  # fmt: skip


class TextForm(forms.Form):
    content = forms.CharField(label=gettext_lazy("Text"), required=False, strip=False, widget=forms.Textarea(attrs={"rows": 18, "spellcheck": "false"}))
    version = forms.CharField(widget=forms.HiddenInput)

    def clean_content(self):
        # Browsers send line breaks as CRLF.
        return self.cleaned_data["content"].replace("\r\n", "\n")


@require_safe
@access.may("memory.read")
def file_list(request):
    form = FileFilters(request)
    found = listing(request, form, form.rows(), order=("-updated_at", "-id"))
    subjects = Subject.objects.in_bulk([file.subject_id for file in found.results if file.subject_id])
    for file in found.results:
        file.subject = subjects.get(file.subject_id)
    return render_list(request, "sessions/files.html", form, {"listing": found})


@require_http_methods(["GET", "HEAD", "POST"])
def file_detail(request, ref):
    """The text, to read and to correct; with `?download`, the file."""
    file = access.file_for(request, ref, "memory.write" if request.method == "POST" else "memory.read")
    form = TextForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            agent_files.change(file=file, text=form.cleaned_data["content"], expected=form.cleaned_data["version"], by=request.actor)
        except FileChanged as error:
            # What was typed stays; the next save means what is stored now.
            form.data = {**request.POST.dict(), "version": error.version or ""}
            tell(form, error)
        except LetheError as error:
            tell(form, error)
        else:
            messages.success(request, _("Saved."))
            return redirect("file", ref)
    audit.record("content.read", by=request.actor, object_type="file", object_ref=file.id)
    return _shown(request, file, form)


def _shown(request, file, form):
    problem, text = "", ""
    try:
        text = agent_files.text_of(file)
    except LetheError as error:
        problem = error.detail
    if "download" in request.GET and not problem:
        return download(text, file.path)
    if not form.is_bound:
        form = TextForm(initial={"content": text, "version": file.sha256})
    subject = Subject.objects.filter(id=file.subject_id).first() if file.subject_id else None
    context = {"file": file, "text": text, "problem": problem, "form": form, "subject": subject}
    return render(request, "sessions/file.html", context, status=422 if form.is_bound else 200)


@require_POST
def file_delete(request, ref):
    file = access.file_for(request, ref, "memory.write")
    try:
        agent_files.remove(file=file, by=request.actor)
    except LetheError as error:
        messages.error(request, error.detail)
        return redirect("file", ref)
    messages.success(request, _("%(path)s is deleted.") % {"path": file.path})
    return redirect("files")
