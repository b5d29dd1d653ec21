"""Definitions for tests of the editor, made from the schema itself, and a browser that fills in no field."""

import re
from html.parser import HTMLParser

from hypothesis import strategies as st

from agents import schema
from agents.definition.parameters import is_of_kind

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40)
WORDS = st.text("abcdefgXYZ0189_-", min_size=1, max_size=12)
CULTURES = st.sampled_from(["de", "de-AT", "pt-BR", "zh-Hant-TW", "en"])
LABELS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\"), min_size=1, max_size=20)
SCALARS = st.booleans() | st.integers(-(10**12), 10**12) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
JSON = st.recursive(
    st.none() | SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=4)
# Settings whose text has a form of its own.
SPECIAL = {
    "name": WORDS,
    "parameters.name": st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True),
    "parameters.default": SCALARS,
    "mcp_resource_uris": st.from_regex(r"[a-z]{1,8}:[a-z/]{1,12}", fullmatch=True),
    "vector_collections": LABELS,
    "fact_categories": LABELS,
    "extraction_topics": LABELS,
    "memory_pool": LABELS,
}


def values(field: schema.Field, path: str):
    """Valid values of a field."""
    if field.kind in ("text", "long_text", "value"):
        least = 1 if field.required else 0
        return _special(field, path, TEXTS.filter(lambda text: len(text) >= least))
    if field.kind == "boolean":
        return st.booleans()
    if field.kind == "integer":
        return st.integers(int(field.minimum), int(min(field.maximum, 10**9)))
    if field.kind == "number":
        return st.floats(field.minimum, field.maximum, exclude_min=field.above, allow_subnormal=False)
    if field.kind == "choice":
        return st.sampled_from([value for value, _label in field.choices]) if field.choices else WORDS
    if field.kind == "choices":
        return st.lists(st.sampled_from([value for value, _label in field.choices]), min_size=1, max_size=3)
    if field.kind == "texts":
        least = 1 if field.default else 0
        return st.lists(_special(field, path, WORDS), min_size=least, max_size=4)
    if field.kind == "json":
        return OBJECTS
    if field.kind == "object":
        return items(field, path)
    if field.kind == "objects":
        return st.lists(items(field, path), max_size=4)
    if field.kind == "text_map":
        return st.dictionaries(CULTURES, TEXTS, max_size=3)
    return st.dictionaries(WORDS, items(field, path), max_size=3)


def _special(field: schema.Field, path: str, otherwise):
    return SPECIAL.get(path, SPECIAL.get(field.name, otherwise))


def items(field: schema.Field, path: str):
    required = {item.name: values(item, f"{path}.{item.name}") for item in field.item_fields if item.required}
    rest = {item.name: values(item, f"{path}.{item.name}") for item in field.item_fields if not item.required}
    return st.fixed_dictionaries(required, optional=rest)


def _nested(flat: dict) -> dict:
    """{"a.b": 1} as {"a": {"b": 1}}; what lies in an object that is off is left out."""
    found: dict = {}
    off = {path for path, value in flat.items() if schema.all_fields()[path].kind == "toggle" and not value}
    for path, value in flat.items():
        field, steps = schema.all_fields()[path], path.split(".")
        if path in off or field.section_toggle in off or (field.section_toggle and field.section_toggle not in flat):
            continue
        inner = found
        for step in steps[:-1]:
            inner = inner.setdefault(step, {})
        if field.kind == "toggle":
            inner.setdefault(steps[-1], {})
        else:
            inner[steps[-1]] = value
    for parameter in found.get("parameters", []):
        if not is_of_kind(parameter.get("default"), parameter.get("kind", "text")):
            parameter.pop("default", None)
    return found


def definitions():
    """Valid definitions, any setting of which may be there."""
    fields = schema.all_fields()
    options = {path: st.booleans() if field.kind == "toggle" else values(field, path) for path, field in fields.items()}
    required = {path: options[path] for path in ("name", "model.provider", "model.model")}
    rest = {path: strategy for path, strategy in options.items() if path not in required}
    return st.fixed_dictionaries(required, optional=rest).map(_nested)


class Browser(HTMLParser):
    """Reads a page as a browser does and submits one of its forms untouched: `names` are the pairs, in order."""

    def __init__(self, html: str, form: str):
        super().__init__(convert_charrefs=True)
        self.form, self.names, self._within = form, [], False
        self._select, self._options, self._text = None, [], None
        self.feed(html.replace("\r\n", "\n").replace("\r", "\n"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "form":
            self._within = given.get("id") == self.form
        if not self._within:
            return
        if tag == "input":
            self._input(given)
        elif tag == "select":
            self._select, self._options = given["name"], []
        elif tag == "option" and self._select:
            self._options.append((given["value"], "selected" in given))
        elif tag == "textarea":
            self._text = (given["name"], [])

    def _input(self, given):
        if "name" not in given:
            return
        if given.get("type") == "checkbox":
            if "checked" in given:
                self.names.append((given["name"], given.get("value", "on")))
        else:
            # One line: a browser takes line ends out of it.
            self.names.append((given["name"], re.sub(r"\n", "", given.get("value", ""))))

    def handle_data(self, data):
        if self._text:
            self._text[1].append(data)

    def handle_endtag(self, tag):
        if tag == "form":
            self._within = False
        elif tag == "select" and self._select:
            chosen = [value for value, is_chosen in self._options if is_chosen] or [value for value, _ in self._options[:1]]
            self.names += [(self._select, value) for value in chosen[-1:]]
            self._select = None
        elif tag == "textarea" and self._text:
            name, pieces = self._text
            # The first line end after the tag belongs to the markup; the others are sent as CRLF.
            self.names.append((name, "".join(pieces).removeprefix("\n").replace("\n", "\r\n")))
            self._text = None
