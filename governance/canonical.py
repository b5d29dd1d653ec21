"""One form of a JSON value, byte for byte: JSON Canonicalization Scheme (RFC 8785).

What is signed or hashed is this form, so a document can be stored, indented and parsed by any tool and still be checked.
"""

import json
import math
from decimal import Decimal
from typing import Any

# I-JSON (RFC 7493, section 2.2): beyond this, other readers would round.
_EXACT = 2**53 - 1


def canonical(value: Any) -> bytes:
    """The canonical UTF-8 bytes of a JSON value.

    Raises ValueError for what has no such form: NaN, infinities, integers beyond 2^53 - 1, lone surrogates, and
    anything that is not JSON.
    """
    return _text(value).encode("utf-8")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise ValueError("Names of a JSON object are strings.")
        # Sorted as UTF-16 code units (RFC 8785, section 3.2.3), which differs from code points beyond U+FFFF.
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return "{" + ",".join(f"{_text(name)}:{_text(value[name])}" for name in names) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_text(entry) for entry in value) + "]"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT:
        raise ValueError(f"{value} is too large to be the same number everywhere.")
    if value is None or isinstance(value, str | int):
        return json.dumps(value, ensure_ascii=False)
    raise ValueError(f"{type(value).__name__} is not JSON.")


def _number(value: float) -> str:
    """As ECMAScript writes it (ECMA-262, Number::toString); Python and ECMAScript agree on the shortest digits."""
    if not math.isfinite(value):
        raise ValueError("JSON has no NaN and no infinity.")
    if value == 0:
        return "0"
    number = Decimal(repr(abs(value))).normalize().as_tuple()
    digits, sign = "".join(map(str, number.digits)), "-" if value < 0 else ""
    point = number.exponent + len(digits)
    if len(digits) <= point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{rest}e{point - 1:+d}"
