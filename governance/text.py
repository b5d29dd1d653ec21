"""One rule for text that enters Lethe.

PostgreSQL cannot store NUL and UTF-8 cannot carry lone surrogates, so both become U+FFFD, once, at the edge.
Text that only spells an escape (a literal backslash-u-0000) is left as it is.
"""

import re
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean(text: str) -> str:
    """`text` with NUL and lone surrogates replaced by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def clean_json(value: Any) -> Any:
    """`clean` applied to every string of a JSON value, keys included."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [clean_json(entry) for entry in value]
    if isinstance(value, dict):
        return {clean(key): clean_json(entry) for key, entry in value.items()}
    return value
