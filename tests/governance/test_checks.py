"""A store that nobody answers for is found by name."""

from datetime import date

import pytest
from django.apps import apps
from django.db import models
from django.db.models.signals import post_delete
from django.test.utils import isolate_apps

from governance import checks, waivers
from governance.domain import registry
from governance.domain.registry import NoLimit, TableCategory
from governance.waivers import Waiver
from sessions.models import Item, Session
from tests.governance.declared import ABOUT, sessions_categories
from tests.owner import as_owner


def ids_and_texts(found):
    return [(error.id, error.msg) for error in found]


def test_everything_that_is_stored_has_an_owner(db):
    assert checks.problems() == []


@isolate_apps("governance")
def test_a_model_that_nobody_registered_is_named(monkeypatch):
    class Diary(models.Model):
        subject = models.ForeignKey("governance.Subject", models.DO_NOTHING)

        class Meta:
            app_label = "governance"

        def __str__(self):
            return "diary"

    monkeypatch.setattr(apps, "get_models", lambda **options: [Session, Diary])

    assert ids_and_texts(checks.check_models()) == [
        ("governance.E001", "governance.Diary is in no category of personal data and is not waived.")
    ]


def test_a_table_without_a_model_is_named(db):
    as_owner("CREATE SCHEMA attic; CREATE TABLE attic.forgotten_letters (id int)")

    assert ids_and_texts(checks.check_tables(databases=["default"])) == [
        ("governance.E001", "attic.forgotten_letters is in no category of personal data and is not waived.")
    ]


def test_a_table_of_the_same_name_in_another_schema_is_named(db):
    as_owner("CREATE SCHEMA attic; CREATE TABLE attic.agent_sessions_item (id int)")

    assert ids_and_texts(checks.check_tables(databases=["default"])) == [
        ("governance.E001", "attic.agent_sessions_item is in no category of personal data and is not waived.")
    ]


def test_vectors_that_nobody_answers_for_are_named(db):
    as_owner("CREATE EXTENSION IF NOT EXISTS vector; ALTER TABLE agent_sessions_item ADD COLUMN meaning vector(3)")

    assert ids_and_texts(checks.check_tables(databases=["default"])) == [
        ("governance.E001", "The column agent_sessions_item.meaning of vectors is in no category of personal data and is not waived.")
    ]


