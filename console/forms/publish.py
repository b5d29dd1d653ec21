"""Forms around a draft: making an agent, publishing, going back, bringing one in."""

import json

from django import forms
from django.utils.translation import gettext_lazy as _

from agents.domain.definitions import MAX_NOTE
from agents.domain.transfer import MAX_CHARACTERS


class NewAgentForm(forms.Form):
    name = forms.CharField(
        label=_("Name"), max_length=64, help_text=_("How programs call the agent. Letters, digits, dot, _ and -. It stays."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "autocapitalize": "none", "autofocus": True}),
    )  # fmt: skip
    display_name = forms.CharField(label=_("Display name"), max_length=200, required=False, help_text=_("How people see it."))
    provider = forms.ChoiceField(label=_("Provider"))
    model = forms.CharField(
        label=_("Model"), max_length=200, help_text=_("As the provider spells it."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "list": "models"}),
    )  # fmt: skip

    def __init__(self, *args, catalogue, **kwargs):
        super().__init__(*args, **kwargs)
        self.models = catalogue.models
        self.fields["provider"].choices = [(choice.value, choice.label) for choice in catalogue.providers]

    def document(self) -> dict:
        """The first draft."""
        data = self.cleaned_data
        found = {"name": data["name"], "model": {"provider": data["provider"], "model": data["model"]}}
        return found | ({"display_name": data["display_name"]} if data["display_name"] else {})


class PublishForm(forms.Form):
    """`counter` is the state of the draft whose changes the page showed."""

    counter = forms.IntegerField(widget=forms.HiddenInput, min_value=0, max_value=2**31 - 1)
    note = forms.CharField(
        label=_("Note"), max_length=MAX_NOTE, help_text=_("What changed, and why. It is kept with the version."),
        widget=forms.Textarea(attrs={"rows": 3, "autofocus": True}),
    )  # fmt: skip


class RollbackForm(forms.Form):
    note = forms.CharField(label=_("Note"), max_length=MAX_NOTE, widget=forms.Textarea(attrs={"rows": 2}))


class ImportForm(forms.Form):
    """A file or pasted text. After `is_valid`, `document` is its JSON."""

    file = forms.FileField(label=_("File"), required=False, help_text=_("As it was exported."), widget=forms.ClearableFileInput(attrs={"accept": ".json,application/json"}))
    text = forms.CharField(label=_("Or its text"), required=False, strip=False, max_length=MAX_CHARACTERS, widget=forms.Textarea(attrs={"rows": 8, "class": "mono", "spellcheck": "false"}))
    name = forms.CharField(label=_("Under another name"), max_length=64, required=False, widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}))
    allow_missing = forms.BooleanField(label=_("Import it although something is missing"), required=False, help_text=_("It then waits unpublished until what is missing is here."))

    def clean(self):
        data = super().clean()
        file = data.get("file")
        if file and file.size > MAX_CHARACTERS:
            self.add_error("file", _("The file is too large."))
            return data
        try:
            # The text travels from page to page, so that looking at what is missing needs no second upload.
            data["text"] = file.read().decode("utf-8-sig") if file else data.get("text") or ""
        except UnicodeDecodeError:
            self.add_error("file", _("The file is not text in UTF-8."))
            return data
        if not data["text"].strip():
            self.add_error(None, _("Choose a file, or paste its text."))
            return data
        try:
            self.document = json.loads(data["text"])
        except (ValueError, RecursionError) as error:
            self.add_error("file" if file else "text", _("This is not JSON: %s") % str(error)[:200])
        return data
