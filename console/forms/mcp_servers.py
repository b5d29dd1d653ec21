"""The form of an MCP server."""

from django import forms
from django.conf import settings
from django.utils.translation import gettext_lazy as _

from agents.domain.mcp_servers import MOST_SECONDS
from agents.mcp.naming import MAX_SERVER_NAME
from agents.models import McpServer

_PLAIN = {"autocomplete": "off", "spellcheck": "false"}


def _lines(rows, **attrs):
    return forms.Textarea(attrs={"rows": rows, "spellcheck": "false", **attrs})


class McpServerForm(forms.Form):
    """`secrets` is write-only: what is stored never comes back to the page."""

    name = forms.CharField(label=_("Name"), max_length=MAX_SERVER_NAME, help_text=_("The beginning of its tools' names. Letters, digits, - and single _."), widget=forms.TextInput(attrs=_PLAIN))
    transport = forms.ChoiceField(label=_("How it is reached"), choices=McpServer.Transport.choices)
    url = forms.CharField(label=_("Address"), max_length=500, required=False, help_text=_("For HTTP."), widget=forms.URLInput(attrs={**_PLAIN, "placeholder": "https://tools.example.com/mcp"}))
    command = forms.CharField(label=_("Program"), max_length=300, required=False, widget=forms.TextInput(attrs=_PLAIN))
    args = forms.CharField(label=_("Arguments of the program"), required=False, max_length=20_000, help_text=_("One a line."), widget=_lines(3))
    secrets = forms.CharField(label=_("Headers or variables"), required=False, max_length=100_000, widget=_lines(3, autocomplete="off", placeholder="Authorization: Bearer …"))
    forget_secrets = forms.BooleanField(label=_("Forget what is stored"), required=False)
    tool_filter = forms.CharField(label=_("Only these tools"), required=False, max_length=20_000, help_text=_("One name or pattern a line, such as read_*. Left empty, all of them."), widget=_lines(3))
    reading_tools = forms.CharField(label=_("Tools that only read"), required=False, max_length=20_000, help_text=_("They may be called in plan mode. What the server itself says about its tools is not believed."), widget=_lines(3))
    timeout_s = forms.IntegerField(label=_("Seconds for a call"), min_value=1, max_value=MOST_SECONDS, initial=30)
    asks_approval = forms.BooleanField(label=_("Ask a person before each call"), required=False, initial=True, help_text=_("An agent's tool settings can say otherwise for single tools."))
    is_disabled = forms.BooleanField(label=_("Disabled"), required=False, help_text=_("No agent may use it until this is taken back."))

    def __init__(self, *args, server=None, **kwargs):
        super().__init__(*args, **kwargs)
        allowed = settings.LETHE["mcp_commands"]
        self.fields["command"].help_text = (
            _("One of: %s.") % ", ".join(allowed) if allowed else _("The operator has allowed no programs (LETHE_MCP_COMMANDS).")
        )
        if server and server.secrets_enc:
            names = ", ".join(server.secret_names)
            self.fields["secrets"].help_text = _("Stored: %s. Leave this empty to keep them; what you enter replaces all.") % names
        else:
            self.fields["secrets"].help_text = _("One a line, name: value. Stored encrypted, and never shown again.")
            del self.fields["forget_secrets"]
        if server is None:
            del self.fields["is_disabled"]
        else:
            # Definitions refer to the name, and secrets were given for a kind of place: both stay.
            del self.fields["name"], self.fields["transport"]

    def clean_secrets(self):
        found = {}
        for line in self.cleaned_data["secrets"].splitlines():
            name, colon, value = line.partition(":")
            if line.strip() and not colon:
                raise forms.ValidationError(_("Write each line as name: value."))
            if line.strip():
                found[name.strip()] = value.strip()
        return found

    def values(self) -> dict:
        """What the domain takes; secrets only when some were entered or are to be forgotten."""
        data = self.cleaned_data
        found = {name: data[name] for name in ("url", "command", "timeout_s", "asks_approval", "is_disabled") if name in data}
        for name in ("args", "tool_filter", "reading_tools"):
            found[name] = [line.strip() for line in data[name].splitlines() if line.strip()]
        if data["secrets"] or data.get("forget_secrets"):
            found["secrets"] = data["secrets"]
        return found


def initial_of(server) -> dict:
    if server is None:
        return {}
    plain = {name: getattr(server, name) for name in ("url", "command", "timeout_s", "asks_approval", "is_disabled")}
    return plain | {name: "\n".join(getattr(server, name)) for name in ("args", "tool_filter", "reading_tools")}
