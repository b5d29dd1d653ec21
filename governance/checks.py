"""The gate: a store that nobody answers for stops the start-up and the tests, by name.

Django runs the model checks with every command; those that read the database run with `migrate` and in `problems()`,
which web, worker and beat call before they take work.
"""

import os
from datetime import UTC, date, datetime
from pathlib import Path

from django.apps import apps
from django.conf import settings
from django.core.checks import Error, Tags, register
from django.db import connections

from governance.domain import registry
from governance.waivers import waivers


def problems() -> list[Error]:
    """Every finding, database included. An empty list means ready."""
    return [*check_models(), *check_order(), *check_limits(), *check_tables(databases=["default"]), *_misplaced_ledger()]


@register()
def check_models(app_configs=None, **kwargs) -> list[Error]:
    """E001 for each model whose table is in no category and not waived, and for each waiver past its date."""
    tables = {model._meta.db_table: model._meta.label for model in apps.get_models(include_auto_created=True)}
    return [*_unaccounted(tables), *_outdated(datetime.now(UTC).date())]


@register()
def check_order(app_configs=None, **kwargs) -> list[Error]:
    """E004 when the order of erasure is a cycle or names a category that does not exist."""
    known = registry.categories()
    found = [
        Error(f"Category {category.key} goes after {name!r}, which is not registered.", id="governance.E004")
        for category in known.values()
        for name in (*category.erase_after, *(category.group_of or ())[:1])
        if name not in known
    ]
    try:
        registry.erase_order()
    except registry.CycleError as error:
        found.append(Error(f"The order of erasure is a cycle: {' -> '.join(error.args[1])}.", id="governance.E004"))
    return found


@register()
def check_limits(app_configs=None, **kwargs) -> list[Error]:
    """E005 for a category that may grow for ever without anybody having said why."""
    return [
        Error(
            f"Category {category.key} has no end.",
            hint="Give it `limit=`: NoLimit(why, since when) or EndsAfter(days, how); or let it follow a parent.",
            id="governance.E005",
        )
        for category in registry.categories().values()
        if category.limit is None and category.group_of is None
    ]


@register()
def check_ledger(app_configs=None, **kwargs) -> list[Error]:
    """E007 when the ledger would be restored together with the database, or cannot be written.

    A process starts without a writable ledger and serves nothing, so this is no reason not to start.
    """
    folder = Path(settings.LEDGER_DIR)
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    found = _misplaced_ledger()
    if not (existing.is_dir() and os.access(existing, os.W_OK)):
        found.append(
            Error(
                f"The ledger's folder {folder} cannot be written.",
                hint="Make it writable, or name another one in LETHE_LEDGER_DIR.",
                id="governance.E007",
            )
        )
    return found


@register(Tags.database)
def check_tables(app_configs=None, databases=None, **kwargs) -> list[Error]:
    """E001 for each table of the database without a model that is in no category and not waived; E002 for a category's table that
    lacks its columns or one of its guards.
    """
    found = []
    modelled = {model._meta.db_table for model in apps.get_models(include_auto_created=True)}
    for alias in databases or []:
        with connections[alias].cursor() as cursor:
            cursor.execute(_TABLES)
            tables = {name for (name,) in cursor.fetchall()}
            cursor.execute(_GUARDS)
            guards = {(table, function): bytes(arguments).split(b"\0")[0].decode() for table, function, arguments in cursor.fetchall()}
        # Before the first migration there is nothing to find fault with.
        if "governance_fence" in tables:
            found += [*_unaccounted({name: name for name in tables - modelled}), *_unguarded(tables, guards)]
    return found


_TABLES = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'm') AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
"""
_GUARDS = """
SELECT c.relname, CASE WHEN t.tgname = 'subject_hold' THEN 'hold_guard' ELSE p.proname END, t.tgargs FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
WHERE (p.proname IN ('subject_guard', 'truncate_guard') OR t.tgname = 'subject_hold') AND t.tgenabled IN ('O', 'A')
"""


def _misplaced_ledger() -> list[Error]:
    folder = Path(settings.LEDGER_DIR)
    embedded = settings.DATABASES["default"].get("DATA_DIR")
    places = {"the database's folder": Path(embedded) / "postgres" if embedded else None, "the backups": settings.BACKUP_DIR}
    return [
        Error(
            f"The ledger {folder} lies in {name}: a restore would bring both back together.",
            hint="Name a folder of its own in LETHE_LEDGER_DIR.",
            id="governance.E007",
        )
        for name, place in places.items()
        if place is not None and folder.is_relative_to(place)
    ]


def _unaccounted(tables: dict[str, str]) -> list[Error]:
    known = set(waivers()) | {store.name for category in registry.categories().values() for store in category.stores}
    return [
        Error(
            f"{label} is in no category of personal data and is not waived.",
            hint="Register it in the app's categories.py, or waive it there with reason, owner and review date.",
            id="governance.E001",
        )
        for table, label in sorted(tables.items())
        if table not in known
    ]


def _outdated(today: date) -> list[Error]:
    return [
        Error(
            f"The waiver of {waiver.table} was to be reviewed by {waiver.review_by} ({waiver.owner}).",
            id="governance.E001",
        )
        for waiver in waivers().values()
        if waiver.review_by < today
    ]


def _unguarded(tables: set[str], guards: dict[tuple[str, str], str]) -> list[Error]:
    """`guards` maps table and function to the trigger's first argument: for a hold the key of the category."""
    found = []
    for category in registry.categories().values():
        for store in category.stores:
            if store.name not in tables:
                continue
            name = f"{store.name} of category {category.key}"
            if category.is_guarded and (store.name, "subject_guard") not in guards:
                found.append(_unguarded_by(f"{name} has no guard: writes would pass an open fence.", "guard"))
            if category.on_hold != "exempt" and guards.get((store.name, "hold_guard")) != category.key:
                found.append(_unguarded_by(f"{name} has no guard of holds: held rows could be deleted.", "hold_guard"))
            if (store.name, "truncate_guard") not in guards:
                found.append(_unguarded_by(f"{name} could be emptied by TRUNCATE.", "truncate_guard"))
    return found


def _unguarded_by(what: str, operation: str) -> Error:
    return Error(
        what,
        hint=f"Attach governance.triggers.{operation}() in a migration of the app that owns the table.",
        id="governance.E002",
    )
