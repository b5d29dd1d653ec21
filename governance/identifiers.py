"""How identifiers are compared: exactly, after one documented normalisation per kind."""

import re
import unicodedata

from governance.errors import Invalid
from governance.text import clean

MAX_LENGTH = 200
# Raised together with a change of `normalise`: the sweeper then recomputes what identifiers of that kind are found by.
VERSIONS = {"external": 1, "email": 1, "phone": 1, "member": 1}
_PHONE = re.compile(r"\+[1-9][0-9]{6,14}")


def normalise(kind: str, value: str) -> str:
    """The form that is hashed.

    email: NFKC, trimmed, lower case. phone: E.164 (spaces, brackets, dots and hyphens go, 00 becomes +). Everything
    else belongs to the calling application and stays as it is. Raises Invalid for what cannot be an identifier.
    """
    if not isinstance(value, str) or not value.strip():
        raise Invalid("An identifier must not be empty.")
    value = clean(value)
    if kind == "email":
        value = unicodedata.normalize("NFKC", value).strip().lower()
        if not 0 < value.find("@") < len(value) - 1:
            raise Invalid("This is not an email address.")
    elif kind == "phone":
        value = re.sub(r"[\s().\-/]", "", unicodedata.normalize("NFKC", value))
        value = f"+{value[2:]}" if value.startswith("00") else value
        if not _PHONE.fullmatch(value):
            raise Invalid("Write the phone number with its country code, as in +41 44 668 18 00.")
    if len(value) > MAX_LENGTH:
        raise Invalid(f"An identifier has at most {MAX_LENGTH} characters.")
    if any(unicodedata.category(letter) == "Cc" for letter in value):
        raise Invalid("An identifier consists of printable characters.")
    return value


def candidates(value: str) -> list[tuple[str, str]]:
    """Every (kind, normalised value) that a person may have meant with `value`, for a search over all kinds."""
    found = []
    for kind in ("external", "email", "phone", "member"):
        try:
            found.append((kind, normalise(kind, value)))
        except Invalid:
            continue
    return found
