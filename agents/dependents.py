"""What belongs to an agent in the floors above. They say here how to count it and how to take it along."""

from collections.abc import Callable
from dataclasses import dataclass

from agents.models import Agent
from governance.actors import Actor


@dataclass(frozen=True, slots=True)
class Dependents:
    label: str
    count: Callable[[Agent], int]
    delete: Callable[..., None]


_registered: dict[str, Dependents] = {}


def register(label: str, *, count: Callable[[Agent], int], delete: Callable[..., None]) -> None:
    """`label` is a plural such as "sessions"; `delete(agent, by)` runs in the transaction that deletes the agent."""
    _registered[label] = Dependents(label, count, delete)


def unregister(label: str) -> None:
    _registered.pop(label, None)


def counts(agent: Agent) -> dict[str, int]:
    """How much there is of each kind; kinds without any are left out."""
    found = {label: entry.count(agent) for label, entry in _registered.items()}
    return {label: number for label, number in found.items() if number}


def delete_all(agent: Agent, by: Actor) -> None:
    """In the order of registration: what refers to something else registers before it."""
    for entry in _registered.values():
        entry.delete(agent, by)
