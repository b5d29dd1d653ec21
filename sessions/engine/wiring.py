"""From rows to a turn: everything the loop needs for one run, read in one database thread."""

import time
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from django.conf import settings
from django.db import connection

from agents import queries as catalogue
from agents.definition import Definition
from agents.domain import breaker, providers
from agents.models import Agent, McpServer, Provider
from governance import sql
from sessions.context import tokens
from sessions.context.assemble import input_limit
from sessions.context.policies import Texts
from sessions.context.view import Note
from sessions.domain import definitions, opening, remembered, run_store, usage
from sessions.domain.opening import Fresh
from sessions.domain.run_store import RunStore
from sessions.engine import children, compacting, file_tools, history_tools, mcp_tools, skills
from sessions.engine import providers as engine_providers
from sessions.engine.budget import Budget
from sessions.engine.compacting import Compactor
from sessions.engine.models import Limits, ModelSource, ProviderConfig
from sessions.engine.store import CallRecord, ItemView
from sessions.engine.system import SystemText
from sessions.engine.toolbox import Identity, ToolBox
from sessions.models import Run, Session
from sessions.threads import in_thread

# A view never needs more than this, whatever window a model offers.
_MOST_TOKENS = 200_000
_EGRESS_FRESH_SECONDS = 30.0
_egress_checked: dict[tuple, float] = {}


@dataclass(slots=True)
class Job:
    """One run, ready to be carried on."""

    run: Run
    definition: Definition
    instructions: str
    store: RunStore
    models: ModelSource
    tools: ToolBox
    compactor: Compactor
    notes: tuple[Note, ...]
    deadline: float | None
    system: tuple[SystemText, ...] = ()
    mcp: mcp_tools.Offered = mcp_tools.Offered()
    budget: Budget | None = None
    texts: Texts = field(default_factory=Texts)


def warm_up() -> None:
    """Load the modules of all kinds of providers in use, and the tokenizer: seconds that no run should pay."""
    try:
        kinds = set(Provider.objects.filter(is_disabled=False).values_list("kind", flat=True))
        has_servers = McpServer.objects.filter(is_disabled=False).exists()
    finally:
        connection.close()
    for kind in sorted(kinds):
        engine_providers.load(kind)
    if kinds & {"openai", "openai_compatible"}:
        tokens.load("openai")
    if has_servers:
        mcp_tools.load()


def load(run_id: UUID, fresh: Fresh | None = None) -> Job | None:
    """The job of a running run; None when it is not running any more.

    Raises LetheError when its definition, provider or state cannot be used.
    """
    run, last_event = (fresh.run, 1) if fresh is not None else _running(run_id)
    if run is None:
        return None
    definition = definitions.compiled(
        tenant_id=run.tenant_id, version=run.version, document=run.version.document if run.version else run.document, agent_name=run.agent.name
    )
    request = run.request
    compactor = compacting.for_run(run, definition, config_of)
    opened = fresh.opening if fresh is not None and fresh.opening is not None else _opened(run, definition, compactor.after_seq)
    if opened is None:
        return None
    models = ModelSource.from_definition(definition, [config_of(row) for row in opened.providers])
    store = run_store.open_store(
        run=run, session=run.session, last_event=last_event, token_budget=_token_budget(definition, models),
        first_message=_only_message(run), after_seq=compactor.after_seq, page=opened.page,
    )  # fmt: skip
    identity = Identity(
        tenant_id=run.tenant_id, agent_name=run.agent.name, session_id=run.session_id, run_id=run.id, subject_id=run.subject_id
    )
    budget = children.budget_for(run, definition, store, is_fresh=last_event <= 1)
    called = children.build(run, definition, store, budget, settings.LETHE["tool_output_chars"])
    offered, mcp = skills.build(run.tenant_id, definition), mcp_tools.build(run, definition, settings.LETHE["tool_output_chars"])
    return Job(
        run=run,
        definition=definition,
        instructions=definitions.instructions(
            definition, parameters=request.get("parameters") or {}, culture=request.get("culture")
        ),
        store=store,
        models=models,
        tools=ToolBox.from_definition(
            definition, store=store, identity=identity, default_cap=settings.LETHE["tool_output_chars"],
            extra=[*history_tools.build(run.session, definition), *file_tools.build(run, definition), *offered.tools, *mcp.tools, *called],
        ),
        compactor=compactor,
        notes=tuple(file_tools.listing_note(run, definition, models.first.family)),
        deadline=budget.deadline,
        budget=budget,
        system=offered.system,
        mcp=mcp,
        texts=remembered.texts_for(
            tenant_id=run.tenant_id, agent_id=run.agent_id, subject_id=run.subject_id, session_id=run.session_id, definition=definition
        ),
    )


