"""Forms of subjects, their requests, and retention."""

from django import forms
from django.utils.translation import gettext_lazy as _

from console.listing import FilterForm, choice_field
from console.templatetags.ui import STATES
from governance.domain import fences, registry, requests, retention
from governance.domain.deadlines import PROFILES
from governance.models import RetentionPolicy, SubjectRequest


class FindForm(forms.Form):
    """By POST, so that what names a person stays out of addresses, logs and histories."""

    q = forms.CharField(label=_("Identifier"), max_length=500, help_text=_("The whole id your application uses, an e-mail address, a phone number, or a reference such as S-7Q4K-2M9D. It matches exactly or not at all."), widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "data-filter": True, "autofocus": True}))


class PreviewForm(forms.Form):
    """When the person asked, and under which law: together they set the clock."""

    profile = forms.ChoiceField(label=_("Deadline of"), choices=list(PROFILES.items()))
    received_on = forms.DateField(label=_("Received on"), required=False, widget=forms.DateInput(attrs={"type": "date"}), help_text=_("Left empty, today."))


class EraseForm(forms.Form):
    reason = forms.ChoiceField(label=_("Reason"), choices=list(requests.REASONS.items()))
    confirm = forms.CharField(label=_("Reference of the subject"), max_length=500, widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}))
    break_glass = forms.BooleanField(label=_("Go on without a second person"), required=False, help_text=_("For an emergency. Everybody who may approve is told, and the receipt says so."))
    token = forms.CharField(widget=forms.HiddenInput)

    def __init__(self, *args, subject, **kwargs):
        super().__init__(*args, **kwargs)
        self.fields["confirm"].widget.attrs["data-confirm"] = subject.display_ref
        self.fields["confirm"].help_text = _("Type %s to confirm.") % subject.display_ref


class RestrictForm(forms.Form):
    reason = forms.ChoiceField(label=_("Why"), choices=list(fences.RESTRICTION_REASONS.items()))


class RequestFilters(FilterForm):
    state = choice_field(_("State"), [(state, STATES[state][1]) for state in SubjectRequest.State.values], _("Any state, open ones first"))
    kind = choice_field(_("Kind"), SubjectRequest.Kind.choices, _("Any kind"))


BASES = {
    "created": _("when it was made"),
    "last_activity": _("its last activity"),
    "ended": _("when it ended"),
}


UNITS = {"days": _("days"), "months": _("months"), "years": _("years")}


class PolicyForm(forms.Form):
    category = forms.ChoiceField(label=_("Category"))
    agent = forms.CharField(label=_("Only of the agent"), max_length=64, required=False, help_text=_("Its name. The narrower policy wins over one for all agents."), widget=forms.TextInput(attrs={"list": "agents", "autocomplete": "off"}))
    days = forms.IntegerField(label=_("Keep for"), min_value=1, max_value=retention.MAX_DAYS)
    unit = forms.ChoiceField(label=_("Unit"), choices=list(UNITS.items()), required=False, help_text=_("Months and years are those of the calendar, and the last day counts whole."))
    age_basis = forms.ChoiceField(label=_("Counted from"), choices=[(basis, BASES[basis]) for basis in RetentionPolicy.AgeBasis.values])
    min_keep = forms.IntegerField(label=_("Newest of each person that stay"), min_value=0, max_value=retention.MAX_KEPT, required=False, help_text=_("So many stay, however old they are."))
    action = forms.ChoiceField(label=_("Then"), choices=[(RetentionPolicy.Action.DELETE, _("delete")), (RetentionPolicy.Action.ANONYMISE, _("remove the person, keep the totals")), (RetentionPolicy.Action.ARCHIVE_THEN_DELETE, _("move to the archive, encrypted"))], help_text=_("The archive is a folder that the operator names (LETHE_ARCHIVE_DIR). Nothing is deleted that it did not confirm; erasures and exports reach what it holds."))
    enabled = forms.BooleanField(label=_("On"), required=False, help_text=_("Off, it counts and deletes nothing."))
    expected_version = forms.IntegerField(widget=forms.HiddenInput, required=False)

    def __init__(self, *args, policy=None, **kwargs):
        if policy is not None:
            kwargs["initial"] = _shown(policy)
        super().__init__(*args, **kwargs)
        if policy is None:
            self.fields["category"].choices = [(category.key, category.title) for category in retention.targets()]
            del self.fields["enabled"]
        else:
            category = registry.get(policy.category)
            self.fields["age_basis"].choices = [(basis, BASES[basis]) for basis in RetentionPolicy.AgeBasis.values if basis in category.ages]
            # Another category or agent is another policy.
            del self.fields["category"], self.fields["agent"]

    def clean(self):
        values = super().clean()
        unit = values.pop("unit", "") or "days"
        values["months"], values["min_keep"] = None, values.get("min_keep") or 0
        if unit != "days" and values.get("days"):
            values["months"], values["days"] = values["days"] * (12 if unit == "years" else 1), None
        return values


def _shown(policy):
    """A policy as the form's fields say it: 24 months are 2 years."""
    shown = {name: getattr(policy, name) for name in ("days", "age_basis", "min_keep", "action", "enabled")} | {"unit": "days", "expected_version": policy.version}
    if policy.months is None:
        return shown
    return shown | ({"days": policy.months, "unit": "months"} if policy.months % 12 else {"days": policy.months // 12, "unit": "years"})
