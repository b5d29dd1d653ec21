"""What assembly policies add from files: the working notes, and the newest conversations."""

from uuid import UUID

from agents.definition import INJECTIONS, Definition
from governance.domain.expiry import left
from sessions.context.policies import NOTHING, Text, Texts
from sessions.domain.aggregations import EPISODES, WORKING_PATH, hidden_files, shelf_of
from sessions.files import stores
from sessions.files.rows import Writer
from sessions.models import AgentFile


def texts_for(
    *, tenant_id: UUID, agent_id: UUID, subject_id: UUID | None, session_id: UUID | None, definition: Definition
) -> Texts:
    """The texts for an agent's policies; none, and no query, when no policy adds one.

    The session's own conversation is left out: its history is there. So is what is about to follow its sources.
    """
    policies = {policy.kind: policy for policy in definition.assembly if policy.kind in INJECTIONS}
    shelf = shelf_of(tenant_id=tenant_id, agent_id=agent_id, subject_id=subject_id, definition=definition) if policies else None
    if shelf is None:
        return NOTHING
    files = stores.open_files(shelf, Writer("Lethe"))
    rows = left(AgentFile.objects.filter(**shelf.lookup), tenant_id=tenant_id).exclude(id__in=hidden_files(tenant_id))
    rows = rows.only("id", "path", "content", "is_outside", "tenant_id")

    def text(row: AgentFile) -> Text:
        return Text(row.path, files.text_of(row))

    working = rows.filter(path=WORKING_PATH).first() if "working_memory" in policies else None
    episodes: list[AgentFile] = []
    total = 0
    if "episodic_memory" in policies:
        others = rows.filter(path__startswith=EPISODES)
        if session_id is not None:
            others = others.exclude(path__endswith=f"_{session_id.hex}.md")
        most = max(policy.max_episodes for policy in definition.assembly if policy.kind == "episodic_memory")
        episodes = list(others.order_by("-path")[:most])
        # Only who tells how many there are has them counted.
        is_told = any(policy.transparent for policy in definition.assembly if policy.kind == "episodic_memory")
        total = others.count() if is_told else len(episodes)
    return Texts(text(working) if working is not None else None, tuple(map(text, episodes)), total)
