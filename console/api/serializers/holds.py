from rest_framework import serializers

from console.api.operations import Paging
from console.api.serializers.base import Id, Output, Strict, Text, Time
from console.api.serializers.governance import SubjectRequest
from governance.domain import holds
from governance.models import Hold as HoldModel


class HoldFilters(Paging):
    matter = serializers.CharField(required=False, max_length=64, help_text="A reference, whole.")
    scope = serializers.ChoiceField(HoldModel.Scope.choices, required=False)
    released = serializers.BooleanField(required=False, allow_null=True, default=None, help_text="False for those in force.")


class HoldScope(Strict):
    """What to keep. `type` says which of the other fields counts; a query takes any of `agent`, `subject`, `after`, `before`, `ids`."""

    type = serializers.ChoiceField(HoldModel.Scope.choices)
    subject_id = Text(required=False, max_length=255, help_text="The subject's id or reference, or your own id of the person.")
    session_id = Id("ses", required=False)
    agent = Text(required=False, max_length=64, help_text="The agent's name.")
    category = Text(required=False, max_length=40, help_text="A category's key. What belongs together is held together.")
    after = Time(required=False, help_text="Made at that time or later.")
    before = Time(required=False)
    ids = serializers.ListField(child=serializers.UUIDField(), required=False, max_length=holds.MAX_IDS)


class HoldBody(Strict):
    matter = Text(max_length=64, help_text="The reference of the file, such as M-17. No names: it is shown and recorded.")
    reason = serializers.ChoiceField(list(holds.REASONS.items()))
    scope = HoldScope()
    until = Time(required=False, allow_null=True, default=None, help_text="When it ends by itself.")


class Hold(Output):
    """A legal duty to keep rows, which beats every deletion."""

    id = Id("hld")
    matter = serializers.CharField()
    reason = serializers.CharField()
    scope = serializers.SerializerMethodField(help_text="What it covers, as it was asked.")
    until = Time(allow_null=True)
    covered_rows = serializers.IntegerField(allow_null=True, help_text="Rows it covered when it was placed.")
    already_absent = serializers.IntegerField(help_text="Rows that were gone before.")
    ledger = serializers.SerializerMethodField(help_text="Whether the ledger outside the database has it.")
    placed_by = serializers.CharField(source="placed_by_label")
    placed_at = Time()
    released_by = serializers.CharField(source="released_by_label")
    released_at = Time(allow_null=True)

    def get_scope(self, hold) -> dict:
        parts = {
            "type": hold.scope,
            "subject_id": f"sub_{hold.subject_id.hex}" if hold.subject_id else None,
            "session_id": f"ses_{hold.session_id.hex}" if hold.session_id else None,
            "agent": hold.agent_name or None,
            "category": hold.category or None,
            **(hold.query or {}),
        }
        return {name: value for name, value in parts.items() if value is not None}

    def get_ledger(self, hold) -> str:
        return holds.told(hold=hold)


class HoldDetail(Hold):
    by_category = serializers.SerializerMethodField(help_text="Rows it covers now, by category.")
    waiting = serializers.SerializerMethodField(help_text="References of the erasures that wait for it.")

    def get_by_category(self, hold) -> dict:
        return {} if hold.released_at else holds.rows_by_category(hold=hold)

    def get_waiting(self, hold) -> list[str]:
        return [] if hold.released_at else [request.ref for request in holds.waiting_for(hold=hold)]


class Release(Output):
    """The hold, and the erasures that waited for it."""

    hold = Hold()
    started = SubjectRequest(many=True, help_text="They go on now without another confirmation: they were shown and approved.")


