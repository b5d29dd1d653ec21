from rest_framework import serializers

from agents.models import McpServer as McpServerModel
from console.api.serializers.base import Id, Json, JsonObject, Name, Output, Strict, Text, Time

_PATTERNS = "Patterns of the server's own names, such as `read_*`."


class McpServerChanges(Strict):
    url = Text(required=False, allow_blank=True, max_length=500)
    command = Text(required=False, allow_blank=True, max_length=300, help_text="For stdio: one of the programs that the operator allows.")
    args = serializers.ListField(child=Text(max_length=500, allow_blank=True), required=False, max_length=50)
    secrets = JsonObject(
        required=False, write_only=True,
        help_text="Headers over HTTP, environment variables of a program: {name: value}, the whole set. Stored encrypted, never shown again.",
    )  # fmt: skip
    tool_filter = serializers.ListField(child=Text(max_length=130), required=False, max_length=200, help_text=f"{_PATTERNS} None: all tools.")
    reading_tools = serializers.ListField(
        child=Text(max_length=130), required=False, max_length=200, help_text=f"Tools that change nothing: callable in plan mode. {_PATTERNS}"
    )
    asks_approval = serializers.BooleanField(required=False, help_text="Each call waits for a person unless the agent says otherwise.")
    timeout_s = serializers.IntegerField(required=False, min_value=1, max_value=600)
    is_disabled = serializers.BooleanField(required=False)


class McpServerBody(McpServerChanges):
    name = Name(max_length=32)
    transport = serializers.ChoiceField(McpServerModel.Transport.choices, default="http")


class McpServer(Output):
    """A server of tools and texts. Its secrets are never shown."""

    id = Id("mcp")
    name = serializers.CharField()
    transport = serializers.ChoiceField(McpServerModel.Transport.choices)
    url = serializers.CharField()
    command = serializers.CharField()
    args = serializers.ListField(child=serializers.CharField())
    secret_names = serializers.ListField(child=serializers.CharField())
    tool_filter = serializers.ListField(child=serializers.CharField())
    reading_tools = serializers.ListField(child=serializers.CharField())
    asks_approval = serializers.BooleanField()
    timeout_s = serializers.IntegerField()
    is_disabled = serializers.BooleanField()
    tools = Json(help_text="As of the last check: [{name, offered, description, schema, reads}]. Definitions name a tool as `offered`.")
    resources = Json(help_text="Texts, and templates of them: [{uri, name, description, mime_type, is_template}].")
    last_check = Json(help_text="{ok, code, message, latency_ms, left_out, at}; null when nobody has checked it yet.")
    created_at = Time()
    updated_at = Time()
