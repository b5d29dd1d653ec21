"""What somebody probably meant."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like this one, if any looks like it at all."""
    by_lower = {entry.lower(): entry for entry in sorted(known)}
    found = difflib.get_close_matches(str(name)[:200].lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str], *, none: str = "") -> str:
    """A hint: the nearest name, else a short list of what there is, else `none`."""
    names = sorted(known)
    if found := nearest(name, names):
        return f"Did you mean {found}?"
    if not names:
        return none
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"There is {', '.join(names[:8])}{more}."
