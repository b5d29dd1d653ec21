"""The gate: a store that nobody answers for stops the start-up and the tests, by name.

Django runs the model checks with every command; those that read the database run with `migrate` and in `problems()`,
which web, worker and beat call before they take work.
"""

import os
from datetime import UTC, date, datetime
from importlib import import_module
from pathlib import Path

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as Caution
from django.db import connections
from django.db.models import DO_NOTHING
from django.db.models.signals import post_delete, pre_delete

from governance import database_roles, inventory
from governance.domain import registry
from governance.waivers import waivers


def problems() -> list[CheckMessage]:
    """Every finding that concerns a start, database included. One that `is_serious()` means not ready."""
    return [
        *check_models(), *check_stores(), *check_relations(), *check_order(), *check_limits(), *check_writers(),
        *check_tables(databases=["default"]), *check_role(databases=["default"]), *_misplaced_ledger(),
    ]  # fmt: skip


@register()
def check_models(app_configs=None, **kwargs) -> list[Error]:
    """E001 for each model whose table is in no category and not waived, and for each waiver past its date."""
    tables = {model._meta.db_table: model._meta.label for model in apps.get_models(include_auto_created=True)}
    return [*_unaccounted(tables), *_outdated(datetime.now(UTC).date())]


@register()
def check_stores(app_configs=None, **kwargs) -> list[Error]:
    """E001 for each cache, queue and log of the settings that is in no category and not waived."""
    return _unaccounted({store.key: store.key for store in inventory.configured()})


@register()
def check_folders(app_configs=None, **kwargs) -> list[Caution]:
    """W001 for each entry of the data directory that nobody answers for. It may be the operator's own, so it does not
    stop the start.
    """
    known = _known()
    return [
        Caution(f"{store.name} in the data directory belongs to nothing that Lethe keeps.", id="governance.W001")
        for store in inventory.folders()
        if store.key not in known
    ]


@register()
def check_relations(app_configs=None, **kwargs) -> list[Error]:
    """E003 where a delete would run Python: a foreign key between personal tables that cascades there, or a listener."""
    models = {category.model for category in registry.categories().values() if isinstance(category, registry.TableCategory)}
    found = []
    for model in sorted(models, key=lambda model: model._meta.label):
        for field in model._meta.concrete_fields:
            if field.remote_field and field.related_model in models and field.remote_field.on_delete is not DO_NOTHING:
                found.append(Error(f"{model._meta.label}.{field.name} is not DO_NOTHING.", id="governance.E003"))
        if pre_delete.has_listeners(model) or post_delete.has_listeners(model):
            text = f"A signal listens for deletes of {model._meta.label}; rows are deleted in SQL, which sends none."
            found.append(Error(text, id="governance.E003"))
    return found


@register()
def check_writers(app_configs=None, **kwargs) -> list[Error]:
    """E008 for a category that names no writer, or one that does not exist."""
    return [
        Error(
            f"Category {category.key} names the writer {name}, which does not exist." if name else f"Category {category.key} names no writer.",
            id="governance.E008",
        )
        for category in registry.categories().values()
        for name in category.writers or ("",)
        if not _exists(name)
    ]


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
            guards = {(table, trigger): bytes(arguments).split(b"\0")[0].decode() for table, trigger, arguments in cursor.fetchall()}
        # Before the first migration there is nothing to find fault with.
        if "governance_fence" in tables:
            strange = {name: name for name in tables - modelled}
            vectors = {store.key: f"The column {store.name} of vectors" for store in inventory.vectors(alias)}
            found += [*_unaccounted({**strange, **vectors}), *_unguarded(tables, guards)]
    return found


_TABLES = """
SELECT CASE WHEN n.nspname = current_schema() THEN c.relname ELSE n.nspname || '.' || c.relname END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'm') AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
"""
_GUARDS = """
SELECT c.relname, t.tgname, t.tgargs FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
WHERE (p.proname IN ('subject_guard', 'subject_guard_gone', 'truncate_guard') OR p.proname ~ '^hold_(guard|gone)_')
  AND t.tgname ~ '^subject_' AND t.tgenabled IN ('O', 'A')
"""


