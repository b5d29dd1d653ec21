"""Which names a file may have: one pure rule for workspaces and for stores, whoever asks.

A name has to mean the same in a database, on any disk, in a ZIP and in a URL, and it never leads out of its root.
"""

import re
import unicodedata

from sessions.errors import PathRefused

LONGEST = 400
# Names that Windows gives to devices, with any extension.
_DEVICES = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|clock\$|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.IGNORECASE)
_ENCODED = re.compile(r"%[0-9a-fA-F]{2}|%u[0-9a-fA-F]{4}|&#|\\[xu]", re.IGNORECASE)
_DRIVE = re.compile(r"[A-Za-z]:")
_NOWHERE = frozenset('<>:"|?*')


def relative(text: str) -> str:
    """The path of a file in a workspace, in Unicode's composed form: "notes/plan.md". Raises PathRefused."""
    path = unicodedata.normalize("NFC", text)
    _check(path)
    if path.startswith("/"):
        raise PathRefused("A path begins at the root of these files, without a slash in front.")
    for name in path.split("/"):
        _check_name(name)
    return path


def absolute(text: str) -> str:
    """The path of a file in a store: "/notes/plan.md". Slashes too many are taken away. Raises PathRefused."""
    names = [name for name in unicodedata.normalize("NFC", text).split("/") if name]
    return "/" + relative("/".join(names))


def folder(text: str) -> str:
    """The path of a folder in a store, with a slash at its end: "/notes/"; "/" is the root. Raises PathRefused."""
    return "/" if not text.strip("/") else absolute(text) + "/"


def _check(path: str) -> None:
    if not path:
        raise PathRefused("A file needs a name.")
    if len(path) > LONGEST:
        raise PathRefused(f"A path has at most {LONGEST} characters; this one has {len(path)}.")
    # What some program on the way may take for a dot, a slash or a drive counts as one.
    for form in (path, unicodedata.normalize("NFKC", path)):
        if "\\" in form:
            raise PathRefused("Folders are separated by a slash, not by a backslash.")
        if _ENCODED.search(form):
            raise PathRefused("A path is written as it is, without encoded characters such as %2F.")
        if _DRIVE.match(form):
            raise PathRefused("A path has no drive letter.")
        if any(unicodedata.category(character)[0] == "C" for character in form) or re.search("[\u2028\u2029]", form):
            raise PathRefused("A path has printable characters only.")
    if found := _NOWHERE & set(path):
        raise PathRefused(f"A path cannot have the character {min(found)}.")
    if _steps(unicodedata.normalize("NFKC", path)) != _steps(path):
        raise PathRefused("A path has no characters that look like a slash or a dot.")


def _steps(path: str) -> list[bool]:
    return [set(name) <= {".", " "} for name in path.split("/")]


def _check_name(name: str) -> None:
    if not name:
        raise PathRefused("A path has a name between its slashes and does not end with one.")
    if set(name) <= {".", " "}:
        raise PathRefused("A path cannot have . or .. as a folder: it never leads out of these files.")
    if name != name.strip() or name.endswith("."):
        raise PathRefused("A name does not begin or end with a space, and does not end with a dot.")
    if name.startswith("~"):
        raise PathRefused("A name does not begin with ~.")
    if _DEVICES.fullmatch(name):
        raise PathRefused(f"{name} is a reserved name.")
