"""Forms of members, API keys, the tenant and quotas."""

import zoneinfo
from datetime import timedelta

from django import forms
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from console.listing import FilterForm, choice_field, date_field
from governance.domain import rules
from governance.permissions import ROLES, SCOPES
from sessions.models import Quota


def _explained(name, about):
    return format_html('<b>{}</b> <span class="help">{}</span>', name, about)


def _role_choices():
    return [(role, _explained(role.replace("_", " ").capitalize(), about)) for role, about in ROLES.items()]


def _scope_choices():
    return [(scope, _explained(scope, about)) for scope, about in SCOPES.items()]


def _search(data_filter=False):
    attrs = {"type": "search", "autocomplete": "off"} | ({"data-filter": True} if data_filter else {})
    return forms.TextInput(attrs=attrs)


class SearchForm(forms.Form):
    """One field that narrows a list."""

    q = forms.CharField(required=False, max_length=200, label=_("Name contains"), widget=_search(data_filter=True))


class RolesForm(forms.Form):
    roles = forms.MultipleChoiceField(label=_("Roles"), choices=_role_choices, widget=forms.CheckboxSelectMultiple)


class NewMemberForm(RolesForm):
    username = forms.CharField(label=_("Username"), max_length=150, help_text=_("What they sign in with. Somebody who already has an account keeps it."), widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false", "autofocus": True}))
    display_name = forms.CharField(label=_("Display name"), max_length=200, required=False)

    field_order = ["username", "display_name", "roles"]


class NewKeyForm(forms.Form):
    NEVER = ""
    LIFETIMES = [("30", _("30 days")), ("90", _("90 days")), ("365", _("A year")), (NEVER, _("Until it is revoked"))]

    name = forms.CharField(label=_("Name"), max_length=100, help_text=_("Say which application uses it: that is how it shows in runs and in the audit trail."), widget=forms.TextInput(attrs={"autocomplete": "off", "autofocus": True}))
    scopes = forms.MultipleChoiceField(label=_("Scopes"), choices=_scope_choices, widget=forms.CheckboxSelectMultiple, help_text=_("Give it only what the application needs."))
    subject = forms.CharField(label=_("Speaks for"), max_length=255, required=False, help_text=_("The id of one person, as your application calls them. The key then reads and writes for that person only. Leave it empty for an application that serves many."), widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}))
    lifetime = forms.ChoiceField(label=_("Ends after"), choices=LIFETIMES, required=False, initial="90")

    def expires_at(self):
        days = self.cleaned_data["lifetime"]
        return timezone.now() + timedelta(days=int(days)) if days else None


class TenantForm(forms.Form):
    name = forms.CharField(label=_("Name"), max_length=200)
    timezone = forms.ChoiceField(label=_("Time zone"), help_text=_("Days and months of quotas and retention are counted in it."), choices=lambda: [(zone, zone) for zone in sorted(zoneinfo.available_timezones()) if "/" in zone or zone == "UTC"])


class RulesForm(forms.Form):
    """What the tenant has decided about requests."""

    four_eyes = forms.ChoiceField(label=_("Erasures and exports need"), choices=list(rules.FOUR_EYES.items()), help_text=_("Two people are safer: what was erased or handed out cannot be taken back. Whoever asked never approves. The fourth choice is about erasures only."))
    four_eyes_rows = forms.IntegerField(label=_("Rows above which two people are needed"), min_value=0, max_value=rules.MAX_ROWS, help_text=_("Counts for the third choice only."))
    accept_added_rows = forms.IntegerField(label=_("Rows that may be added after a preview"), min_value=0, max_value=rules.MAX_ROWS, help_text=_("So many new rows, in categories that the preview showed, are erased without a second look. 0 shows every difference."))
    pause_for_identity = forms.BooleanField(label=_("The clock rests while proof of identity is asked for"), required=False, help_text=_("For requests under EU law only."))
    holidays = forms.CharField(label=_("Holidays"), required=False, max_length=5000, widget=forms.Textarea(attrs={"rows": 3}), help_text=_("Days such as 2026-12-25, one on a line: they are no business days when a first answer is due."))

    def clean_holidays(self):
        return self.cleaned_data["holidays"].split()


