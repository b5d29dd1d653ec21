"""Statements that are written out give the same rows as the ORM."""

from decimal import Decimal

import pytest
from django.db import transaction

from governance import sql
from governance.ids import uuid7
from sessions.models import Item, ModelCall, Run, Session
from tests.factories import sessions as talk

pytestmark = pytest.mark.django_db


def fields(instance):
    return {field.attname: getattr(instance, field.attname) for field in instance._meta.concrete_fields}


def test_reader_gives_instances_like_the_orm(conversation):
    reader = sql.Reader("SELECT {session} FROM agent_sessions_session session WHERE id = %s", session=Session)

    (found,) = reader.first([conversation.id])

    assert fields(found) == fields(Session.objects.get(id=conversation.id))
    assert (found._state.adding, found._state.db) == (False, "default")


def test_reader_joins_and_hands_on_further_columns(conversation):
    reader = sql.Reader(
        "SELECT {session}, {run}, 7 FROM agent_sessions_session session"
        " LEFT JOIN agent_sessions_run run ON run.session_id = session.id AND run.id = %s WHERE session.id = %s",
        session=Session, run=Run,
    )  # fmt: skip

    session, run, number = reader.first([uuid7(), conversation.id])

    assert (session, run, number) == (conversation, None, 7)


def test_columns_left_out_are_read_when_asked_for(conversation, django_assert_num_queries):
    slim = sql.Columns(Session, only=["id", "key"])
    (found,) = sql.Reader("SELECT {s} FROM agent_sessions_session s WHERE id = %s", s=slim).first([conversation.id])

    with django_assert_num_queries(1):
        assert found.head_seq == conversation.head_seq


def test_no_row_is_none_and_no_rows_are_an_empty_list():
    reader = sql.Reader("SELECT {run} FROM agent_sessions_run run WHERE id = %s", run=Run)

    assert reader.first([uuid7()]) is None
    assert reader.all([uuid7()]) == []


def test_insertion_stores_what_the_orm_reads(conversation):
    run = talk.run(conversation.agent, session=conversation)
    call = ModelCall(
        tenant_id=run.tenant_id, run_id=run.id, agent_id=run.agent_id, number=7, provider="p", model="m", cost=Decimal("0.5"),
        prices={"source": "operator"},
    )  # fmt: skip

    assert sql.insertion(call, duration_ms=("%s + 1", [41])).run() == 1

    stored = ModelCall.objects.get(id=call.id)
    assert (stored.number, stored.cost, stored.prices, stored.duration_ms) == (7, Decimal("0.5"), {"source": "operator"}, 42)
    assert stored.at is not None


def test_together_acts_once_and_reads_what_the_writes_return(conversation):
    closing = sql.Write("UPDATE agent_sessions_session SET status = 'closed' WHERE id = %s RETURNING key", [conversation.id])
    hiding = sql.Write("UPDATE agent_sessions_item SET is_hidden = true WHERE session_id = %s", [conversation.id])

    answer = sql.together(closed=closing, hidden=hiding, then=sql.Write("SELECT key, %s FROM closed", ["told"]))

    assert answer == (conversation.key, "told")
    assert Session.objects.get(id=conversation.id).status == "closed"
    assert not Item.objects.filter(session=conversation, is_hidden=False).exists()


def test_together_is_all_or_nothing(conversation):
    closing = sql.Write("UPDATE agent_sessions_session SET status = 'closed' WHERE id = %s", [conversation.id])

    with pytest.raises(Exception, match="division by zero"), transaction.atomic():
        sql.together(closed=closing, then=sql.Write("SELECT 1 / %s", [0]))

    assert Session.objects.get(id=conversation.id).status == "open"
