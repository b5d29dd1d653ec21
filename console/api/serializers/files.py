from rest_framework import serializers

from console.api.operations import Paging
from console.api.serializers.base import Id, Name, Output, Strict, Text, Time
from console.api.serializers.sessions import SessionQuery

SCOPES = ("subject", "agent", "tenant")
SCOPE_HELP = "Whose files: of the person that the call speaks for, of all people of the agent, or of all agents of the tenant."
MOST_TEXT = 8 * 1024 * 1024


class WorkspaceFilters(SessionQuery, Paging):
    pass


class WorkspaceFile(Output):
    """A file of a session, without its text."""

    path = serializers.CharField()
    size = serializers.IntegerField(help_text="Bytes of its text.")
    version = serializers.CharField(source="sha256", help_text="SHA-256 of its text; the ETag.")
    written_by = serializers.CharField(help_text="Who wrote it last.")
    run_id = Id("run", allow_null=True, help_text="The run that wrote it last.")
    created_at = Time()
    updated_at = Time()


class WorkspaceContent(WorkspaceFile):
    """A file of a session with its text."""

    content = serializers.CharField()


class FileText(Strict):
    content = Text(allow_blank=True, trim_whitespace=False, max_length=MOST_TEXT, help_text="The whole text.")


class FileFilters(Paging):
    agent = serializers.CharField(required=False, max_length=64, help_text="The agent's name.")
    subject = serializers.CharField(required=False, max_length=200, help_text="A subject's id or reference.")
    scope = serializers.ChoiceField(SCOPES, required=False, help_text=SCOPE_HELP)
    below = serializers.CharField(required=False, max_length=400, help_text="The beginning of the path, such as /memory/.")
    q = serializers.CharField(required=False, max_length=200, help_text="Words in the text.")


class AgentFile(Output):
    """A file that an agent keeps, without its text."""

    id = Id("fil")
    agent = serializers.CharField(source="agent.name", default=None, allow_null=True)
    scope = serializers.ChoiceField(SCOPES)
    subject_id = Id("sub", allow_null=True)
    path = serializers.CharField()
    size = serializers.IntegerField(help_text="Bytes of its text.")
    version = serializers.CharField(source="sha256", help_text="SHA-256 of its text; the ETag.")
    written_by = serializers.CharField(help_text="Who wrote it last.")
    run_id = Id("run", allow_null=True, help_text="The run that wrote it last.")
    created_at = Time()
    updated_at = Time()


class AgentFileContent(AgentFile):
    """A file that an agent keeps, with its text."""

    content = serializers.CharField(source="text")


class AgentFileBody(FileText):
    agent = Name(max_length=64, help_text="The agent's name.")
    scope = serializers.ChoiceField(SCOPES, default="subject", help_text=SCOPE_HELP)
    path = Text(max_length=1000, help_text="For example /memory/preferences.md")


class SearchFilters(serializers.Serializer):
    agent = serializers.CharField(max_length=64, help_text="The agent's name.")
    scope = serializers.ChoiceField(SCOPES, default="subject", help_text=SCOPE_HELP)
    q = serializers.CharField(max_length=500, help_text="Words to look for; a word also finds longer ones that begin with it.")
    below = serializers.CharField(default="", max_length=400, help_text="Only files in this folder.")
    limit = serializers.IntegerField(default=10, min_value=1, max_value=50)


class Line(Output):
    path = serializers.CharField()
    line = serializers.IntegerField(source="number", help_text="Counted from 1.")
    score = serializers.FloatField(help_text="Between 0 and 1; rises with how well the line fits.")
    text = serializers.CharField()


class Lines(Output):
    results = Line(many=True)
