"""What a model would see of a conversation under settings that are still being edited: the live planner, asked aside."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

from agents import queries as catalogue
from agents.definition import SUMMARISES, Definition
from sessions.context import tokens
from sessions.context.assemble import SEEN, assemble, input_limit
from sessions.context.compaction import SHORTENED_TOKENS, compaction_of
from sessions.context.policies import NOTHING, Texts, added
from sessions.context.view import HISTORY, MESSAGE, SUMMARY, Layer, Step, View
from sessions.domain import remembered, summaries
from sessions.domain.compacting import Outline, outline
from sessions.models import ModelCall, Session

KEPT, SHORTENED, SUMMARISED, DROPPED = "kept", "shortened", "summarised", "dropped"
# A preview looks at the newest items only; a live run looks at fewer.
MOST_ITEMS = 20_000
MOST_PARTS = 500
# What stands behind the instructions is as it was in the session's last call: texts of servers are read by runs only.
_BEHIND = frozenset({"skills", "resources", "loop"})


@dataclass(frozen=True, slots=True)
class Part:
    """Items in a row that share a fate. `after` are the tokens that the model sees of them."""

    fate: str
    from_seq: int
    to_seq: int
    items: int
    tokens: int
    after: int


@dataclass(frozen=True, slots=True)
class Preview:
    """`before` and `after` are tokens of the conversation, `limit` what may go in at all; None where the model's window
    is not known. `layers` is the context report that a call would leave, `steps` what each assembly step that takes
    away left of the history."""

    strategy: str
    before: int
    after: int
    window: int | None
    limit: int | None
    fits: bool
    layers: list[dict]
    parts: list[Part] = field(default_factory=list)
    steps: tuple[Step, ...] = ()

    def share(self, fate: str) -> int:
        """Tokens of the items with this fate, as they are stored."""
        return sum(part.tokens for part in self.parts if part.fate == fate)


def of_session(*, session: Session, definition: Definition) -> Preview:
    """For a stored session whose last turn is the current one. A stored summary counts where the settings use them."""
    items = outline(session, after_seq=max(0, session.head_seq - MOST_ITEMS))
    report = _last_report(session)
    tools = sum(layer["tokens"] for layer in report if layer.get("layer") == "tools")
    system = [Layer(layer["layer"], layer["tokens"], tuple(layer["sources"])) for layer in report if layer.get("layer") in _BEHIND]
    texts = remembered.texts_for(
        tenant_id=session.tenant_id, agent_id=session.agent_id, subject_id=session.subject_id, session_id=session.id,
        definition=definition,
    )  # fmt: skip
    return _preview(definition, session.tenant_id, items, stored=summaries.newest(session), tools=tools, system=system, texts=texts)


def of_messages(*, messages: Sequence[dict], tenant_id, definition: Definition) -> Preview:
    """For pasted messages: [{"role": "user" | "assistant", "text"}]. Each of the user's begins a turn."""
    provider = catalogue.provider_named(tenant_id=tenant_id, name=definition.model.provider)
    family = tokens.family(provider.kind, definition.model.model)
    items, turn = [], 0
    for seq, message in enumerate(messages, 1):
        turn += message["role"] == "user" or not turn
        size = tokens.count_item("message", {"text": message["text"]}, family)
        items.append(Outline(seq, "message", message["role"], turn, seq, size))
    return _preview(definition, tenant_id, items, stored=None, tools=0)


def _last_report(session: Session) -> list[dict]:
    """Of the newest call that was part of the conversation: not one that judged or summarised it."""
    calls = ModelCall.objects.filter(run__session_id=session.id, context__contains=[{"layer": MESSAGE}]).order_by("-at")
    return calls.values_list("context", flat=True).first() or []


def _preview(
    definition: Definition, tenant_id, items: list[Outline], *, stored, tools: int, system: Sequence[Layer] = (), texts: Texts = NOTHING
) -> Preview:
    provider = catalogue.provider_named(tenant_id=tenant_id, name=definition.model.provider)
    limits = catalogue.model_limits(provider, definition.model.model)
    window = _least(limits.get("context_window"), definition.harness and definition.harness.max_context_window_tokens)
    output = _least(limits.get("max_output_tokens"), definition.model.max_output_tokens)
    limit = input_limit(window, output)
    settings = compaction_of(definition)
    uses_summaries = settings is not None and settings.strategy in SUMMARISES
    summary = summaries.as_view(stored) if stored is not None and uses_summaries else None
    family = tokens.family(provider.kind, definition.model.model)
    notes = added(definition.assembly, texts, count=partial(tokens.count_again, family=family))
    view = assemble(
        items, notes=notes, instructions=tokens.count_again(definition.instructions, family), tools=tools, system=system, limit=limit, output=output,
        compaction=settings, policies=definition.assembly, caps=definition.layer_caps, summary=summary, as_if_summarised=True,
    )  # fmt: skip
    return Preview(
        strategy=settings.strategy if settings else "none",
        before=sum(item.tokens for item in items),
        after=sum(layer.tokens for layer in view.layers if layer.layer in (SUMMARY, HISTORY, MESSAGE)),
        window=window,
        limit=limit,
        fits=view.fits,
        layers=view.report(),
        parts=list(_parts(items, view))[-MOST_PARTS:],
        steps=view.steps,
    )


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit), default=None)


def _parts(items: Iterable[Outline], view: View[Outline]) -> Iterable[Part]:
    shown = {item.seq for item in (*view.history, *view.current)}

    def fate(item: Outline) -> str:
        if item.seq in shown:
            return SHORTENED if item.seq in view.shortened else KEPT
        return SUMMARISED if view.summary is not None and item.seq <= view.summary.to_seq and item.seq not in dropped else DROPPED

    dropped = view.not_shown
    for name, group in groupby((item for item in items if item.kind in SEEN), key=fate):
        row = list(group)
        size = sum(item.tokens for item in row)
        after = {KEPT: size, SHORTENED: SHORTENED_TOKENS * len(row)}.get(name, 0)
        yield Part(name, row[0].seq, row[-1].seq, len(row), size, after)
