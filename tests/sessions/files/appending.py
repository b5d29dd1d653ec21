"""What another process does in the test of a shared folder; it starts without Django."""

from pathlib import Path

from sessions.files.disk import DiskFiles


def append_lines(root: Path, name: str, number: int) -> None:
    files = DiskFiles(root, limit=1024 * 1024)
    for line in range(number):
        files.append("/log/all", f"{name} {line} ä\n")
