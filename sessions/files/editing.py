"""Changes of a text by its words and by its lines: pure, for tools. Lines are counted from 1 and end at a newline."""

from sessions.errors import EditRefused


def lines_of(text: str) -> list[str]:
    """The lines without their newlines; a newline at the end begins no further line."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def replace(text: str, old: str, new: str, *, everywhere: bool = False) -> tuple[str, int]:
    """`text` with `old` as `new`, and how often. Raises EditRefused where `old` is not there, or not once."""
    count = text.count(old) if old else 0
    if not count:
        raise EditRefused("The old text is not in the file as you wrote it. Read the file and copy it exactly.")
    if count > 1 and not everywhere:
        raise EditRefused(f"The old text is in the file {count} times. Give more of what is around it, or replace all.")
    return text.replace(old, new), count


def replace_lines(text: str, first: int, last: int, new: str) -> str:
    """`text` with the lines `first` to `last` as `new`; `last` = `first` - 1 inserts before `first`. An empty `new` deletes."""
    lines = lines_of(text)
    if first < 1 or first > len(lines) + 1 or last < first - 1 or last > len(lines):
        raise EditRefused(f"The file has lines 1 to {len(lines)}; {first} to {last} cannot be replaced.")
    lines[first - 1 : last] = lines_of(new) if new else []
    # A last line without a newline stays one, where the end is not touched.
    ends = "\n" if lines and (text.endswith("\n") or not text or (last >= len(lines_of(text)) and new.endswith("\n"))) else ""
    return "\n".join(lines) + ends


def numbered(text: str, first: int, last: int) -> str:
    """The lines `first` to `last` with their numbers. Raises EditRefused when there are none."""
    lines = lines_of(text)
    chosen = lines[first - 1 : last]
    if not chosen:
        raise EditRefused(f"The file has {len(lines)} lines; there is no line {first}.")
    return "\n".join(f"{number}\t{line}" for number, line in enumerate(chosen, first))
