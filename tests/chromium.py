"""Find Chromium for the browser tests, or install Debian's: `python -m tests.chromium`."""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


def find() -> str | None:
    """The path of a Chromium, from LETHE_CHROMIUM or the PATH; None when there is none."""
    named = os.environ.get("LETHE_CHROMIUM")
    if named:
        return named if os.access(named, os.X_OK) else None
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def install() -> bool:
    """Debian's package, when this may be done here: as root, with apt."""
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return False
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "chromium"]):
        done = subprocess.run(["apt-get", *arguments], env=environment, stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            return False
    return True


def main() -> int:
    if find():
        return 0
    sys.stderr.write("The browser tests need Chromium. Installing Debian's package.\n")
    if install() and find():
        return 0
    sys.stderr.write(
        "Chromium is missing and could not be installed. Install it (Debian, Ubuntu: `apt-get install chromium` as root), "
        "or set LETHE_CHROMIUM to the path of a Chromium or Chrome.\n"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
