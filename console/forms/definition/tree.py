"""The fields of a definition as the tree they form in the document: objects with fields and other objects in them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from agents import schema
from agents.definition import Definition
from agents.definition.base import part_in


@dataclass(slots=True)
class Node:
    """One object of the document. `toggle` switches it on and off; without one it is there when something is in it."""

    path: str
    title: str = ""
    help: str = ""
    toggle: schema.Field | None = None
    entries: dict[str, "schema.Field | Node"] = field(default_factory=dict)

    def nodes(self) -> Iterator["Node"]:
        """This object and all objects in it."""
        yield self
        for entry in self.entries.values():
            if isinstance(entry, Node):
                yield from entry.nodes()


@cache
def root() -> Node:
    """The whole definition."""
    top = Node("")
    for path, entry in schema.all_fields().items():
        *way, name = path.split(".")
        node = top
        for depth, step in enumerate(way, 1):
            node = _inner(node, step, ".".join(way[:depth]))
        if entry.kind == "toggle":
            _inner(node, name, path).toggle = entry
        else:
            node.entries[name] = entry
    return top


def _inner(node: Node, step: str, path: str) -> Node:
    if step not in node.entries:
        node.entries[step] = Node(path, *_named(path))
    return node.entries[step]


def _named(path: str) -> tuple[str, str]:
    """Title and help of an object, as the definition itself gives them."""
    part = Definition
    for step in path.split("."):
        info = part.model_fields[step]
        part = part_in(info.annotation)
    return info.title or step, info.description or ""


def node_of(path: str) -> Node:
    """The object that holds the field of a path."""
    node = root()
    for step in path.split(".")[:-1]:
        node = node.entries[step]
    return node