@register(Tags.database)
def check_role(app_configs=None, databases=None, **kwargs) -> list[CheckMessage]:
    """E006 when web, worker and beat run as a role that could switch off the guards. The embedded server makes the right one;
    on a server of the operator's own it is a warning while DEBUG is on, or where one role was chosen.
    """
    found = []
    for alias in databases or []:
        powers = database_roles.powers(alias)
        if powers:
            is_embedded = bool(connections[alias].settings_dict.get("DATA_DIR"))
            is_chosen = settings.LETHE["one_database_role"] or settings.DEBUG
            kind = Caution if is_chosen and not is_embedded else Error
            name = database_roles.runtime_role(alias) or "of DATABASE_URL"
            found.append(
                kind(
                    f"The database role {name} {' and '.join(powers)}: it could switch off what guards the data of people.",
                    hint="Give DATABASE_URL a role of its own and LETHE_OWNER_DATABASE_URL the one that owns the tables, then"
                    " migrate; the README says how. LETHE_ONE_DATABASE_ROLE=1 goes on with one role.",
                    id="governance.E006",
                )
            )
    return found


@register()
def check_archive(app_configs=None, **kwargs) -> list[Error]:
    """E009 when the archive of retention would be lost, or restored, together with the database."""
    return [
        Error(f"The archive {settings.ARCHIVE_DIR} lies in {name}.", hint="Name a folder of its own in LETHE_ARCHIVE_DIR.", id="governance.E009")
        for name, place in _database_places().items()
        if settings.ARCHIVE_DIR is not None and place is not None and Path(settings.ARCHIVE_DIR).is_relative_to(place)
    ]


@register()
def check_subject_keys(app_configs=None, **kwargs) -> list[Error]:
    """E010 when the keys of subjects would be kept, or restored, together with what they encrypt."""
    return [
        Error(
            f"The keys of subjects {settings.SUBJECT_KEY_DIR} lie in {name}: a restore would bring destroyed keys back.",
            hint="Name a folder of its own in LETHE_SUBJECT_KEY_DIR.",
            id="governance.E010",
        )
        for name, place in _database_places().items()
        if settings.SUBJECT_KEY_DIR is not None and place is not None and Path(settings.SUBJECT_KEY_DIR).is_relative_to(place)
    ]


def _database_places() -> dict[str, Path | None]:
    """What is restored together with the database, as far as this machine can see it."""
    embedded = settings.DATABASES["default"].get("DATA_DIR")
    return {"the database's folder": Path(embedded) / "postgres" if embedded else None, "the backups": settings.BACKUP_DIR}


def _misplaced_ledger() -> list[Error]:
    folder = Path(settings.LEDGER_DIR)
    return [
        Error(
            f"The ledger {folder} lies in {name}: a restore would bring both back together.",
            hint="Name a folder of its own in LETHE_LEDGER_DIR.",
            id="governance.E007",
        )
        for name, place in _database_places().items()
        if place is not None and folder.is_relative_to(place)
    ]


def _unaccounted(tables: dict[str, str]) -> list[Error]:
    known = _known()
    return [
        Error(
            f"{label} is in no category of personal data and is not waived.",
            hint="Register it in the app's categories.py, or waive it there with reason, owner and review date.",
            id="governance.E001",
        )
        for table, label in sorted(tables.items())
        if table not in known
    ]


def _known() -> set[str]:
    return set(waivers()) | {store.key for category in registry.categories().values() for store in category.stores}


def _exists(name: str) -> bool:
    """Whether a dotted name is a module or something in one."""
    head, _, tail = name.rpartition(".")
    try:
        return bool(head) and (hasattr(import_module(head), tail) or bool(import_module(name)))
    except ImportError:
        return False


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
    """`guards` maps table and trigger to the trigger's first argument: for a hold the key of the category."""
    found = []
    for category in registry.categories().values():
        for store in category.stores:
            if not isinstance(store, registry.Table) or store.name not in tables:
                continue
            name = f"{store.name} of category {category.key}"
            if category.is_guarded and not {(store.name, "subject_guard"), (store.name, "subject_guard_gone")} <= set(guards):
                found.append(_unguarded_by(f"{name} has no guard: writes would pass an open fence.", "guard"))
            held = {guards.get((store.name, trigger)) for trigger in ("subject_hold", "subject_hold_gone")}
            if category.on_hold != "exempt" and held != {category.key}:
                found.append(_unguarded_by(f"{name} has no guard of holds: held rows could be deleted.", "hold_guard"))
            if (store.name, "subject_truncate") not in guards:
                found.append(_unguarded_by(f"{name} could be emptied by TRUNCATE.", "truncate_guard"))
    return found


def _unguarded_by(what: str, operation: str) -> Error:
    return Error(
        what,
        hint=f"Attach governance.triggers.{operation}() in a migration of the app that owns the table.",
        id="governance.E002",
    )