class KeepingForm(forms.Form):
    """What the tenant has decided about retention and holds."""

    retention_dry_run_days = forms.IntegerField(label=_("Days a new policy only counts"), min_value=0, max_value=365, help_text=_("Also one that would take more than before. 0 has policies delete from their first night on."))
    retention_second_person_percent = forms.IntegerField(label=_("Percent that one person may decide about"), min_value=0, max_value=100, help_text=_("When a policy's first run would take a larger share of its category, a tenant admin who did not set it must approve it. 100 asks for nobody."))
    retention_minimum_days = forms.CharField(label=_("Kept at least"), required=False, max_length=5000, widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}), help_text=_("A category and its days, such as runs 180, one on a line, where a law wants it kept. Shorter policies are refused, and those that are there wait for the longer time."))
    hold_release_alone = forms.BooleanField(label=_("Whoever placed a legal hold may release it"), required=False, help_text=_("Two people are safer: a released hold lets retention and erasures go on at once."))

    def clean_retention_minimum_days(self):
        minimums = {}
        for line in filter(None, map(str.strip, self.cleaned_data["retention_minimum_days"].splitlines())):
            key, _space, days = line.partition(" ")
            if not days.strip().isdecimal() or len(days.strip()) > 6:
                raise forms.ValidationError(gettext("Write each line as in “runs 180”."))
            minimums[key] = int(days)
        return minimums


class LimitForm(forms.Form):
    limit = forms.DecimalField(label=_("Limit"), max_digits=18, decimal_places=6, min_value=0, widget=forms.NumberInput(attrs={"step": "any", "inputmode": "decimal"}), help_text=_("Runs and tokens as a number, cost in US dollars."))


class NewQuotaForm(LimitForm):
    scope = forms.ChoiceField(label=_("Applies to"), choices=Quota.Scope.choices)
    scope_ref = forms.ChoiceField(label=_("Only this one"), required=False, help_text=_("Left open, the limit holds for each of them by itself."))
    measure = forms.ChoiceField(label=_("Counts"), choices=Quota.Measure.choices)
    period = forms.ChoiceField(label=_("Per"), choices=Quota.Period.choices)

    field_order = ["scope", "scope_ref", "measure", "period", "limit"]

    def __init__(self, *args, refs=(), **kwargs):
        """`refs` are grouped choices of agents and keys: what a quota may name."""
        super().__init__(*args, **kwargs)
        self.fields["scope_ref"].choices = [("", _("Each of them")), *refs]


class AuditFilters(FilterForm):
    actor = forms.CharField(required=False, max_length=200, label=_("Who"), widget=_search(data_filter=True))
    action = choice_field(_("What"), (), _("Anything"))
    object = forms.CharField(required=False, max_length=200, label=_("To what"), widget=_search())
    since = date_field(_("From"))
    until = date_field(_("To"))

    def __init__(self, request, *, actions):
        super().__init__(request)
        nouns = sorted({action.split(".")[0] for action in actions})
        of_noun = {noun: [(action, action) for action in sorted(actions) if action.split(".")[0] == noun] for noun in nouns}
        self.fields["action"].choices += [
            (noun.replace("_", " "), [(noun, gettext("%s: anything") % noun.replace("_", " ")), *of_noun[noun]]) for noun in nouns
        ]

    def filters(self) -> dict:
        """What governance.queries.audit_events takes; both days count whole, in the tenant's zone."""
        exact = {name: self.cleaned_data[name].strip() for name in ("actor", "action", "object")}
        return {name: value for name, value in exact.items() if value} | {
            "after": self.day_start("since"),
            "before": self.day_end("until"),
        }
