"""What can go wrong with sessions, runs, approvals and quotas, in sentences that a person can act on."""

from governance.errors import Conflict, Invalid, Limited, NotFound, Unavailable, Unprocessable


# Sessions
class InvalidSessionKey(Invalid):
    code, title = "invalid_session_key", "The session id is not valid"
    detail = "A session id has 1 to 200 printable characters."

    def __init__(self, detail: str | None = None):
        super().__init__(detail, errors={"session_id": [detail or self.detail]})


class SessionBusy(Conflict):
    """Another turn holds the session. Nothing was spent; `extra["run_id"]` names the turn when it is known."""

    code, title = "session_busy", "The session is busy"
    detail = "Another turn of this session is running. Wait for it to end, or cancel it, and send the message again."


class SessionClosed(Conflict):
    """A closed session takes no turn: closing has already fired what happens at its end. Reopen it first."""

    code, title = "session_closed", "The session is closed"
    detail = "This session is closed. Reopen it, or use another session id."


class SessionConflict(Conflict):
    """A write expected another version of the session. Nothing was changed."""

    code, title = "session_conflict", "The session changed meanwhile"
    detail = "The session was changed by somebody else after it was read. Read it again and repeat the change."


class SessionAmbiguous(Conflict):
    """The caller's key names several sessions. `extra["ids"]` lists them."""

    code, title = "session_ambiguous", "More than one session has this key"
    detail = "More than one session has this key. Use one of the ids that are listed."


class SessionStateUnreadable(Conflict):
    """The stored state was written by software that this one cannot read. History stays readable."""

    code, title = "session_state_unreadable", "The session's state cannot be read"

    def __init__(self, *, schema: int, software: str, current_schema: int, current_software: str):
        super().__init__(
            f"The state of this session was written by Lethe {software} (format {schema}); this is Lethe"
            f" {current_software} (format {current_schema}). Its history can still be read.",
            schema=schema,
            software=software,
            current_schema=current_schema,
            current_software=current_software,
        )


# Compaction
class NoSummaries(Conflict):
    """The agent's compaction writes no summaries, so there is nothing that a session could be compacted to."""

    code, title = "no_summaries", "This agent writes no summaries"
    detail = "This agent's compaction does not summarise. Choose the strategy summary or pipeline for it and publish that."


class NothingToCompact(Conflict):
    code, title = "nothing_to_compact", "There is nothing to summarise"
    detail = "What this session holds beyond its newest turns is summarised already, or is too short to be worth a summary."


class SummaryFailed(Conflict):
    """The model wrote nothing that could be kept. `extra["reason"]` says why; the history is unchanged."""

    code, title = "summary_failed", "The summary could not be written"

    def __init__(self, *, reason: str):
        super().__init__(
            f"The summary could not be written ({reason.replace('_', ' ')}). The conversation is unchanged; try again later.",
            reason=reason,
        )


# Requests
class EmptyMessage(Invalid):
    code, title = "empty_message", "There is no message"
    detail = "Send a message, or decisions on the approvals that the run waits for."

    def __init__(self, detail: str | None = None):
        super().__init__(detail, errors={"message": [detail or self.detail]})


class MessageTooLong(Invalid):
    code, title = "message_too_long", "The message is too long"

    def __init__(self, *, characters: int, limit: int):
        detail = f"The message has {characters:,} characters; at most {limit:,} are allowed."
        super().__init__(detail, errors={"message": [detail]}, limit=limit)


class AttachmentInvalid(Invalid):
    """An attachment cannot be taken. `path` names it, such as `attachments.2.data`."""

    code, title = "attachment_invalid", "An attachment cannot be taken"

    def __init__(self, path: str, detail: str):
        super().__init__(detail, errors={path: [detail]})


class IdempotencyMismatch(Unprocessable):
    code, title = "idempotency_mismatch", "The idempotency key was used for another request"
    detail = "This Idempotency-Key was sent with another body. Use a new key for a new request."


class IdempotencyBusy(Conflict):
    code, title = "idempotency_busy", "The first request with this key is still being taken in"
    detail = "A request with this Idempotency-Key is being taken in at this moment. Send it again in a few seconds."


class Draining(Unavailable):
    code, title = "draining", "Lethe is shutting down"
    detail = "This process is shutting down and takes no new work. Send the request again in a few seconds."

    def __init__(self, detail: str | None = None, *, retry_after: int | None = 5):
        super().__init__(detail, retry_after=retry_after)


class QueueFull(Limited):
    code, title = "queue_full", "Too many turns are waiting"
    detail = "Too many turns wait for this session already. Send the message again when some of them have ended."

    def __init__(self, detail: str | None = None, *, retry_after: int | None = 5, **extra):
        super().__init__(detail, retry_after=retry_after, **extra)


