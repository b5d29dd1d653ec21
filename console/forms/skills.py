"""The form of a skill's draft, and of its resources."""

from django import forms
from django.forms import BaseFormSet, formset_factory
from django.utils.translation import gettext_lazy as _

from agents import skills
from agents.domain.definitions import MAX_NOTE

_PLAIN = {"autocomplete": "off", "spellcheck": "false"}


class SkillForm(forms.Form):
    """`counter` is the state of the draft that the page showed."""

    counter = forms.IntegerField(widget=forms.HiddenInput, required=False, min_value=0, max_value=2**31 - 1)
    name = forms.CharField(label=_("Name"), max_length=64, help_text=_("Agents name the skill by it. Letters, digits, dot, _ and -. It stays."), widget=forms.TextInput(attrs=_PLAIN))
    description = forms.CharField(label=_("When to use it"), max_length=1000, required=False, help_text=_("One or two sentences. This is all that an agent sees until it opens the skill."), widget=forms.Textarea(attrs={"rows": 2}))
    instructions = forms.CharField(label=_("Instructions"), max_length=skills.MAX_INSTRUCTIONS, required=False, strip=False, help_text=_("How the task is done, step by step."), widget=forms.Textarea(attrs={"rows": 16}))

    def __init__(self, *args, skill=None, **kwargs):
        super().__init__(*args, **kwargs)
        if skill is not None:
            del self.fields["name"]


class ResourceForm(forms.Form):
    name = forms.CharField(label=_("Name"), max_length=100, required=False, widget=forms.TextInput(attrs={**_PLAIN, "placeholder": "forms/claim.md"}))
    description = forms.CharField(label=_("What is in it"), max_length=500, required=False)
    text = forms.CharField(label=_("Text"), max_length=skills.MAX_RESOURCE, required=False, strip=False, widget=forms.Textarea(attrs={"rows": 6}))

    def clean(self):
        data = super().clean()
        if not data.get("name") and (data.get("text") or data.get("description")):
            self.add_error("name", _("Name the resource."))
        return data


class _Resources(BaseFormSet):
    def entries(self) -> list[dict]:
        """The resources as a skill keeps them, without empty rows and those to remove."""
        kept = [form.cleaned_data for form in self.forms if form.cleaned_data.get("name") and not form.cleaned_data.get("DELETE")]
        return [{key: row[key].replace("\r\n", "\n") for key in ("name", "description", "text") if row[key]} for row in kept]


ResourceFormSet = formset_factory(
    ResourceForm, formset=_Resources, extra=1, can_delete=True, max_num=skills.MAX_RESOURCES, absolute_max=skills.MAX_RESOURCES + 2
)


class PublishSkillForm(forms.Form):
    counter = forms.IntegerField(widget=forms.HiddenInput, min_value=0, max_value=2**31 - 1)
    note = forms.CharField(label=_("Note"), max_length=MAX_NOTE, help_text=_("What changed, and why. It is kept with the version."), widget=forms.Textarea(attrs={"rows": 2}))
