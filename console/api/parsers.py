"""JSON as RFC 8259 means it, read once and cleaned once.

Refused with a 400: what is not UTF-8 JSON, NaN and infinities, numbers too large for a double, a name given twice, and
nesting deeper than any document of ours. NUL and lone surrogates become U+FFFD (`governance.text`).
"""

import json
import math

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from governance.text import clean_json

MAX_DEPTH = 64


class StrictJSONParser(BaseParser):
    media_type = "application/json"

    def parse(self, stream, media_type=None, parser_context=None):
        data = stream.read()
        if len(data) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            raise RequestDataTooBig
        return loads(data)


def loads(data: bytes):
    """The JSON value in `data`. Raises ParseError, which says what is wrong."""
    try:
        value = json.loads(
            data.decode("utf-8"), object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_finite
        )
    except UnicodeDecodeError:
        raise ParseError("The body is not UTF-8 text.") from None
    except json.JSONDecodeError as error:
        raise ParseError(f"The body is not valid JSON: {error.msg} (line {error.lineno}, column {error.colno}).") from None
    except ValueError:
        raise ParseError("The body has a number with too many digits.") from None
    except RecursionError:
        raise ParseError(_TOO_DEEP) from None
    _check_depth(value)
    return clean_json(value)


_TOO_DEEP = f"The body is nested deeper than {MAX_DEPTH} levels."


def _object(pairs):
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ParseError(f"The name {twice[:100]!r} is given twice in one object.")
    return found


def _refuse_constant(text):
    raise ParseError(f"{text} is not a JSON number.")


def _finite(text):
    value = float(text)
    if math.isinf(value):
        raise ParseError(f"The number {text[:40]} is too large.")
    return value


def _check_depth(value):
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise ParseError(_TOO_DEEP)