class QuotaExceeded(Limited):
    """A quota leaves no room until its period ends. `extra["quota"]` says which; `retry_after` is in seconds."""

    code, title = "quota_exceeded", "A quota is used up"

    def __init__(self, detail: str, *, quota: dict, retry_after: int):
        super().__init__(detail, retry_after=retry_after, quota=quota)
        self.which = quota


class RunFinished(Conflict):
    code, title = "run_finished", "The run has ended"
    detail = "This run has ended, so nothing more can be done with it."


# Approvals
class ApprovalUnknown(NotFound):
    """Forged, foreign and deleted ids look the same."""

    code, title = "approval_unknown", "No such approval"
    detail = "There is no such approval, or it is not yours."


class DecisionConflict(Conflict):
    """A different decision is stored. `extra["status"]` says which."""

    code, title = "decision_conflict", "It was decided otherwise"

    def __init__(self, *, status: str):
        super().__init__(
            f"This call was already {status}; a decision cannot be turned into another one.", status=status
        )


class AlreadyDecided(DecisionConflict):
    """It ended without a person: it expired, or the run was cancelled. It can no longer be decided."""

    code, title = "already_decided", "It can no longer be decided"

    def __init__(self, *, status: str):
        why = {
            "expired": "nobody decided in time, which counts as a rejection",
            "withdrawn": "the run was cancelled or went on without it",
        }[status]
        Conflict.__init__(self, f"This call can no longer be decided: {why}.", status=status)


class InvalidDecision(Invalid):
    code, title = "invalid_decision", "The decision is not valid"


class ArgumentsInvalid(Unprocessable):
    """Edited arguments do not fit the tool's schema. `errors` names each place, such as `arguments.limit`."""

    code, title = "arguments_invalid", "The edited arguments do not fit the tool"

    def __init__(self, errors: dict[str, list[str]]):
        super().__init__("The edited arguments do not fit what the tool accepts.", errors=errors)


class ToolGone(Conflict):
    """Arguments were edited, but the tool that could check them is not there any more."""

    code, title = "tool_gone", "The tool is not available"

    def __init__(self, tool: str):
        super().__init__(f"The tool “{tool}” is not available, so edited arguments cannot be checked.", tool=tool)


class InvalidRule(Invalid):
    code, title = "invalid_rule", "The standing answer is not valid"


# Quotas
class InvalidQuota(Invalid):
    code, title = "invalid_quota", "The quota is not valid"


class QuotaExists(Conflict):
    code, title = "quota_exists", "There is such a quota already"
    detail = "This limit is set already. Change the one that exists."


# Files
class PathRefused(Invalid):
    """The text cannot be the path of a file. The sentence says why, to a person and to a model."""

    code, title = "path_refused", "This cannot be the name of a file"

    def __init__(self, detail: str):
        super().__init__(detail, errors={"path": [detail]})


class FileUnknown(NotFound):
    code, title = "file_unknown", "No such file"
    detail = "There is no such file, or it is not yours."


class FileChanged(Conflict):
    """A write expected another content than is stored; nothing was written. `version` is what is stored, None for no file."""

    code, title = "file_changed", "The file changed meanwhile"
    detail = "The file was changed by somebody else after it was read. Read it again and repeat the change."

    def __init__(self, *, version: str | None):
        super().__init__(version=version)
        self.version = version


class FileTooLarge(Unprocessable):
    code, title = "file_too_large", "The file is too large"

    def __init__(self, *, size: int, limit: int):
        super().__init__(f"The file would have {size:,} bytes; at most {limit:,} are allowed.", size=size, limit=limit)


class WorkspaceFull(Conflict):
    """The write would pass a limit; nothing was written. `extra` has the numbers, in bytes as workspaces count them."""

    code, title = "workspace_full", "The workspace is full"

    def __init__(self, *, whose: str, used: int, limit: int, more: int):
        super().__init__(
            f"Workspace quota reached: the files of this {whose} take {used:,} of {limit:,} bytes and this would add {more:,}"
            " (each file counts 1,024 bytes more than its text). Delete or shorten files first.",
            whose=whose, used=used, limit=limit, more=more,
        )  # fmt: skip


class EditRefused(Unprocessable):
    """A change or a search that a text does not allow. The sentence says why, to a person and to a model."""

    code, title = "edit_refused", "This cannot be done with the file"


class StoreUnavailable(Unavailable):
    """The place where files are kept does not answer. Nothing was written."""

    code, title = "file_store_unavailable", "The files cannot be reached"

    def __init__(self, place: str, *, retry_after: int | None = 30):
        super().__init__(f"The files ({place}) cannot be reached at the moment. Nothing was written; try again later.", retry_after=retry_after)
