"""A session's todos, as a person changes them. The agent has tools of its own: `sessions.engine.session_tools`."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from agents import queries as catalogue
from governance.actors import Actor
from governance.domain import audit, fences
from governance.errors import Invalid, NotFound, VersionConflict
from governance.ids import shown
from governance.text import clean
from sessions.context.working_memory import LONGEST_TODO, MOST_TODOS, keeps_todos
from sessions.domain import leases
from sessions.domain import sessions as session_verbs
from sessions.models import Session

Todo = dict[str, Any]


def todos_of(session: Session) -> list[Todo]:
    """In order: {"id", "title", "done"}."""
    return session.state.get("todos", [])


def are_kept(session: Session) -> bool:
    """Whether the session's agent, as it is published, keeps a list."""
    version = session.pinned_version_id or session.agent.published_id
    return version is not None and keeps_todos(catalogue.definition_of(catalogue.version_by(version)))


def are_shown(session: Session) -> bool:
    """Whether there is a list to look at: the agent keeps one, or has left one."""
    return bool(todos_of(session)) or are_kept(session)


def digest(todos: Sequence[Todo]) -> str:
    """What somebody saw, for `change` to compare."""
    return hashlib.sha256(json.dumps(list(todos), sort_keys=True).encode()).hexdigest()


@transaction.atomic
def change(*, session: Session, changed: Mapping[int, tuple[str, bool]], added: Sequence[str], seen: str, by: Actor) -> list[Todo]:
    """Give todos other titles and marks by their numbers (one without a title goes), and put new ones at the end.

    `seen` is the digest of the list that is changed. Raises VersionConflict when it is another one by now, SessionBusy while
    a turn runs, which holds the list itself, and Invalid by field: `new`, or `title-` with the number.
    """
    by.require("sessions.write")
    locked = leases.lock(session.id)
    if locked is None:
        raise NotFound
    session_verbs.refuse_busy(locked)
    state = session_verbs.readable_state(locked)
    before = todos_of(locked)
    if digest(before) != seen:
        raise VersionConflict(current={"todos": before})
    after = _after(before, changed, added)
    if after != before:
        with fences.told():
            Session.objects.filter(id=locked.id).update(state={**state, "todos": after})
        audit.record(
            "session.todos_changed", by=by, object_type="session", object_ref=shown("ses", locked.id),
            todos=len(after), done=sum(todo["done"] for todo in after),
        )  # fmt: skip
    return after


def _after(before: Sequence[Todo], changed: Mapping[int, tuple[str, bool]], added: Sequence[str]) -> list[Todo]:
    after = []
    for todo in before:
        title, done = changed.get(todo["id"], (todo["title"], todo["done"]))
        if title := _title(title, f"title-{todo['id']}"):
            after.append({"id": todo["id"], "title": title, "done": done})
    number = max((todo["id"] for todo in before), default=0)
    new = [title for text in added if (title := _title(text, "new"))]
    after += [{"id": number + place, "title": title, "done": False} for place, title in enumerate(new, 1)]
    if len(after) > MOST_TODOS:
        raise Invalid("These are too many todos.", errors={"new": [f"A session has at most {MOST_TODOS} todos."]})
    return after


def _title(text: str, field: str) -> str:
    title = " ".join(clean(text).split())
    if len(title) > LONGEST_TODO:
        raise Invalid("A todo is too long.", errors={field: [f"A todo has at most {LONGEST_TODO} characters."]})
    return title
