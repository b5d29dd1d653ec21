"""What keeps bytes beside tables: folders, caches, queues, logs and vectors, as this installation is set up."""

from pathlib import Path

from celery import current_app
from django.conf import settings
from django.db import connections

from governance.domain.category import BlobPrefix, CachePrefix, LogStream, Queue, SpoolDir, Store, VectorColumn


def configured() -> list[Store]:
    """Caches, queues, log handlers and the archive of the settings."""
    caches = [CachePrefix(name) for name in settings.CACHES]
    queues = [Queue(name) for name in current_app.amqp.queues]
    logs = [LogStream(name) for name in settings.LOGGING.get("handlers", {})]
    archive = [BlobPrefix("archive")] if settings.ARCHIVE_DIR else []
    return [*caches, *queues, *logs, *archive]


def folders() -> list[Store]:
    """Entries of the data directory."""
    root = Path(settings.DATA_DIR)
    return [SpoolDir(path.name) for path in sorted(root.iterdir())] if root.is_dir() else []


def vectors(alias: str = "default") -> list[Store]:
    """Columns of vectors in the database."""
    with connections[alias].cursor() as cursor:
        cursor.execute(
            """
            SELECT c.relname || '.' || a.attname
            FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_type t ON t.oid = a.atttypid
            WHERE t.typname IN ('vector', 'halfvec', 'sparsevec') AND c.relkind IN ('r', 'p', 'm') AND NOT a.attisdropped
            ORDER BY 1
            """
        )
        return [VectorColumn(name) for (name,) in cursor.fetchall()]
