"""Forms of a request's way: received, agreed to, extended, refused, put right."""

from django import forms
from django.utils.translation import gettext_lazy as _

from console.forms.subjects import PreviewForm
from governance.domain import clocks, notes, registry, requests

KINDS = [("erase", _("Erase what is held")), ("export", _("Export what is held")), ("rectify", _("Put right what is wrong"))]
_OFF = {"autocomplete": "off", "spellcheck": "false"}


def _text(label, help_text, **options):
    widget = forms.Textarea(attrs={"rows": 4})
    return forms.CharField(label=label, required=False, max_length=notes.MAX_CHARS, help_text=help_text, widget=widget, **options)


class ReceiveForm(PreviewForm):
    """A request as it came in, before anything is looked at."""

    kind = forms.ChoiceField(label=_("They want us to"), choices=KINDS)

    field_order = ["kind", "profile", "received_on"]


class ActForm(forms.Form):
    """`onward` says to which page an act in place returns."""

    onward = forms.ChoiceField(choices=[("request", ""), ("requests", "")], required=False, widget=forms.HiddenInput)


class CancelForm(ActForm):
    reason = forms.ChoiceField(label=_("Why"), choices=list(requests.CANCEL_REASONS.items()))
    text = _text(_("What the person was told"), _("Needed for a refusal. It is kept encrypted and erased with everything else about the person."))


class ExtendForm(ActForm):
    reason = forms.ChoiceField(label=_("Why"), choices=list(clocks.EXTENSION_REASONS.items()))
    notice_ref = forms.CharField(label=_("Notice to the person"), max_length=64, help_text=_("The reference under which it is on file, such as MAIL-2026/118. The law wants it sent before the request is due."), widget=forms.TextInput(attrs=_OFF))


class ApproveForm(ActForm):
    digest = forms.CharField(widget=forms.HiddenInput, max_length=80)


class DeclineForm(ActForm):
    reason = forms.ChoiceField(label=_("Why"), choices=list(requests.DECLINE_REASONS.items()))
    text = _text(_("For those who asked"), _("It is kept encrypted with the request."))


class CorrectionForm(forms.Form):
    category = forms.ChoiceField(label=_("Category"))
    what = forms.RegexField(r"^[a-z][a-z0-9_]{0,39}$", label=_("What was corrected"), help_text=_("The name of the field, such as title. Values do not belong here."), widget=forms.TextInput(attrs=_OFF))
    rows = forms.IntegerField(label=_("Rows"), min_value=1, max_value=1_000_000, initial=1)

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.fields["category"].choices = [(category.key, category.title) for category in registry.categories().values()]


class IdentifierForm(forms.Form):
    identifier_id = forms.ChoiceField(label=_("Identifier"))
    value = forms.CharField(label=_("Its right value"), max_length=255, widget=forms.TextInput(attrs=_OFF))

    def __init__(self, *args, identifiers=(), **kwargs):
        super().__init__(*args, **kwargs)
        self.fields["identifier_id"].choices = [(str(entry.pk), entry.get_kind_display()) for entry in identifiers]
