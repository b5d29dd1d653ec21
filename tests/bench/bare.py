"""The model call by itself, with the messages that a turn of this session would send, on the engine's own loop."""

import time

from pydantic_ai.direct import model_request_stream

from sessions.context.assemble import assemble, input_limit
from sessions.domain import history
from sessions.engine import providers, runner, wiring
from sessions.engine.messages import show
from sessions.engine.models import ModelSource
from sessions.engine.store import ItemView


def call(agent, session) -> float:
    """Milliseconds of one streamed answer, preparation left out."""
    from agents.queries import definition_of, providers_of

    definition = definition_of(agent.published)
    source = ModelSource.from_definition(definition, [wiring.config_of(row) for row in providers_of(agent.tenant_id)])
    limit = input_limit(source.first.limits.context_window, definition.model.max_output_tokens)
    session.refresh_from_db()
    items = [ItemView(*row) for row in history.load_tail(session=session, token_budget=limit)]
    # A turn ends with a question: the last answer is left out, its question stays.
    view = assemble(items[:-1], instructions=10, tools=0, limit=limit)
    return runner.runner().call(_timed(definition, source.first, view)).result(60)


async def _timed(definition, candidate, view) -> float:
    shown = show(view, candidate=candidate)
    model = providers.build(candidate)
    settings = providers.settings_of(definition, candidate, model)
    parameters = providers.parameters_of(definition, model, definition.instructions, [])
    started = time.perf_counter()
    async with model_request_stream(model, shown.messages, model_settings=settings, model_request_parameters=parameters) as stream:
        async for _ in stream:
            pass
        stream.get()
    return (time.perf_counter() - started) * 1000
