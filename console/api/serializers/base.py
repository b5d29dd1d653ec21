"""What every serializer here is made of: strict input in either case, ids with prefixes, output in snake_case."""

import difflib
import re
from uuid import UUID

from drf_spectacular.extensions import OpenApiSerializerFieldExtension
from drf_spectacular.plumbing import build_basic_type
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.validators import ProhibitSurrogateCharactersValidator

from governance import ids
from governance.errors import NotFound

_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")


def snake(name: str) -> str:
    """`sessionId` as `session_id`; snake_case stays what it is."""
    return _HUMP.sub(r"_\1", name).lower()


def nearest(name: str, known) -> str:
    """A hint that ends an error sentence: the known name that was probably meant, or nothing."""
    close = difflib.get_close_matches(snake(name), list(known), n=1)
    return f" Did you mean {close[0]}?" if close else ""


# No docstrings on the bases: the docs of the API show a serializer's docstring, inherited ones too.


class Strict(serializers.Serializer):
    # Input. Names may be camelCase or snake_case; an unknown one is an error that names the nearest known one.

    default_error_messages = {"invalid": "Expected an object."}

    def to_internal_value(self, data):
        if isinstance(data, dict):
            data = self._known(data)
        return super().to_internal_value(data)

    def _known(self, data):
        found, spelled, errors = {}, {}, {}
        for given, value in data.items():
            name = given if given in self.fields else snake(given)
            if name not in self.fields:
                errors[given] = [f"Unknown field.{nearest(given, self.fields)}"]
            elif name in found:
                errors[given] = [f"Given twice, as {spelled[name]} and {given}."]
            else:
                found[name], spelled[name] = value, given
        if errors:
            raise serializers.ValidationError(errors)
        return found


class Output(serializers.Serializer):
    # An answer. Read only: every field is always there.

    def get_fields(self):
        fields = super().get_fields()
        for field in fields.values():
            field.read_only = True
        return fields


class Id(serializers.Field):
    """`run_0198...` outside, a UUID inside. A malformed id in a body is a 400; what it names is checked later."""

    default_error_messages = {"invalid": "Not an id of this kind: expected {prefix}_ and 32 hexadecimal digits."}

    def __init__(self, prefix, **options):
        self.prefix = prefix
        super().__init__(**options)

    def to_representation(self, value):
        return ids.shown(self.prefix, value if isinstance(value, UUID) else UUID(str(value)))

    def to_internal_value(self, data):
        try:
            return ids.parse(self.prefix, data)
        except NotFound:
            self.fail("invalid", prefix=self.prefix)


class IdSchema(OpenApiSerializerFieldExtension):
    target_class = "console.api.serializers.base.Id"

    def map_serializer_field(self, auto_schema, direction):
        return {"type": "string", "pattern": f"^{self.target.prefix}_[0-9a-f]{{32}}$"}


class Json(serializers.JSONField):
    """Any JSON value, null too: `allow_null` would say so twice."""


class JsonObject(serializers.DictField):
    """An object with names of the caller's own: nothing in it is renamed."""

    default_error_messages = {"not_a_dict": "Expected an object."}

    def to_internal_value(self, data):
        if not isinstance(data, dict):
            self.fail("not_a_dict", input_type=type(data).__name__)
        return data

    def to_representation(self, value):
        return value


class JsonObjectSchema(OpenApiSerializerFieldExtension):
    target_class = "console.api.serializers.base.JsonObject"

    def map_serializer_field(self, auto_schema, direction):
        return build_basic_type(OpenApiTypes.OBJECT)


class Encodable(ProhibitSurrogateCharactersValidator):
    """REST framework's check for lone surrogates, which looks at each character in Python, only where there is one."""

    def __call__(self, value):
        try:
            str(value).encode()
        except UnicodeEncodeError:
            super().__call__(value)


class Text(serializers.CharField):
    """Text that is text: numbers and booleans are not turned into it."""

    default_error_messages = {"invalid": "Expected text."}

    def __init__(self, **options):
        super().__init__(**options)
        self.validators = [
            Encodable() if isinstance(check, ProhibitSurrogateCharactersValidator) else check for check in self.validators
        ]

    def to_internal_value(self, data):
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class Name(Text):
    """Text that names something: one line of printable characters, so that it can be shown, logged and typed again."""

    default_error_messages = {"unprintable": "Only printable characters are possible here."}

    def __init__(self, **options):
        options.setdefault("trim_whitespace", False)
        super().__init__(**options)

    def to_internal_value(self, data):
        text = super().to_internal_value(data)
        if not text.isprintable() or "\ufffd" in text:
            self.fail("unprintable")
        return text


class Decimal(serializers.DecimalField):
    """An amount as text, so that no reader rounds it."""

    def __init__(self, **options):
        options.setdefault("max_digits", 18)
        options.setdefault("decimal_places", 8)
        options.setdefault("normalize_output", True)
        super().__init__(**options)


class Time(serializers.DateTimeField):
    """ISO 8601 in UTC, with a Z."""
