"""Forms of rows that name nobody, and of a subject that turns out to be two people."""

from django import forms
from django.utils.translation import gettext_lazy as _

from governance.domain import triage


class AssignForm(forms.Form):
    subject = forms.CharField(label=_("Belongs to"), max_length=200, help_text=_("The reference of a subject, such as S-7Q4K-2M9D, or your application's own id of the person."), widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}))


class WaiveForm(forms.Form):
    reason = forms.ChoiceField(label=_("Why"), choices=list(triage.REASONS.items()))
    whole = forms.BooleanField(label=_("The whole category, with rows to come"), required=False)


class SplitForm(forms.Form):
    identifiers = forms.MultipleChoiceField(required=False)
    sessions = forms.MultipleChoiceField(required=False)

    def __init__(self, *args, identifiers, sessions, **kwargs):
        super().__init__(*args, **kwargs)
        self._ids = {str(one.pk): one.pk for one in [*identifiers, *sessions]}
        self.fields["identifiers"].choices = [(str(one.pk), one.kind) for one in identifiers]
        self.fields["sessions"].choices = [(str(one.pk), one.pk) for one in sessions]

    def named(self) -> dict:
        """What `identities.split` takes."""
        sessions = [self._ids[text] for text in self.cleaned_data["sessions"]]
        return {
            "identifiers": [self._ids[text] for text in self.cleaned_data["identifiers"]],
            "rows": {"sessions": sessions} if sessions else {},
        }
