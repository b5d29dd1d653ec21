"""Find Chromium for the browser tests, or install Debian's: `python -m tests.chromium`."""

import sys

from tests.programs import Program

PROGRAM = Program(
    title="Chromium",
    package="chromium",
    variable="LETHE_CHROMIUM",
    names=("chromium", "chromium-browser", "google-chrome-stable", "google-chrome"),
    purpose="The browser tests need Chromium.",
)

if __name__ == "__main__":
    sys.exit(PROGRAM.main())