def _running(run_id: UUID) -> tuple[Run | None, int]:
    """The run with all that belongs to it, and the seq of its last event."""
    found = _RUNNING.first([run_id])
    if found is None:
        return None, 0
    run, run.session, run.agent, last_event = found
    run.version = catalogue.version_by(run.version_id) if run.version_id else None
    return run, last_event


def _opened(run: Run, definition: Definition, after_seq: int) -> opening.Opening | None:
    """None for a run that was stopped meanwhile; one that is to be is noted in the run."""
    still, *rows = sql.batch(sql.Write(_STILL_RUNNING, [run.id]), *opening.asking(run, definition, after_seq=after_seq))
    if not still:
        return None
    run.cancel_reason = still[0][0]
    return opening.read(rows)


_STILL_RUNNING = "SELECT cancel_reason FROM agent_sessions_run WHERE id = %s AND status = 'running'"
_RUNNING = sql.Reader(
    """
    SELECT {run}, {session}, {agent}, (SELECT coalesce(max(seq), 0) FROM agent_sessions_runevent WHERE run_id = run.id)
    FROM agent_sessions_run run
    LEFT JOIN agent_sessions_session session ON session.id = run.session_id
    JOIN agents_agent agent ON agent.id = run.agent_id
    WHERE run.id = %s AND run.status = 'running'
    """,
    run=Run, session=Session, agent=sql.Columns(Agent, without=["draft", "description"]),
)  # fmt: skip


def config_of(provider: Provider) -> ProviderConfig:
    """The engine's view of a provider row. Raises KeyUnavailable and EgressRefused."""
    _check_egress(provider)
    known = {entry["name"]: _limits(provider, entry["name"]) for entry in provider.model_list}
    return ProviderConfig(
        id=provider.id, name=provider.name, kind=provider.kind, base_url=provider.base_url, api=provider.api,
        key=providers.secret_of(provider), limits=known, max_concurrency=provider.max_concurrency, failures=provider.failures,
        price=partial(_price, provider), is_open=partial(_is_open, provider), record=partial(_record, provider.id),
    )  # fmt: skip


def _price(provider: Provider, call: CallRecord) -> usage.Priced:
    return usage.price(provider=provider, model=call.model, asked=call.asked, usage=call)


def _limits(provider: Provider, model: str) -> Limits:
    return Limits(**catalogue.model_limits(provider, model))


def _check_egress(provider: Provider) -> None:
    """Looking a name up may take long: one answer serves all runs of half a minute, until the row changes."""
    key = (provider.id, provider.updated_at)
    if time.monotonic() - _egress_checked.get(key, -_EGRESS_FRESH_SECONDS) < _EGRESS_FRESH_SECONDS:
        return
    providers.check_egress(provider)
    if len(_egress_checked) > 1000:
        _egress_checked.clear()
    _egress_checked[key] = time.monotonic()


async def _is_open(provider: Provider) -> bool:
    # The row was read a moment ago: a closed circuit costs no second look.
    return provider.open_until is not None and await in_thread(breaker.is_open, provider)


async def _record(provider_id: UUID, succeeded: bool) -> None:
    await in_thread(breaker.record_success if succeeded else breaker.record_failure, provider_id)


def _token_budget(definition: Definition, models: ModelSource) -> int:
    """How much of the history is worth loading: what fits the largest window that may be asked."""
    windows = [candidate.limits.context_window for candidate in models.candidates]
    if definition.harness is not None and definition.harness.max_context_window_tokens:
        windows = [definition.harness.max_context_window_tokens]
    known = [limit for window in windows if (limit := input_limit(window, definition.model.max_output_tokens)) is not None]
    return min(max(known, default=_MOST_TOKENS), _MOST_TOKENS)


def _only_message(run: Run) -> ItemView | None:
    """The message of a sessionless run, which no row but its own keeps."""
    if run.session_id is not None:
        return None
    return ItemView(1, "message", "user", 1, 1, 0, {"text": run.request.get("message", "")})
