from django.conf import settings
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from console.api.operations import Paging
from console.api.serializers.base import Decimal, Id, Json, JsonObject, Name, Output, Strict, Text, Time
from sessions import queries
from sessions.domain import vocabulary
from sessions.errors import EmptyMessage
from sessions.models import Approval as ApprovalModel
from sessions.models import Item as ItemModel
from sessions.models import Run as RunModel
from sessions.models import Session as SessionModel

KEY_HELP = "The caller's own id of the session: 1 to 200 printable characters, not Lethe's ses_... of it."

REMEMBER_HELP = (
    'Keep an approval as a standing answer: {"scope": "session" or "agent", "same_arguments": true or '
    '"condition": {...}, "expires_in_days": 30}.'
)


# Sessions
class SessionFilters(Paging):
    agent = serializers.CharField(required=False, max_length=64, help_text="The agent's name.")
    subject = serializers.CharField(required=False, max_length=200, help_text="A subject's id or reference.")
    state = serializers.ChoiceField(SessionModel.State.choices, required=False)
    key = serializers.CharField(required=False, max_length=200, help_text=KEY_HELP)
    label = serializers.CharField(required=False, max_length=64)
    q = serializers.CharField(required=False, max_length=200, help_text="Part of the title.")
    archived = serializers.BooleanField(default=False, help_text="Archived sessions instead of the others.")
    created_after = Time(required=False)
    created_before = Time(required=False)
    active_after = Time(required=False)
    active_before = Time(required=False)


class SessionQuery(serializers.Serializer):
    agent = serializers.CharField(required=False, max_length=64, help_text="Set it to address the session by its key instead of our id.")


class ItemFilters(SessionQuery, Paging):
    pass


class Summary(Output):
    """A text that stands for a range of items in what the model sees."""

    id = Id("sum")
    from_seq = serializers.IntegerField()
    to_seq = serializers.IntegerField()
    text = serializers.CharField()
    tokens = serializers.IntegerField()
    source_tokens = serializers.IntegerField(help_text="Tokens of the items that it stands for.")
    model = serializers.CharField(help_text="Provider and model that wrote it.")
    created_at = Time()


class Compacted(Output):
    state = serializers.ChoiceField(("done", "running"))
    summary = Summary(allow_null=True)


class TaskPatch(Strict):
    task = JsonObject(help_text="A JSON merge patch of the task.")


class Session(Output):
    """A session without its history."""

    id = Id("ses")
    key = serializers.CharField(help_text=KEY_HELP)
    agent = serializers.CharField(source="agent.name")
    subject_id = Id("sub", allow_null=True)
    subject_ref = serializers.CharField(source="subject.display_ref", default=None, allow_null=True)
    title = serializers.CharField()
    labels = serializers.ListField(child=serializers.CharField())
    state = serializers.ChoiceField(SessionModel.State.choices, source="status")
    turns = serializers.IntegerField()
    items = serializers.IntegerField(source="head_seq", help_text="Number of the newest item.")
    running_run_id = Id("run", source="lease_run_id", allow_null=True)
    forked_from = Id("ses", allow_null=True)
    forked_at_seq = serializers.IntegerField(allow_null=True)
    created_at = Time()
    last_active_at = Time()
    ended_at = Time(allow_null=True)
    archived_at = Time(allow_null=True)


class SessionChanges(Strict):
    title = Text(required=False, allow_blank=True, max_length=200)
    labels = serializers.ListField(child=Name(max_length=64), required=False, max_length=20)
    archived = serializers.BooleanField(required=False)


class ForkBody(Strict):
    key = Name(max_length=200, help_text="Key of the new session.")
    at_seq = serializers.IntegerField(required=False, allow_null=True, default=None, min_value=1, max_value=2**53, help_text="The last item that both share; the newest one when it is left out.")


class Item(Output):
    """One entry of a history."""

    seq = serializers.IntegerField()
    kind = serializers.ChoiceField(ItemModel.Kind.choices)
    role = serializers.CharField()
    turn = serializers.IntegerField()
    run_id = Id("run", allow_null=True)
    tokens = serializers.IntegerField()
    content = JsonObject()
    created_at = Time()


class TaskState(Output):
    """The application's own data of the current task."""

    task = JsonObject()
    version = serializers.IntegerField(source="task_version", help_text="Rises with every change; the number in the ETag.")


class TranscriptQuery(SessionQuery):
    format = serializers.ChoiceField(["markdown", "json"], required=False, help_text="Otherwise by the Accept header; Markdown by default.")


