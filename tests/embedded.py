"""The database of the test run: an embedded PostgreSQL in a temporary data directory.

Loaded before Django's settings (`-p tests.embedded`). The first process starts the server and removes the directory
at the end; pytest-xdist's workers join it, each with a database of its own.
"""

import os
import shutil
import tempfile
from pathlib import Path

_created = None

if "LETHE_TEST_DATA_DIR" not in os.environ:
    _created = tempfile.mkdtemp(prefix="lethe-test-")
    # PostgreSQL runs as a user of its own when we are root.
    Path(_created).chmod(0o755)
    os.environ["LETHE_TEST_DATA_DIR"] = _created

for _name in ("DATABASE_URL", "CELERY_BROKER_URL", "LETHE_SECRET_KEY", "LETHE_ENCRYPTION_KEY", "LETHE_SIGNING_KEY"):
    os.environ.pop(_name, None)
os.environ["LETHE_DATA_DIR"] = os.environ["LETHE_TEST_DATA_DIR"]
# Nothing here has to survive a power cut.
os.environ["LETHE_POSTGRES_SETTINGS"] = "fsync = off; synchronous_commit = off; full_page_writes = off"
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = ""
os.environ["LETHE_DATABASE_POOL"] = "60"


def pytest_configure(config):
    if _created:
        from console import embedded

        embedded.start(Path(_created))


def pytest_unconfigure(config):
    if _created:
        from console import embedded

        embedded.stop()
        shutil.rmtree(_created, ignore_errors=True)
