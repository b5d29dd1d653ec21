from rest_framework import serializers

from console.api.serializers.base import Output, Strict, Text, Time
from governance.domain import triage


class Standing(Output):
    """A category with rows that name no subject."""

    key = serializers.CharField()
    title = serializers.CharField()
    open = serializers.IntegerField(help_text="Rows that somebody has to decide about.")
    waived = serializers.IntegerField(help_text="Rows that stay as they are.")
    is_waived = serializers.BooleanField(help_text="Whether the category as a whole is waived, with rows to come.")


class Unowned(Output):
    """A row that names no subject, without its content."""

    id = serializers.UUIDField(format="hex")
    created_at = Time(allow_null=True)
    agent = serializers.CharField()
    is_waived = serializers.BooleanField()
    suggested_subject = serializers.SerializerMethodField(help_text="Reference of the subject whose it may be, or null.")
    suggested_by = serializers.CharField(source="why", help_text="identifier, link, or nothing.")

    def get_suggested_subject(self, row) -> str | None:
        return row.suggestion.display_ref if row.suggestion else None


class Rows(Strict):
    ids = serializers.ListField(child=serializers.UUIDField(), max_length=triage.MOST, help_text="Ids of rows, as the list has them.")


class AssignBody(Rows):
    subject = Text(max_length=200, help_text="The subject's id or reference, or the calling application's own id of the person.")


class RowsOrAll(Strict):
    ids = serializers.ListField(
        child=serializers.UUIDField(), required=False, allow_null=True, default=None, max_length=triage.MOST,
        help_text="Left out, the category as a whole, with rows to come.",
    )  # fmt: skip


class WaiveBody(RowsOrAll):
    reason = serializers.ChoiceField(list(triage.REASONS.items()))


class Assigned(Output):
    """Rows that the subject has now, by category: what belongs to a row goes along."""

    rows = serializers.DictField(child=serializers.IntegerField())


class Waived(Output):
    rows = serializers.IntegerField()


class Reopened(Output):
    waivers = serializers.IntegerField(help_text="Waivers that were taken back.")
