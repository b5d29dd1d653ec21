"""The answer to a tool call that waits: approve, reject, change its arguments, remember it."""

import json

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance.errors import LetheError
from sessions.domain import approvals
from sessions.models import Approval

REMEMBER = (
    ("", gettext_lazy("Ask again next time")),
    ("session", gettext_lazy("Remember for this session")),
    ("agent", gettext_lazy("Remember for every session")),
)
DAYS = (
    ("1", gettext_lazy("1 day")),
    ("7", gettext_lazy("7 days")),
    ("30", gettext_lazy("30 days")),
    ("365", gettext_lazy("1 year")),
    ("", gettext_lazy("Until it is revoked")),
)
CONDITIONS = (
    ("same", gettext_lazy("These arguments")),
    ("any", gettext_lazy("Any arguments")),
    ("custom", gettext_lazy("Arguments such that")),
)
# Where the domain's errors belong in this form.
_FIELDS = {"remember.scope": "remember", "remember.expires_in_days": "days", "remember.condition": "condition"}


class DecisionForm(forms.Form):
    use_required_attribute = False

    decision = forms.ChoiceField(choices=[("approve", "approve"), ("reject", "reject")], widget=forms.HiddenInput)
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=approvals.REASON_LENGTH,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text=gettext_lazy("The model reads it, so say what it should do instead."),
    )
    arguments = forms.CharField(
        label=gettext_lazy("Arguments"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 4, "class": "mono", "spellcheck": "false"}),
        help_text=gettext_lazy("Change them, and your version runs instead of the model's. Both are recorded."),
    )
    remember = forms.ChoiceField(label=gettext_lazy("When approved"), required=False, choices=REMEMBER)
    condition_kind = forms.ChoiceField(label=gettext_lazy("Calls with"), required=False, choices=CONDITIONS, initial="same")
    condition = forms.CharField(
        label=gettext_lazy("Condition"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "class": "mono", "spellcheck": "false", "placeholder": '{"path": {"prefix": "drafts/"}}'}),
        help_text=gettext_lazy("JSON by argument: equals, prefix or one_of. All must hold."),
    )
    days = forms.ChoiceField(label=gettext_lazy("Holds for"), required=False, choices=DAYS, initial="7")

    def __init__(self, approval: Approval, data=None):
        self.approval = approval
        initial = {"arguments": json.dumps(approval.arguments, ensure_ascii=False, indent=2)}
        super().__init__(data, initial=initial, auto_id=f"decide-{approval.id.hex}-%s")
        if approval.session_id is None:
            self.fields["remember"].choices = [choice for choice in REMEMBER if choice[0] != "session"]

    def clean_arguments(self):
        text = self.cleaned_data["arguments"].strip()
        if not text or self.data.get("decision") != "approve":
            return None
        return _object(text)

    def clean_condition(self):
        text = self.cleaned_data["condition"].strip()
        if self.data.get("condition_kind") != "custom" or not self.data.get("remember"):
            return None
        if not text:
            raise forms.ValidationError(_("Write the condition, or choose another kind of calls."))
        return _object(text)

    def decide(self, *, by) -> Approval | None:
        """Store the decision. None when it was refused; the form then carries the sentence."""
        given = self.cleaned_data
        approving = given["decision"] == "approve"
        try:
            return approvals.decide(
                approval=self.approval,
                decision=given["decision"],
                reason=given["reason"],
                arguments=given["arguments"] if approving else None,
                remember=self._remembered() if approving else None,
                by=by,
            )
        except LetheError as error:
            self._refuse(error)
            return None

    def _remembered(self) -> dict | None:
        given = self.cleaned_data
        if not given["remember"]:
            return None
        kind = given["condition_kind"] or "same"
        return {
            "scope": given["remember"],
            "expires_in_days": int(given["days"]) if given["days"] else None,
            **({"same_arguments": True} if kind == "same" else {}),
            **({"condition": given["condition"]} if kind == "custom" else {}),
        }

    def _refuse(self, error: LetheError) -> None:
        placed = False
        for path, sentences in error.errors.items():
            name = _FIELDS.get(path) or path.split(".")[0]
            if path.startswith("remember.condition"):
                name = "condition"
            if name in self.fields and name != "decision":
                self.add_error(name, [f"{path.partition('.')[2]}: {entry}" if "." in path and name == "arguments" else entry for entry in sentences])
                placed = True
        if not placed:
            self.add_error(None, error.detail)


def _object(text: str) -> dict:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise forms.ValidationError(_("This is not JSON: %(why)s") % {"why": error}) from None
    if not isinstance(value, dict):
        raise forms.ValidationError(_("A JSON object is expected, such as {\"path\": \"draft.md\"}."))
    return value
