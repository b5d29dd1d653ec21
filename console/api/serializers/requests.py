"""What is sent about a request of a person: that it came, that it is agreed to, that it takes longer."""

from rest_framework import serializers

from console.api.serializers.base import Output, Strict, Text, Time
from console.api.serializers.governance import PROFILES
from governance.models import SubjectRequest


class ReceiveBody(Strict):
    subject = Text(max_length=200, help_text="The subject's id or reference, or the calling application's own id of the person.")
    kind = serializers.ChoiceField(SubjectRequest.Kind.choices, default="erase")
    profile = serializers.ChoiceField(PROFILES, default="gdpr")
    received_at = Time(required=False, allow_null=True, default=None, help_text="When the person asked; now, when it is left out.")


class ApproveBody(Strict):
    digest = Text(max_length=80, help_text="Of the preview that was looked at.")


class DeclineBody(Strict):
    reason = serializers.RegexField(r"^[a-z][a-z0-9_]{0,39}$", help_text="A code, such as too_much.")
    text = serializers.CharField(required=False, default="", allow_blank=True, max_length=10_000, help_text="For those who asked.")


class ExtendBody(Strict):
    reason = serializers.RegexField(r"^[a-z][a-z0-9_]{0,39}$", help_text="A code: complex or many_requests.")
    notice_ref = Text(max_length=64, help_text="Where the notice to the person is on file.")


class CorrectionBody(Strict):
    category = Text(max_length=40)
    what = serializers.RegexField(r"^[a-z][a-z0-9_]{0,39}$", help_text="The field that was corrected, such as title; never its value.")
    rows = serializers.IntegerField(default=1, min_value=1, max_value=1_000_000)


class RecipientBody(Strict):
    ref = Text(max_length=100, help_text="As the request lists it.")
    acknowledged = serializers.BooleanField(default=False, help_text="The recipient has answered; otherwise it was told.")


class SigningKey(Output):
    """What receipts are checked with."""

    alg = serializers.CharField()
    key_id = serializers.CharField()
    public_key = serializers.CharField(help_text="32 bytes in base64.")


class ReceiptVersion(serializers.Serializer):
    version = serializers.IntegerField(required=False, min_value=1, max_value=2**31 - 1, help_text="An earlier version; the latest when left out.")
