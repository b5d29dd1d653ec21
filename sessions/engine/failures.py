"""What an error of the model library means: for the client, for the next attempt, for the circuit breaker."""

from dataclasses import dataclass

import httpx2
from pydantic_ai import exceptions as library

from sessions.engine import errors
from sessions.engine.models import Candidate


@dataclass(frozen=True, slots=True)
class Failure:
    """`retry`: the same model may answer in a moment. `fall_back`: another one may. `trips`: counts for the breaker."""

    code: str
    message: str
    detail: str
    retry: bool = False
    fall_back: bool = False
    trips: bool = False
    retry_after: float | None = None


# First match wins: subclasses before their bases. (class, code, sentence, retry, fall back, trips)
_KNOWN = (
    (library.ModelQuotaExceededError, errors.PROVIDER_RATE_LIMITED, "has no quota or credit left", False, True, False),
    (library.ModelRateLimitError, errors.PROVIDER_RATE_LIMITED, "is limiting its requests", True, True, False),
    (library.ModelUnavailableError, errors.PROVIDER_OVERLOADED, "is overloaded", True, True, True),
    (library.ModelServerError, errors.PROVIDER_OVERLOADED, "is failing at the moment", True, True, True),
    (library.ModelRequestTimeout, errors.PROVIDER_TIMEOUT, "did not answer in time", False, True, True),
    (library.ModelTimeoutError, errors.PROVIDER_TIMEOUT, "did not answer in time", False, True, True),
    (library.ModelConnectionError, errors.PROVIDER_UNREACHABLE, "cannot be reached", True, True, True),
    (library.ModelAuthenticationError, errors.PROVIDER_AUTH, "refused the key", False, False, False),
    (library.ContentFilterError, errors.CONTENT_FILTERED, "withheld the answer", False, False, False),
)


def classify(error: BaseException, candidate: Candidate) -> Failure:
    detail = _detail(error, candidate)
    name = f"The provider “{candidate.provider.name}”"
    if isinstance(error, library.ModelContextWindowExceededError):
        message = f"The conversation is too long for the model “{candidate.model}”."
        return Failure(errors.CONTEXT_TOO_LONG, message, detail)
    if isinstance(error, library.ModelNotFoundError):
        message = f"{name} has no model “{candidate.model}”."
        return Failure(errors.MODEL_NOT_FOUND, message, detail)
    for kind, code, sentence, retry, fall_back, trips in _KNOWN:
        if isinstance(error, kind):
            after = getattr(error, "retry_after", None)
            return Failure(code, f"{name} {sentence}.", detail, retry, fall_back, trips, after)
    if isinstance(error, library.ModelRequestRejectedError | library.UserError):
        message = f"{name} refused the request. Check the agent's model settings."
        return Failure(errors.PROVIDER_REJECTED, message, detail)
    if isinstance(error, TimeoutError | httpx2.TimeoutException):
        return Failure(errors.PROVIDER_TIMEOUT, f"{name} did not answer in time.", detail, False, True, True)
    if isinstance(error, httpx2.HTTPError | OSError):
        return Failure(errors.PROVIDER_UNREACHABLE, f"{name} cannot be reached.", detail, True, True, True)
    message = f"{name} sent an answer that cannot be read."
    return Failure(errors.PROVIDER_BAD_RESPONSE, message, detail, False, True, True)


def ended_early(candidate: Candidate) -> Failure:
    """The stream ended before the answer did, and nothing of it was shown."""
    message = f"The provider “{candidate.provider.name}” ended its answer early."
    return Failure(errors.PROVIDER_BAD_RESPONSE, message, "the stream ended without a finish reason", True, True, True)


def switched_off(candidate: Candidate) -> Failure:
    """The circuit breaker is open."""
    message = f"The provider “{candidate.provider.name}” failed repeatedly and is not asked for a while."
    return Failure(errors.PROVIDER_UNREACHABLE, message, "circuit open", fall_back=True)


def _detail(error: BaseException, candidate: Candidate) -> str:
    """The provider's own words, for the log: never with the key in them."""
    text = f"{type(error).__name__}: {error}"
    if (cause := error.__cause__) is not None:
        text += f" <- {type(cause).__name__}: {cause}"
    if key := candidate.provider.key:
        text = text.replace(key, "[key]")
    return text[:2000]
