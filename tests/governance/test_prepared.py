"""Statements that PostgreSQL keeps: once a connection, by text, and never so many that its memory fills."""

import pytest
from django.db import DataError, IntegrityError, connection, transaction

from governance import prepared, sql
from governance.models import Tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def kept():
    """What the server says that this connection keeps, by name, from an empty start."""
    connection.ensure_connection()
    prepared._kept.pop(connection.connection, None)

    def names() -> dict[str, int]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT name, generic_plans + custom_plans FROM pg_prepared_statements ORDER BY prepare_time")
            return dict(cursor.fetchall())

    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
    return names


def test_a_statement_is_kept_once_and_called_by_a_name_that_says_what_it_does(kept, django_assert_num_queries):
    with django_assert_num_queries(2):
        for number in (1, 2):
            assert sql.row("SELECT count(*), %s + 1 FROM governance_tenant WHERE slug = %s", [number, "none"]) == (0, number + 1)

    assert kept() == {"lethe_1_from_governance_tenant": 2}


def test_statements_of_one_round_trip_see_what_the_ones_before_did(kept, tenant, django_assert_num_queries):
    renamed = sql.Write("UPDATE governance_tenant SET name = %(name)s WHERE id = %(id)s AND name <> %(name)s", {"id": tenant.id, "name": "New"})
    read = sql.Write("SELECT name, 'as %% says' FROM governance_tenant WHERE id = %s", [tenant.id])

    with django_assert_num_queries(1):
        assert sql.script(renamed, read) == ("New", "as % says")
    assert len(kept()) == 2


def test_what_is_kept_is_let_go_before_it_becomes_too_much(kept, monkeypatch):
    monkeypatch.setattr(prepared, "_MOST", 5)

    for number in range(12):
        assert sql.batch(sql.Write(f"SELECT {number}"), sql.Write("SELECT %s::int", [number])) == [[(number,)], [(number,)]]
        assert len(kept()) <= 5


def test_a_statement_for_many_rows_is_not_kept(kept):
    numbers = list(range(5_000))
    rows = ", ".join(["(%s, '$1 and 100%% of it')"] * len(numbers))

    found = sql.rows(f"SELECT * FROM (VALUES {rows}) AS many", [f"{number} %s" for number in numbers])

    assert found[-1] == ("4999 %s", "$1 and 100% of it")
    assert kept() == {}


def test_a_refused_statement_is_an_error_of_the_orm_and_is_tried_again_the_next_time(kept, tenant):
    twice = ("INSERT INTO governance_tenant (id, slug, name, settings) SELECT id, slug, name, settings FROM governance_tenant WHERE id = %s", [tenant.id])
    for _ in range(2):
        with pytest.raises(IntegrityError), transaction.atomic():
            sql.execute(*twice)
    with pytest.raises(DataError), transaction.atomic():
        sql.row("SELECT %s::text", ["nul \x00"])

    assert Tenant.objects.filter(id=tenant.id).count() == 1


def test_as_many_values_as_places():
    with pytest.raises(AssertionError, match="as many values as places"):
        sql.row("SELECT %s, %s", [1])
