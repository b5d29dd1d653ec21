"""What a turn needs of the database before its first model call: read with its beginning, or when it goes on."""

from collections.abc import Sequence
from dataclasses import dataclass

from agents.definition import SUMMARISES, Definition
from agents.models import Provider
from governance import sql
from sessions.context.compaction import compaction_of
from sessions.domain import history
from sessions.models import Run


@dataclass(frozen=True, slots=True)
class Opening:
    """The definition's providers that are switched on, and the newest page of the history; None without a session."""

    providers: list[Provider]
    page: list[tuple] | None


@dataclass(frozen=True, slots=True)
class Fresh:
    """A run that was stored a moment ago, with its agent, version and session, and what was read with that."""

    run: Run
    opening: Opening | None


def asking(run: Run, definition: Definition, *, after_seq: int = 0) -> list[sql.Write]:
    """The reads, for a batch with others; `read` makes the opening of their rows."""
    names = {definition.model.provider, *(fallback.provider for fallback in definition.model.fallbacks)}
    reads = [_PROVIDERS.asking([run.tenant_id, list(names)])]
    if run.session is not None:
        reads.append(history.newest(session=run.session, after_seq=after_seq))
    return reads


def read(rows: Sequence[list[tuple]]) -> Opening | None:
    """None when nothing was asked."""
    if not rows:
        return None
    providers, *pages = rows
    return Opening([_PROVIDERS.read(row)[0] for row in providers], pages[0] if pages else None)


def starts_at_a_summary(definition: Definition) -> bool:
    """Whether how far back a turn reads is known only once its session's summary is."""
    settings = compaction_of(definition)
    return settings is not None and settings.strategy in SUMMARISES


_PROVIDERS = sql.Reader(
    "SELECT {provider} FROM agents_provider provider WHERE tenant_id = %s AND name = ANY(%s) AND NOT is_disabled",
    provider=Provider,
)
