from rest_framework import serializers

from agents.models import Agent as AgentModel
from agents.models import Provider as ProviderModel
from console.api.operations import Paging
from console.api.serializers.base import Decimal, Id, Json, JsonObject, Name, Output, Strict, Text, Time


class Document(Strict):
    """A definition, as it is or as {"definition": {...}}. What is in it is judged by the compile report, not here."""

    def to_internal_value(self, data):
        if isinstance(data, dict) and set(data) == {"definition"}:
            data = data["definition"]
        if not isinstance(data, dict):
            raise serializers.ValidationError({"non_field_errors": ["Expected an object."]})
        return {"document": data}


class PreviewMessage(Strict):
    role = serializers.ChoiceField(("user", "assistant"))
    text = Text(max_length=200_000, allow_blank=True)


class ContextPreviewBody(Strict):
    session_id = Id("ses", required=False, help_text="A stored session. Its last turn is taken as the current one.")
    messages = serializers.ListField(
        child=PreviewMessage(), required=False, min_length=1, max_length=2_000, help_text="Instead of a session: a conversation."
    )
    definition = JsonObject(
        required=False, default=dict, help_text="Settings to try: a JSON merge patch of the draft. Nothing is saved."
    )

    def validate(self, data):
        if ("session_id" in data) == ("messages" in data):
            raise serializers.ValidationError({"session_id": ["Send either session_id or messages."]})
        return data


class ContextPart(Output):
    """Items in a row that share a fate."""

    fate = serializers.ChoiceField(("kept", "shortened", "summarised", "dropped"))
    from_seq = serializers.IntegerField()
    to_seq = serializers.IntegerField()
    items = serializers.IntegerField()
    tokens = serializers.IntegerField(help_text="As they are stored.")
    after = serializers.IntegerField(help_text="As the model would see them; those of a summary are in the layers.")


class AssemblyStep(Output):
    """What an assembly step that takes away left of the conversation."""

    policy = serializers.CharField()
    shown = serializers.IntegerField(help_text="Entries that it left.")
    total = serializers.IntegerField(help_text="Entries that it found.")


class ContextPreview(Output):
    strategy = serializers.CharField()
    before = serializers.IntegerField(help_text="Tokens of the whole conversation.")
    after = serializers.IntegerField(help_text="Tokens of it that the model would see.")
    window = serializers.IntegerField(allow_null=True)
    limit = serializers.IntegerField(allow_null=True, help_text="Tokens that may go in: the window without the room for the answer.")
    fits = serializers.BooleanField()
    layers = serializers.ListField(child=JsonObject())
    parts = ContextPart(many=True)
    steps = AssemblyStep(many=True, help_text="The assembly steps that take away, in their order.")


class AgentFilters(Paging):
    q = serializers.CharField(required=False, max_length=200, help_text="Part of the name, title or description.")
    archived = serializers.BooleanField(required=False, default=False, help_text="Archived agents instead of the others.")
    disabled = serializers.BooleanField(required=False, allow_null=True, default=None)
    published = serializers.BooleanField(required=False, allow_null=True, default=None)


class AgentSummary(Output):
    """An agent without its definition."""

    id = Id("agt")
    name = serializers.CharField()
    display_name = serializers.CharField()
    description = serializers.CharField()
    origin = serializers.ChoiceField(AgentModel.Origin.choices)
    is_disabled = serializers.BooleanField()
    archived_at = Time(allow_null=True)
    published_version = serializers.IntegerField(source="published.number", default=None, allow_null=True)
    draft_counter = serializers.IntegerField(help_text="Rises with every save of the draft; the number in the ETag.")
    draft_saved_at = Time()
    draft_saved_by = serializers.CharField()
    created_at = Time()


class Agent(AgentSummary):
    """An agent with the draft of its definition."""

    definition = JsonObject(source="draft", help_text="The draft: a definition that may still have problems.")


class PublishBody(Strict):
    note = Text(required=False, default="", allow_blank=True, max_length=2000, help_text="What changed, for the list of versions.")


class RollbackBody(Strict):
    number = serializers.IntegerField(min_value=1, max_value=2**31 - 1, help_text="The version to publish again.")
    note = Text(required=False, default="", allow_blank=True, max_length=2000)


class DeleteAgentQuery(serializers.Serializer):
    with_sessions = serializers.BooleanField(
        default=False, help_text="Delete the agent's sessions, runs and history with it. Without it, an agent that has any is kept."
    )


class AgentVersionSummary(Output):
    number = serializers.IntegerField()
    digest = serializers.CharField(help_text="SHA-256 of the canonical definition.")
    note = serializers.CharField()
    published_by = serializers.CharField()
    created_at = Time()


class AgentVersion(AgentVersionSummary):
    definition = JsonObject(source="document")


class Change(Output):
    path = serializers.CharField()
    kind = serializers.ChoiceField(["added", "removed", "changed"])
    old = Json()
    new = Json()
    lines = Json(help_text="A line diff, for long texts.")


class Diff(Output):
    old = serializers.CharField(help_text="What is compared: a version's number, or `draft`.")
    new = serializers.CharField()
    changes = Change(many=True)


class CompileMessage(Output):
    severity = serializers.ChoiceField(["error", "warning", "info"])
    code = serializers.CharField()
    path = serializers.CharField(allow_blank=True, help_text="The field that the message is about.")
    message = serializers.CharField()
    hint = serializers.CharField(allow_null=True, allow_blank=True)
    fixes = Json(default=list, help_text="Changes that would solve it: [{label, changes by path}].")


