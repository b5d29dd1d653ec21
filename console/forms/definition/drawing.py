"""The whole editor as sections of controls, with every problem at the control that carries it."""

import json
from dataclasses import dataclass, field

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from agents import schema
from agents.compile import Message, Report
from console.forms.definition import layout
from console.forms.definition.choices import Catalogue
from console.forms.definition.codecs import EXTRA
from console.forms.definition.controls import Control, Fix, Maker, Problem, blocks
from console.forms.definition.form import DefinitionForm
from console.forms.definition.tree import Node, root


@dataclass(slots=True)
class Group:
    """The controls of one object. A title where a section has several; `switch` turns the object on and off."""

    title: str = ""
    help: str = ""
    switch: Control | None = None
    controls: list[Control] = field(default_factory=list)

    @property
    def blocks(self) -> list[tuple[str, list[Control]]]:
        return blocks(self.controls)


@dataclass(slots=True)
class Section:
    key: str
    title: str
    help: str
    switch: Control | None
    groups: list[Group]

    @property
    def id(self) -> str:
        return f"s-{self.key}"

    def controls(self):
        """Every control, also inside rows."""
        for control in (self.switch, *(entry for group in self.groups for entry in (group.switch, *group.controls))):
            if control is not None:
                yield from control.every()

    @property
    def problems(self) -> list[Problem]:
        return [problem for control in self.controls() for problem in control.problems]

    @property
    def error_count(self) -> int:
        return sum(problem.severity == "error" for problem in self.problems)

    @property
    def warning_count(self) -> int:
        return sum(problem.severity == "warning" for problem in self.problems)


class Drawing:
    """What the page shows of a form and its report. `problems` is the list of the panel, errors first."""

    def __init__(self, form: DefinitionForm, report: Report, catalogue: Catalogue, *, fixed: frozenset[str] = frozenset()):
        self.form, self.report, self.catalogue = form, report, catalogue
        self._maker = Maker(form, catalogue, fixed=fixed)
        self.sections = [self._section(section) for section in schema.sections()]
        # What no section shows: keys of the document itself that nobody knows.
        self.unknown = self._maker.extra("")
        self._by_name = {control.name: control for control in self.controls()}
        self.problems = self._placed()

    def controls(self):
        """Every control of the page."""
        for control in self.unknown:
            yield from control.every()
        for section in self.sections:
            yield from section.controls()

    @property
    def error_count(self) -> int:
        return sum(problem.severity == "error" for problem in self.problems)

    @property
    def other_count(self) -> int:
        return len(self.problems) - self.error_count

    @property
    def words(self) -> str:
        return counted(self.error_count, self.other_count)

    @property
    def with_problems(self) -> list[Control]:
        return [control for control in self.controls() if control.problems]

    def control(self, name: str) -> Control | None:
        return self._by_name.get(name)

    def control_of_id(self, id: str) -> Control | None:
        return next((control for control in self.controls() if control.id == id), None)

    def section_of(self, name: str) -> Section | None:
        """The section in which the control of a name is, or would be."""
        top = name.partition(".")[0]
        return next((entry for entry in self.sections if any(found.name.partition(".")[0] == top for found in entry.controls())), None)

    # --- Sections ---

    def _section(self, section: schema.Section) -> Section:
        groups: dict[str, Group] = {}
        for entry in section.fields:
            where = entry.path if entry.kind == "toggle" else entry.path.rpartition(".")[0]
            if where not in groups:
                groups[where] = self._group(_node(where))
            if entry.kind != "toggle":
                groups[where].controls.append(self._maker.control(entry, entry.path))
        for where, group in groups.items():
            if where:
                group.controls += self._maker.extra(f"{where}.")
            if where in layout.BOXES_FIRST:
                group.controls.sort(key=lambda control: control.width != "check")
        found = list(groups.values())
        # The object that a section is all about needs no second title, and its switch belongs to the section.
        first = found[0]
        if section.toggle or len(found) == 1:
            first.title = first.help = ""
        switch, first.switch = (first.switch, None) if section.toggle else (None, first.switch)
        return Section(section.key, section.title, section.help, switch, found)

    def _group(self, node: Node) -> Group:
        switch = None
        if node.toggle:
            switch = Control("switch", node.path, node.title, is_on=node.path in self.form.data)
        return Group(node.title, node.help, switch)

    # --- Problems ---

    def _placed(self) -> list[Problem]:
        found = []
        for name, sentences in self.form.problems.items():
            for sentence in sentences:
                found.append(self._put(self._by_name.get(name), Problem("error", sentence, path=name)))
        for message in self.report.messages:
            control = self._carrier(message.path)
            # A text that cannot be read is one problem, not also what the checks make of it.
            if control is None or control.name not in self.form.problems:
                found.append(self._put(control, _problem(message)))
        return found

    def _put(self, control: Control | None, problem: Problem) -> Problem:
        if control is None:
            return problem
        placed = Problem(problem.severity, problem.text, problem.hint, problem.path, control.focus_id, problem.fixes)
        control.problems.append(placed)
        return placed

    def _carrier(self, path: str) -> Control | None:
        """The control of a path in the document; the nearest one around it when it has none of its own."""
        name, steps = self._name_of(path), path.split(".")
        for count in range(len(steps)):
            extra = self._name_of(".".join([*steps[:count], EXTRA]))
            if steps[count] in self.form.extras.get(extra, ()):
                return self._by_name.get(extra)
        while name:
            if name in self._by_name:
                return self._by_name[name]
            inside = next((other for other in self._by_name if other.startswith(f"{name}.")), None)
            if inside:
                return self._by_name[inside]
            name = name.rpartition(".")[0]
        return None

    def _name_of(self, path: str) -> str:
        """The name in the form of a path in the document: rows may have other numbers, and maps number their keys."""
        for place in sorted(self.form.places, key=len, reverse=True):
            if path == place or path.startswith(f"{place}."):
                return self.form.places[place] + path[len(place) :]
        return path


def _node(path: str) -> Node:
    node = root()
    for step in path.split(".") if path else ():
        node = node.entries[step]
    return node


def _problem(message: Message) -> Problem:
    fixes = tuple(Fix(fix.label, "fix:" + json.dumps(fix.set, ensure_ascii=False)) for fix in message.fixes)
    return Problem(message.severity, message.message, message.hint, message.path, "", fixes)


def counted(errors: int, others: int) -> str:
    """How many problems there are, in words."""
    if errors:
        return ngettext("%d problem", "%d problems", errors) % errors
    if others:
        return ngettext("%d remark", "%d remarks", others) % others
    return _("No problems")