# Runs
class ApprovalAnswer(Strict):
    id = Id("apr")
    decision = serializers.ChoiceField(["approve", "reject"])
    reason = Text(required=False, allow_blank=True, max_length=2000, help_text="The model reads it.")
    arguments = JsonObject(required=False, allow_null=True, help_text="Run the tool with these instead.")
    remember = JsonObject(required=False, allow_null=True, help_text=REMEMBER_HELP)

    def to_internal_value(self, data):
        found = super().to_internal_value(data)
        return {**found, "id": self.fields["id"].to_representation(found["id"])}


class Attachment(Strict):
    name = Name(max_length=200, required=False, allow_blank=True)
    media_type = Name(max_length=100)
    data = Text(help_text="The bytes in base64.")


class RunBody(Strict):
    """One request to an agent. Names may be camelCase or snake_case."""

    session_id = Name(required=False, allow_null=True, max_length=200, help_text=f"{KEY_HELP} Without it the run keeps no history.")
    message = Text(required=False, default="", allow_blank=True, trim_whitespace=False, help_text="What the subject says.")
    parameters = JsonObject(required=False, default=dict, help_text="Values of the agent's parameters.")
    attachments = Attachment(many=True, required=False, default=list)
    approvals = ApprovalAnswer(many=True, required=False, default=list, help_text="Decisions that a waiting run continues with, instead of a message.")
    culture = Name(required=False, allow_null=True, max_length=35, help_text="BCP 47 language of the instructions.")
    metadata = JsonObject(required=False, default=dict, help_text="The application's own values, at most 16 KiB as JSON; never read.")

    def validate(self, asked):
        if not asked["message"].strip() and not asked["attachments"] and not asked["approvals"]:
            raise EmptyMessage
        return asked

    def validate_message(self, message):
        limit = settings.LETHE["message_max_chars"]
        if len(message) > limit:
            raise serializers.ValidationError(f"At most {limit:,} characters.")
        return message


class RunAccepted(Output):
    run_id = serializers.CharField()
    status = serializers.ChoiceField(RunModel.Status.choices)
    session_id = serializers.CharField(allow_null=True)
    events_url = serializers.CharField()


class RunFilters(Paging):
    agent = serializers.CharField(required=False, max_length=64, help_text="The agent's name.")
    session = serializers.CharField(required=False, max_length=40, help_text="A session's id.")
    subject = serializers.CharField(required=False, max_length=200, help_text="A subject's id or reference.")
    status = serializers.ChoiceField(RunModel.Status.choices, required=False)
    created_after = Time(required=False)
    created_before = Time(required=False)


class Usage(Output):
    """Tokens of all model calls of a run, and how many calls there were."""

    input_tokens = serializers.IntegerField()
    cached_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    reasoning_tokens = serializers.IntegerField()
    model_calls = serializers.IntegerField()
    tool_calls = serializers.IntegerField()


class RunSummary(Output):
    id = Id("run")
    agent = serializers.CharField(source="agent.name")
    version = serializers.IntegerField(source="version.number", default=None, allow_null=True, help_text="None for a run of the draft.")
    session_id = Id("ses", allow_null=True)
    session_key = serializers.CharField(source="session.key", default=None, allow_null=True)
    subject_id = Id("sub", allow_null=True)
    status = serializers.ChoiceField(RunModel.Status.choices)
    model = serializers.CharField(source="model_name", allow_blank=True)
    usage = Usage(source="*")
    cost = Decimal(allow_null=True, max_digits=14, help_text="US dollars; null when a price is not known.")
    error = JsonObject(allow_null=True)
    started_by = serializers.CharField()
    parent_id = Id("run", allow_null=True)
    root_id = Id("run", allow_null=True)
    labels = serializers.ListField(child=serializers.CharField())
    metadata = JsonObject()
    created_at = Time()
    started_at = Time(allow_null=True)
    first_token_at = Time(allow_null=True)
    ended_at = Time(allow_null=True)
    events_url = serializers.SerializerMethodField()

    def get_events_url(self, run) -> str:
        return f"/api/runs/run_{run.id.hex}/events"


_EVENTS = "\n".join(f"* `{name}`: {about}" for name, about in vocabulary.ABOUT.items())


class EventsQuery(serializers.Serializer):
    after = serializers.IntegerField(required=False, min_value=0, max_value=2**53, help_text="The last event that was seen. `Last-Event-ID` says the same and wins.")


class Event(Output):
    seq = serializers.IntegerField()
    type = serializers.ChoiceField(list(vocabulary.ABOUT), help_text=_EVENTS)
    data = JsonObject()
    at = Time()


class EventPage(Output):
    results = Event(many=True)
    next_cursor = serializers.CharField(allow_null=True)
    previous_cursor = serializers.CharField(allow_null=True)