class CompileReport(Output):
    valid = serializers.BooleanField()
    inconclusive = serializers.BooleanField(help_text="Something could not be judged, such as tools of a server that is not reachable.")
    messages = CompileMessage(many=True)


class ImportBody(Strict):
    """A file that `export` wrote: by itself, or as `document` beside what to do with it."""

    document = JsonObject(help_text="A file that `export` wrote.")
    name = Name(required=False, allow_null=True, default=None, max_length=64, help_text="Import it under another name.")
    allow_missing = serializers.BooleanField(default=False, help_text="Import it unpublished when something is missing here.")
    dry_run = serializers.BooleanField(default=False, help_text="Only say what is missing here; write nothing.")

    def to_internal_value(self, data):
        if isinstance(data, dict) and "format" in data and "document" not in data:
            data = {"document": data}
        return super().to_internal_value(data)


class ImportQuery(serializers.Serializer):
    dry_run = serializers.BooleanField(required=False, help_text="As in the body, for a file that is sent by itself.")


class ImportCheck(Output):
    """What importing would meet."""

    name = serializers.CharField()
    exists = serializers.BooleanField(help_text="An agent of this name is here already.")
    versions = serializers.IntegerField()
    publishes = serializers.BooleanField(help_text="What was published would be published here too.")
    skills = Json(help_text="Skills that come with it: [{name, exists}]. Those that exist here stay as they are.")
    missing = Json(help_text="What the agent refers to and this tenant does not have: [{kind, name, path, message}].")
    report = JsonObject(help_text="The compile report of what would be published.")


class ListedModel(Strict):
    name = Name(max_length=200)
    context_window = serializers.IntegerField(required=False, allow_null=True, min_value=1, max_value=100_000_000)
    max_output_tokens = serializers.IntegerField(required=False, allow_null=True, min_value=1, max_value=100_000_000)
    input_price = Decimal(required=False, allow_null=True, min_value=0, help_text="US dollars for a million tokens.")
    cached_input_price = Decimal(required=False, allow_null=True, min_value=0)
    output_price = Decimal(required=False, allow_null=True, min_value=0)


class Pricing(Strict):
    web_search = Decimal(required=False, allow_null=True, min_value=0, help_text="US dollars for 1,000 searches of the provider's own.")


class ProviderChanges(Strict):
    base_url = Text(required=False, allow_blank=True, max_length=500)
    key = Text(required=False, allow_blank=True, max_length=4000, write_only=True, help_text="Stored encrypted, never shown again.")
    key_env = Name(required=False, allow_blank=True, max_length=100, help_text="An environment variable that holds the key instead.")
    api = serializers.ChoiceField(["responses", "chat"], required=False)
    models = ListedModel(many=True, required=False)
    pricing = Pricing(required=False, help_text="What is paid for besides tokens; list prices where it says nothing.")
    max_concurrency = serializers.IntegerField(required=False, allow_null=True, min_value=1, max_value=100_000)
    is_disabled = serializers.BooleanField(required=False)


class ProviderBody(ProviderChanges):
    name = Name(max_length=64)
    kind = serializers.ChoiceField(ProviderModel.Kind.choices)


class Provider(Output):
    """Where models are reached. Its key is never shown."""

    id = Id("prv")
    name = serializers.CharField()
    kind = serializers.ChoiceField(ProviderModel.Kind.choices)
    base_url = serializers.CharField()
    api = serializers.ChoiceField(["responses", "chat"])
    has_key = serializers.SerializerMethodField()
    key_hint = serializers.CharField(help_text="The last characters of the key.")
    key_env = serializers.CharField()
    models = Json(source="model_list")
    pricing = JsonObject(help_text="{web_search}: US dollars for 1,000 searches.")
    max_concurrency = serializers.IntegerField(allow_null=True)
    is_disabled = serializers.BooleanField()
    open_until = Time(allow_null=True, help_text="Calls are held back until then, after repeated failures.")
    last_test = Json()
    created_at = Time()
    updated_at = Time()

    def get_has_key(self, provider) -> bool:
        return bool(provider.key_enc)


class ProviderTestBody(Strict):
    model = Name(required=False, default="", allow_blank=True, max_length=200, help_text="The model to try; the provider's first one otherwise.")


class ProviderTest(Output):
    ok = serializers.BooleanField()
    latency_ms = serializers.IntegerField(allow_null=True)
    code = serializers.CharField(allow_null=True, allow_blank=True)
    message = serializers.CharField(allow_blank=True)
    models = Json()


class UtilityModelBody(Strict):
    provider = Name(max_length=64, help_text="The name of a provider that is switched on.")
    model = Name(max_length=200, help_text="The model's name exactly as the provider spells it.")


class UtilityModel(Output):
    """The model for work beside the answers of agents. Both are null while none is set: each agent's own model does it then."""

    provider = serializers.CharField(allow_null=True)
    model = serializers.CharField(allow_null=True)


class Tool(Output):
    name = serializers.CharField()
    description = serializers.CharField()
    effect = serializers.ChoiceField(["read", "write", "destructive", "external"])
    origin = serializers.CharField()
    schema = JsonObject(help_text="JSON schema of the arguments.")
