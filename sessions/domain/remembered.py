"""What assembly policies add from files: the working notes, and the newest conversations."""

from uuid import UUID

from agents.definition import INJECTIONS, Definition
from sessions.context.policies import NOTHING, Text, Texts
from sessions.domain.aggregations import EPISODES, WORKING_PATH, not_to_be_shown, shelf_of
from sessions.files import stores
from sessions.files.rows import Writer
from sessions.models import AgentFile


def texts_for(
    *, tenant_id: UUID, agent_id: UUID, subject_id: UUID | None, session_id: UUID | None, definition: Definition
) -> Texts:
    """The texts for an agent's policies; none, and no query, when no policy adds one.

    The session's own conversation is left out: its history is there. So is what is about to follow its sources.
    """
    wanted = {policy.kind for policy in definition.assembly} & set(INJECTIONS)
    if not wanted:
        return NOTHING
    shelf = shelf_of(tenant_id=tenant_id, agent_id=agent_id, subject_id=subject_id, definition=definition)
    if shelf is None:
        return NOTHING
    files = stores.open_files(shelf, Writer("Lethe"))
    rows = AgentFile.objects.filter(**shelf.lookup).only("id", "path", "content", "is_outside", "tenant_id")
    working, episodes, total = None, (), 0
    if "working_memory" in wanted:
        found = [row for row in rows.filter(path=WORKING_PATH) if row.id not in not_to_be_shown([row.id])]
        working = Text(WORKING_PATH, files.text_of(found[0])) if found else None
    if "episodic_memory" in wanted:
        most = max(policy.max_episodes for policy in definition.assembly if policy.kind == "episodic_memory")
        own = f"_{session_id.hex}.md" if session_id else ""
        known = [(row_id, path) for row_id, path in rows.filter(path__startswith=EPISODES).order_by("-path").values_list("id", "path") if not (own and path.endswith(own))]
        hidden = not_to_be_shown([row_id for row_id, _ in known])
        usable = [row_id for row_id, _ in known if row_id not in hidden]
        newest = rows.filter(id__in=usable[:most]).order_by("-path")
        episodes, total = tuple(Text(row.path, files.text_of(row)) for row in newest), len(usable)
    return Texts(working, episodes, total)
