"""What to do about a run that failed, by the code of its error."""

from dataclasses import dataclass

from django.utils.translation import gettext_lazy


@dataclass(frozen=True, slots=True)
class Advice:
    """A sentence, and the page (name of its URL) where it is done. `of_agent`: that page takes the agent's name."""

    text: str
    page: str = ""
    action: str = ""
    of_agent: bool = False


_PROVIDERS = ("providers", gettext_lazy("Open providers"))
_ADVICE = {
    "provider_auth": Advice(gettext_lazy("The provider refused the key. Enter a valid one and test the connection, then send the message again."), *_PROVIDERS),
    "provider_rate_limited": Advice(gettext_lazy("The provider's rate limit was reached. Wait a little, lower the provider's concurrency, or add a fallback model to the agent."), *_PROVIDERS),
    "provider_overloaded": Advice(gettext_lazy("The provider had too much to do. Send the message again in a moment, or add a fallback model to the agent."), *_PROVIDERS),
    "provider_unreachable": Advice(gettext_lazy("Nothing answered at the provider's address. Check it and test the connection."), *_PROVIDERS),
    "provider_timeout": Advice(gettext_lazy("The provider took too long. Send the message again, or add a fallback model to the agent."), *_PROVIDERS),
    "provider_bad_response": Advice(gettext_lazy("The provider's answer could not be read. Check that the kind of provider and its address belong together."), *_PROVIDERS),
    "provider_rejected": Advice(gettext_lazy("The provider refused the request. Check the model's settings in the agent's definition."), "agent", gettext_lazy("Open the agent"), True),
    "model_not_found": Advice(gettext_lazy("The provider does not know this model. Choose another one in the agent's definition."), "agent", gettext_lazy("Open the agent"), True),
    "context_too_long": Advice(gettext_lazy("The conversation no longer fits the model. Choose a model with a larger window, or start a new session."), "agent", gettext_lazy("Open the agent"), True),
    "content_filtered": Advice(gettext_lazy("The provider's content filter stopped the answer. Put the request into other words.")),
    "halted": Advice(gettext_lazy("The run went in circles and an alert ended it. The timeline shows what it repeated: change the instructions or the tool, then send the message again."), "agent", gettext_lazy("Open the agent"), True),
    "definition_invalid": Advice(gettext_lazy("The definition has problems that keep it from running. The editor lists them."), "agent", gettext_lazy("Open the agent"), True),
    "internal_error": Advice(gettext_lazy("Something failed inside Lethe. What the run had stored is kept; the server's log has the cause under the run's id.")),
}  # fmt: skip
_BY_CLASS = {
    "provider": Advice(gettext_lazy("The provider could not answer. Test its connection, then send the message again."), *_PROVIDERS),
    "configuration": Advice(gettext_lazy("A setting of the provider or the agent keeps it from running."), *_PROVIDERS),
}
_OTHERWISE = Advice(gettext_lazy("What the run had stored is kept. Send the message again, or start a new session."))


def advice(error: dict | None) -> Advice | None:
    """What to do about a run's error; None when there is none."""
    if not error:
        return None
    return _ADVICE.get(error.get("code", "")) or _BY_CLASS.get(error.get("class", "")) or _OTHERWISE
