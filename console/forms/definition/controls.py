"""The controls of the editor: what the templates draw for each field, with its value and what is wrong with it."""

from dataclasses import dataclass, field
from typing import Any

from django.utils.formats import number_format
from django.utils.translation import gettext as _

from agents.schema import Field
from console.forms.definition import codecs, layout
from console.forms.definition.choices import Catalogue


@dataclass(frozen=True, slots=True)
class Fix:
    """`act` is what its button sends."""

    label: str
    act: str


@dataclass(frozen=True, slots=True)
class Problem:
    """One message of the report, or one text that cannot be read. `target` is the id of the control to go to."""

    severity: str
    text: str
    hint: str = ""
    path: str = ""
    target: str = ""
    fixes: tuple[Fix, ...] = ()

    @property
    def css(self) -> str:
        return {"error": "", "warning": "w", "info": "i"}[self.severity]


@dataclass(frozen=True, slots=True)
class Option:
    value: str
    label: str
    is_chosen: bool = False
    note: str = ""
    effect: str = ""
    is_unknown: bool = False


@dataclass(slots=True)
class Row:
    """One entry of a list or map. `name` is what the names of its controls begin with.

    A new one is empty; with a script it waits folded away until it `is_open`.
    """

    name: str
    controls: list["Control"]
    is_new: bool = False
    is_open: bool = False
    can_move: bool = False

    @property
    def blocks(self) -> list[tuple[str, list["Control"]]]:
        return blocks(self.controls)


@dataclass(slots=True)
class Control:
    """`kind` names the template part: text, long, number, check, select, checks, lines, code, pair, object, rows."""

    kind: str
    name: str
    label: str
    help: str = ""
    unit: str = ""
    placeholder: str = ""
    width: layout.Width = "long"
    value: str = ""
    is_on: bool = False
    is_required: bool = False
    is_fixed: bool = False
    is_later: bool = False
    keeps_crlf: bool = False
    options: list[Option] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    controls: list["Control"] = field(default_factory=list)
    # Name of another control and its values for which this one matters; `is_aside` says that it does not now.
    depends_on: str = ""
    depends_values: str = ""
    is_aside: bool = False
    suggest: str = ""
    more: str = ""
    takes_more: bool = False
    problems: list[Problem] = field(default_factory=list)

    @property
    def id(self) -> str:
        return "f-" + self.name.replace(".", "-")

    @property
    def focus_id(self) -> str:
        """The element that takes the focus when somebody is sent here."""
        return self.controls[0].focus_id if self.kind == "pair" else self.id

    @property
    def heading(self) -> str:
        """What stands above it, as far as that takes room."""
        return "" if self.is_aside else f"{self.label} {self.unit}".strip()

    @property
    def has_error(self) -> bool:
        return any(problem.severity == "error" for problem in self.problems)

    @property
    def blocks(self) -> list[tuple[str, list["Control"]]]:
        return blocks(self.controls)

    def every(self):
        """This control and all in it."""
        yield self
        for inner in (*self.controls, *(control for row in self.rows for control in row.controls)):
            yield from inner.every()


def blocks(controls: list[Control]) -> list[tuple[str, list[Control]]]:
    """Controls in runs that stand side by side, each run with its CSS class."""
    found, at = [], 0
    for css, count in layout.in_blocks((control.width, control.heading) for control in controls):
        found.append((css, controls[at : at + count]))
        at += count
    return found


# Rows are read across: what is short first.
_IN_ROW = {"short": 0, "check": 1, "long": 2}