def test_a_cache_a_queue_and_a_log_that_nobody_answers_for_are_named(settings):
    settings.CACHES = {**settings.CACHES, "answers": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    settings.LOGGING = {**settings.LOGGING, "handlers": {"bodies": {"class": "logging.FileHandler"}}}

    assert [error.msg.split(" is ")[0] for error in checks.check_stores()] == ["cache:answers", "log:bodies"]


def test_an_entry_of_the_data_directory_that_nobody_knows_is_a_warning(settings, tmp_path):
    settings.DATA_DIR = tmp_path
    for name in ("exports", "postgres", "letters"):
        (tmp_path / name).mkdir()

    assert ids_and_texts(checks.check_folders()) == [
        ("governance.W001", "letters in the data directory belongs to nothing that Lethe keeps.")
    ]


@isolate_apps("governance")
def test_a_foreign_key_that_deletes_in_python_is_named(register):
    class Note(models.Model):
        session = models.ForeignKey(Session, models.CASCADE)

        class Meta:
            app_label = "governance"

        def __str__(self):
            return "note"

    notes = TableCategory(key="notes", title="Notes", model=Note, order=("id",), about=ABOUT, limit=NoLimit("Test.", date(2026, 1, 1)))
    register([*sessions_categories(), notes])

    assert ids_and_texts(checks.check_relations()) == [("governance.E003", "governance.Note.session is not DO_NOTHING.")]


def test_a_listener_for_deletes_is_named():
    def listen(sender, **kwargs):
        """Would never hear of a row that an erasure takes."""

    post_delete.connect(listen, sender=Item)
    try:
        assert [(error.id, "agent_sessions.Item" in error.msg) for error in checks.check_relations()] == [("governance.E003", True)]
    finally:
        post_delete.disconnect(listen, sender=Item)


@pytest.mark.parametrize("writers", [("sessions.domain.history.forget",), ("sessions.nowhere.insert",), ()])
def test_a_category_without_a_writer_that_exists_is_an_error(register, writers):
    declared = sessions_categories(**{category.key: {"writers": ("sessions.domain.history.insert",)} for category in sessions_categories()})
    [items] = [category for category in declared if category.key == "items"]
    items.writers = writers
    register(declared)

    assert [error.id for error in checks.check_writers()] == ["governance.E008"]


@pytest.mark.parametrize(
    ("trigger", "lost"),
    [
        ("subject_guard", "has no guard: writes would pass an open fence"),
        ("subject_guard_gone", "has no guard: writes would pass an open fence"),
        ("subject_hold", "has no guard of holds: held rows could be deleted"),
        ("subject_hold_gone", "has no guard of holds: held rows could be deleted"),
        ("subject_truncate", "could be emptied by TRUNCATE"),
    ],
)
def test_a_category_whose_table_lost_a_guard_is_named(db, trigger, lost):
    as_owner(f"DROP TRIGGER {trigger} ON agent_sessions_item")

    assert ids_and_texts(checks.check_tables(databases=["default"])) == [
        ("governance.E002", f"agent_sessions_item of category items {lost}.")
    ]


def test_a_disabled_guard_does_not_count(db):
    as_owner("ALTER TABLE agent_sessions_item DISABLE TRIGGER subject_guard")

    assert [error.id for error in checks.check_tables(databases=["default"])] == ["governance.E002"]


def test_a_waiver_past_its_date_is_an_error(monkeypatch):
    monkeypatch.setitem(waivers._waivers, "old", Waiver("old", "reason", "somebody", date(2020, 1, 1)))

    assert ids_and_texts(checks.check_models()) == [
        ("governance.E001", "The waiver of old was to be reviewed by 2020-01-01 (somebody).")
    ]


def test_every_waiver_says_why_and_who():
    for waiver in waivers.waivers().values():
        assert len(waiver.reason) > 20
        assert waiver.owner


def test_a_cycle_in_the_order_is_an_error(register):
    register(sessions_categories(items={"erase_after": ("sessions",)}))

    [error] = checks.check_order()

    assert error.id == "governance.E004"
    assert "items" in error.msg
    assert "sessions" in error.msg


@pytest.mark.parametrize("change", [{"erase_after": ("nothing",)}, {"group_of": ("nothing", "session_id")}])
def test_an_unknown_name_in_the_order_is_an_error(register, change):
    register(sessions_categories(items=change))

    assert ids_and_texts(checks.check_order()) == [
        ("governance.E004", "Category items goes after 'nothing', which is not registered.")
    ]


def test_a_category_without_an_end_is_an_error(register):
    register(sessions_categories(sessions={"limit": None}))

    assert ids_and_texts(checks.check_limits()) == [("governance.E005", "Category sessions has no end.")]


def test_registering_twice_is_refused(declared):
    with pytest.raises(ValueError, match="registered twice"):
        registry.register(registry.get("items"))


def test_order_puts_leaves_first_and_identifiers_last(declared):
    order = [category.key for category in registry.erase_order()]

    assert order.index("run_events") < order.index("runs") < order.index("sessions")
    assert order[-1] == "subject_identifiers"


def test_fingerprint_follows_what_the_categories_are(register):
    register(sessions_categories())
    before = registry.fingerprint()

    register(sessions_categories())
    assert registry.fingerprint() == before
    register(sessions_categories(model_calls={"method": "anonymise"}))
    assert registry.fingerprint() != before


def test_unregister_takes_a_category_away(register):
    register(
        [
            TableCategory(
                key="notes", title="Notes", model=Item, order=("session_id", "seq"), about=ABOUT,
                limit=NoLimit("Test.", date(2026, 1, 1)),
            )
        ]
    )  # fmt: skip

    registry.unregister("notes")

    assert "notes" not in registry.categories()
