"""`python -m tests.bench [NAME...]`: figures of speed and size, on a database of their own with production settings.

Each bench compares side by side in one run, because machines differ, and prints what it found. A bench with a bar
from the design says whether it is met; the exit code is the number of bars that are not.
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("names", nargs="*", help="which benches; all of them by default")
    chosen = parser.parse_args().names
    directory = tempfile.mkdtemp(prefix="lethe-bench-")
    Path(directory).chmod(0o755)
    for name in ("DATABASE_URL", "CELERY_BROKER_URL"):
        os.environ.pop(name, None)
    os.environ.update(
        LETHE_DATA_DIR=directory, DJANGO_SETTINGS_MODULE="console.settings", LETHE_ALLOW_PRIVATE_PROVIDERS="1",
        LETHE_COLLECTED_STATIC="",
    )  # fmt: skip
    try:
        return run(chosen)
    finally:
        from console import embedded

        embedded.stop()
        shutil.rmtree(directory, ignore_errors=True)


def run(chosen: list[str]) -> int:
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", interactive=False, verbosity=0)
    from tests.bench import (
        audit,
        compaction,
        contention,
        erasure,
        export,
        guards,
        lists,
        peers,
        retention,
        turns,
        vectors,
    )

    benches = {
        "turns": turns.run,
        "lists": lists.run,
        "contention": contention.run,
        "audit": audit.run,
        "compaction": compaction.run,
        "peers": peers.run,
        "export": export.run,
        "erasure": erasure.run,
        "guards": guards.run,
        "retention": retention.run,
        "vectors": vectors.run,
    }
    unknown = set(chosen) - set(benches)
    if unknown:
        print(f"Unknown: {', '.join(sorted(unknown))}. There are: {', '.join(benches)}.")
        return 2
    missed = 0
    for name in chosen or benches:
        print(f"\n== {name}", flush=True)
        missed += benches[name]()
    print(f"\n{missed} bars missed" if missed else "\nAll bars met")
    return missed


if __name__ == "__main__":
    sys.exit(main())