class ModelCall(Output):
    number = serializers.IntegerField()
    provider = serializers.CharField()
    model = serializers.CharField()
    input_tokens = serializers.IntegerField()
    cached_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    reasoning_tokens = serializers.IntegerField()
    is_estimated = serializers.BooleanField()
    cost = Decimal(allow_null=True, max_digits=14)
    prices = Json()
    layers = serializers.SerializerMethodField(help_text="What the model saw, by layer: tokens, sources, what was left out and why.")
    duration_ms = serializers.IntegerField()
    at = Time()

    @extend_schema_field(serializers.ListField(child=serializers.DictField()))
    def get_layers(self, call) -> list[dict]:
        """Without the texts that the ledger keeps: reading those is a request of its own, and recorded."""
        return [{name: value for name, value in layer.items() if name != "text"} for layer in call.context]


class BehindPiece(Output):
    source = serializers.CharField(help_text="The number of an item, the name of a tool, a range, a path, or `call` for what the report itself keeps.")
    text = serializers.CharField()


class Behind(Output):
    """The texts behind one layer of a context report."""

    layer = serializers.CharField()
    pieces = BehindPiece(many=True)
    is_cut = serializers.BooleanField(help_text="There are more than are read at once; these are the first.")


# Approvals
class ApprovalFilters(Paging):
    status = serializers.ChoiceField(ApprovalModel.Status.choices, required=False)
    agent = serializers.CharField(required=False, max_length=64, help_text="The agent's name.")
    session = serializers.CharField(required=False, max_length=40, help_text="A session's id.")
    run = serializers.CharField(required=False, max_length=40, help_text="A run's id.")


class Approval(Output):
    """A tool call that waits, or waited, for a person."""

    id = Id("apr")
    run_id = Id("run")
    session_id = Id("ses", allow_null=True)
    agent_id = Id("agt")
    subject_id = Id("sub", allow_null=True)
    call_id = serializers.CharField()
    tool = serializers.CharField()
    origin = serializers.CharField()
    arguments = JsonObject()
    edited_arguments = JsonObject(allow_null=True)
    status = serializers.ChoiceField(ApprovalModel.Status.choices)
    reason = serializers.CharField()
    decided_by = serializers.CharField()
    decided_at = Time(allow_null=True)
    rule_id = Id("rul", allow_null=True)
    created_at = Time()
    expires_at = Time()


class Decision(Strict):
    decision = serializers.ChoiceField(["approve", "reject"])
    reason = Text(required=False, default="", allow_blank=True, max_length=2000, help_text="The model reads it.")
    arguments = JsonObject(required=False, allow_null=True, default=None, help_text="Run the tool with these instead.")
    remember = JsonObject(required=False, allow_null=True, default=None, help_text=REMEMBER_HELP)


class RunDetail(RunSummary):
    """A run with its answer."""

    output = serializers.SerializerMethodField(help_text="The text of the answer, once there is one.")
    output_json = serializers.SerializerMethodField(help_text="The answer of an agent that answers as JSON, outside a session.")
    approvals = serializers.SerializerMethodField(help_text="The calls that the run waits for.")

    def get_output(self, run) -> str | None:
        return queries.answer_of(run)

    def get_output_json(self, run) -> dict | None:
        return (run.output or {}).get("output")

    @extend_schema_field(Approval(many=True))
    def get_approvals(self, run):
        if run.status != RunModel.Status.AWAITING_APPROVAL:
            return []
        return Approval(queries.approvals_of(run.tenant_id, status="pending").filter(run_id=run.id), many=True).data


class RuleFilters(Paging):
    agent = serializers.CharField(required=False, max_length=64, help_text="The agent's name.")
    tool = serializers.CharField(required=False, max_length=200)


class RuleBody(Strict):
    agent = Name(max_length=64, help_text="The agent's name.")
    session_id = Id("ses", required=False, allow_null=True, default=None, help_text="Only for this session.")
    tool = Name(max_length=200)
    origin = Name(max_length=200, help_text="Where the tool comes from, as an approval shows it.")
    condition = JsonObject(
        required=False, allow_null=True, default=None, help_text='Which arguments: {"path": {"equals": value}} or {"path": {"prefix": "drafts/"}}.'
    )
    expires_in_days = serializers.IntegerField(required=False, allow_null=True, default=None, min_value=1, max_value=3650)


class ApprovalRule(Output):
    """A standing answer: this tool of this origin runs without asking, until the rule expires or is revoked."""

    id = Id("rul")
    agent = serializers.CharField(source="agent.name")
    session_id = Id("ses", allow_null=True, help_text="Null for every session of the agent.")
    tool = serializers.CharField()
    origin = serializers.CharField()
    condition = JsonObject(allow_null=True, help_text="What the arguments must be; null for any.")
    created_by = serializers.CharField()
    created_at = Time()
    expires_at = Time(allow_null=True)
