from datetime import datetime, time
from zoneinfo import ZoneInfo

from django import forms
from django.utils.translation import gettext_lazy as _

from governance.domain import holds, registry
from governance.models import Hold

SCOPES = {
    Hold.Scope.SUBJECT: _("A subject: everything about one person"),
    Hold.Scope.SESSION: _("A session, with all that belongs to it"),
    Hold.Scope.AGENT: _("An agent: every conversation with it"),
    Hold.Scope.CATEGORY: _("A category, with what belongs to it"),
    Hold.Scope.QUERY: _("Rows made in a time"),
}


def _day(label, **options):
    return forms.DateField(label=label, required=False, widget=forms.DateInput(attrs={"type": "date"}), **options)


class HoldForm(forms.Form):
    """`scope` says which of the other fields count."""

    matter = forms.CharField(label=_("Matter"), max_length=64, help_text=_("The reference of the file, such as M-17. No names: it is shown wherever the hold is."), widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "autofocus": True}))
    reason = forms.ChoiceField(label=_("Reason"), choices=list(holds.REASONS.items()))
    scope = forms.ChoiceField(label=_("What it covers"), choices=list(SCOPES.items()))
    named = forms.CharField(label=_("Which one"), max_length=255, required=False, help_text=_("The subject's reference or id, the session's id, or the agent's name."), widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}))
    category = forms.ChoiceField(label=_("Category"), required=False)
    after = _day(_("Made on or after"))
    before = _day(_("Made before"))
    until = _day(_("Ends on"), help_text=_("Left empty, it stays until somebody releases it."))

    def __init__(self, *args, zone: str, **kwargs):
        super().__init__(*args, **kwargs)
        self.zone = ZoneInfo(zone)
        known = [category for category in registry.categories().values() if category.on_hold != "exempt"]
        self.fields["category"].choices = [("", _("None")), *((category.key, category.title) for category in known)]

    def moment(self, name: str) -> datetime | None:
        """The start of the day that was given, in the tenant's zone."""
        day = self.cleaned_data[name]
        return datetime.combine(day, time.min, self.zone) if day else None