class Maker:
    """Makes the controls of one form."""

    def __init__(self, form: Any, catalogue: Catalogue, *, fixed: frozenset[str] = frozenset()):
        self.form, self.catalogue, self.fixed = form, catalogue, fixed
        self.reading = codecs.Reading(form.data)

    def controls(self, entries: codecs.Entries, prefix: str) -> list[Control]:
        """The controls of an object's own fields, and of its unknown keys when it has any."""
        found = [self.control(entry, f"{prefix}{key}") for key, entry in entries.items() if isinstance(entry, Field)]
        return found + self.extra(prefix)

    def extra(self, prefix: str) -> list[Control]:
        name = f"{prefix}{codecs.EXTRA}"
        text = self.reading.text(name)
        if not text:
            return []
        return [
            Control(
                "code", name, _("Not known here"), value=text, is_required=True,
                help=_("The draft has these values, and no field can show them. They are kept until you remove them."),
            )
        ]  # fmt: skip

    def control(self, entry: Field, name: str) -> Control:
        made = _MAKERS[entry.kind](self, entry, name)
        made.width, made.is_required, made.is_later = layout.width_of(entry), entry.required, not entry.available
        made.help = entry.help
        # "Keep turns", without a second "turns" behind it.
        made.unit = "" if entry.label.lower().endswith(entry.unit) else entry.unit
        made.placeholder = _placeholder(entry)
        made.is_fixed = name in self.fixed
        if condition := layout.condition_of(name):
            made.depends_on, made.depends_values = condition[0], " ".join(condition[1])
            made.is_aside = not self._matters(*condition) and self._is_plain(entry, name)
        return made

    def _matters(self, name: str, values: tuple[str, ...]) -> bool:
        return self.reading.text(name) in values

    def _is_plain(self, entry: Field, name: str) -> bool:
        """Whether it says its default. What says something else is never put aside."""
        value = codecs.read(entry, codecs.Reading(self.form.data), name, name)
        return value is codecs.ABSENT or value == entry.default

    def _text(self, entry: Field, name: str) -> Control:
        value = self.reading.text(name)
        # One line would lose its line ends.
        kind = "long" if entry.kind == "long_text" or "\n" in value else "text"
        return Control(kind, name, entry.label, value=value, keeps_crlf=f"{name}.{codecs.CRLF}" in self.form.data)

    def _number(self, entry: Field, name: str) -> Control:
        return Control("number", name, entry.label, value=self.reading.text(name))

    def _check(self, entry: Field, name: str) -> Control:
        return Control("check", name, entry.label, is_on=name in self.form.data)

    def _choice(self, entry: Field, name: str) -> Control:
        value = self.reading.text(name)
        if entry.choices_from == "models":
            return Control("text", name, entry.label, value=value, suggest="models")
        offered = [(choice.value, choice.label) for choice in self.catalogue.choices(entry.choices_from)] or entry.choices
        options = [Option(key, words, key == value) for key, words in offered]
        if value and not any(option.is_chosen for option in options):
            options.append(Option(value, _("%s, not known") % value, True, is_unknown=True))
        if entry.default is None:
            nothing = _("Choose one") if entry.required else entry.placeholder or _("not set")
            options.insert(0, Option("", nothing, not value))
        return Control("select", name, entry.label, value=value, options=options)

    def _several(self, entry: Field, name: str) -> Control:
        chosen = self.reading.texts(name)
        offered = {choice.value: choice for choice in self.catalogue.choices(entry.choices_from)}
        labels = dict(entry.choices) | {value: choice.label for value, choice in offered.items()}
        options = []
        # What is chosen comes first, in its own order: boxes are sent in the order in which they stand.
        for value in [*chosen, *(value for value in labels if value not in chosen)]:
            choice = offered.get(value)
            options.append(
                Option(
                    value, labels.get(value, value), value in chosen, choice.note if choice else "", choice.effect if choice else "",
                    is_unknown=value not in labels,
                )
            )  # fmt: skip
        # Names that cannot all be listed can be written, too.
        takes_more = entry.kind == "texts"
        more = self.reading.text(f"{name}.{codecs.MORE}")
        return Control("checks", name, entry.label, options=options, takes_more=takes_more, more=more)

    def _texts(self, entry: Field, name: str) -> Control:
        if entry.choices_from:
            return self._several(entry, name)
        return Control("lines", name, entry.label, value=self.reading.text(name))

    def _code(self, entry: Field, name: str) -> Control:
        return Control("code", name, entry.label, value=self.reading.text(name))

    def _object(self, entry: Field, name: str) -> Control:
        controls = self.controls(codecs.fields_of(entry), f"{name}.")
        if not codecs.has_switch(entry):
            for control in controls:
                # What they are for stands once, below both.
                control.is_required, control.help = False, ""
            return Control("pair", name, entry.label, controls=controls)
        return Control("object", name, entry.label, controls=controls, is_on=name in self.form.data)

    def _rows(self, entry: Field, name: str) -> Control:
        """The rows that say something, and an empty one; one more for each time it was asked for."""
        rows = [self._row(entry, f"{name}.{number}") for number in codecs.row_numbers(self.form.data, name)]
        filled = [row for row in rows if self._says_something(entry, row.name)]
        empty = len(rows) - len(filled) + 1 if name in self.form.more_rows else 1
        after = max(codecs.row_numbers(self.form.data, name), default=-1) + 1
        for number, row in enumerate(filled):
            row.can_move = number > 0 and name in layout.ORDERED
        fresh = [self._row(entry, f"{name}.{after + number}", is_new=True) for number in range(empty)]
        for row in fresh:
            row.is_open = name in self.form.more_rows
        return Control("rows", name, entry.label, rows=[*filled, *fresh])

    def _row(self, entry: Field, row: str, *, is_new: bool = False) -> Row:
        controls = [] if entry.kind == "objects" else [self._key(entry, f"{row}.{codecs.KEY}")]
        if entry.kind == "text_map":
            value = self.reading.text(f"{row}.{codecs.VALUE}")
            controls.append(Control("long", f"{row}.{codecs.VALUE}", _("Text"), value=value))
        else:
            controls += sorted(self.controls(codecs.fields_of(entry), f"{row}."), key=lambda control: _IN_ROW[control.width])
        if is_new:
            # An empty row is no row yet, so nothing in it is missing.
            for control in controls:
                control.is_required = False
        return Row(row, controls, is_new)

    def _key(self, entry: Field, name: str) -> Control:
        value = self.reading.text(name)
        offered = self.catalogue.choices(entry.choices_from)
        if not offered:
            return Control("text", name, _("For"), value=value, width="short", placeholder="de-AT", is_required=True)
        options = [Option("", _("Choose one"), not value), *(Option(choice.value, choice.label, choice.value == value) for choice in offered)]
        if not any(option.is_chosen for option in options):
            options.append(Option(value, _("%s, not known") % value, True, is_unknown=True))
        return Control("select", name, _("For"), value=value, options=options, width="short", is_required=True)

    def _says_something(self, entry: Field, row: str) -> bool:
        reading = codecs.Reading({name: texts for name, texts in self.form.data.items() if name.startswith(f"{row}.")})
        list_name = row.rpartition(".")[0]
        return bool(codecs.read(entry, reading, list_name, list_name)) or bool(reading.problems)


def _placeholder(entry: Field) -> str:
    if entry.placeholder:
        return entry.placeholder
    if entry.kind in ("integer", "number") and entry.default is not None:
        return number_format(entry.default, use_l10n=True, force_grouping=False)
    if entry.kind == "texts" and entry.default:
        return "\n".join(entry.default)
    return ""


_MAKERS = {
    "text": Maker._text,
    "long_text": Maker._text,
    "value": Maker._text,
    "integer": Maker._number,
    "number": Maker._number,
    "boolean": Maker._check,
    "choice": Maker._choice,
    "choices": Maker._several,
    "texts": Maker._texts,
    "json": Maker._code,
    "object": Maker._object,
    "objects": Maker._rows,
    "text_map": Maker._rows,
    "object_map": Maker._rows,
}
