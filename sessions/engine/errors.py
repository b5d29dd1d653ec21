"""What can go wrong with a model, in words for the client. The provider's own text goes to the log only."""

PROVIDER_AUTH = "provider_auth"
PROVIDER_RATE_LIMITED = "provider_rate_limited"
PROVIDER_OVERLOADED = "provider_overloaded"
PROVIDER_UNREACHABLE = "provider_unreachable"
PROVIDER_TIMEOUT = "provider_timeout"
PROVIDER_BAD_RESPONSE = "provider_bad_response"
PROVIDER_REJECTED = "provider_rejected"
MODEL_NOT_FOUND = "model_not_found"
CONTEXT_TOO_LONG = "context_too_long"
CONTENT_FILTERED = "content_filtered"
# Not the model failed, but what it was doing led nowhere.
HALTED = "halted"

# Who has to act: the provider recovers, somebody changes a setting, the conversation gets shorter, the text changes.
_CLASSES = {
    PROVIDER_AUTH: "configuration",
    PROVIDER_REJECTED: "configuration",
    MODEL_NOT_FOUND: "configuration",
    CONTEXT_TOO_LONG: "context",
    CONTENT_FILTERED: "content",
    HALTED: "halted",
}


class ModelFailed(Exception):
    """No answer of a model, and no other model to ask.

    `code` is stable, `message` is a sentence for the client, `detail` is for the log and may quote the provider.
    `reference` is the id under which the log has it; it ends `message`.
    """

    def __init__(self, code: str, message: str, *, detail: str = "", reference: str = ""):
        self.code = code
        self.kind = _CLASSES.get(code, "provider")
        self.message = f"{message} (reference {reference})" if reference else message
        self.detail = detail
        self.reference = reference
        super().__init__(self.message)

    def as_dict(self) -> dict[str, str]:
        """What is stored as the run's error: {"class", "code", "message"}."""
        return {"class": self.kind, "code": self.code, "message": self.message}
