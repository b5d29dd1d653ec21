"""Random histories of two people and a neighbour: what was shown is what goes, or the difference is told; nobody else
loses a byte.
"""

import pytest
from django.db import transaction
from hypothesis import HealthCheck
from hypothesis import settings as Settings  # noqa: N812 -- pytest-django has a fixture of that name
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from governance.domain import erasure, holds, previews, requests
from governance.domain import registry as register_
from governance.domain.holds import Target
from governance.models import Subject
from sessions.domain import sessions as session_verbs
from sessions.models import Item, Session
from tests.factories import governance as make
from tests.factories import sessions as talk
from tests.governance.snapshots import rows_of
from tests.governance.test_closure import notes  # noqa: F401 -- a fixture

PEOPLE = st.sampled_from(["anna", "bert"])
OUTCOMES = ("erased", "anonymised", "regenerated", "already_absent", "held", "retained", "skipped")


def machine(world, ledgers):
    """A state machine class over one world of rows. Each example ends as it began."""

    class Histories(RuleBasedStateMachine):
        # Not as a rule: an example may end before its first one, and is torn down all the same.
        def __init__(self):
            super().__init__()
            self.point = transaction.savepoint()
            world.settings.LEDGER_DIR = next(ledgers)
            self.holds, self.forks = [], 0

        def teardown(self):
            # After an error of the database nothing else is allowed, and the error would not be told.
            transaction.set_rollback(False)
            transaction.savepoint_rollback(self.point)

        def person(self, name) -> Subject:
            return make.subject(world.tenant, name)

        def session(self, name, number):
            found = list(Session.objects.filter(subject=self.person(name)).order_by("id"))
            return found[number % len(found)] if found else None

        def is_open(self, name):
            """Whether anything may be written about the person: not while a hold keeps what is left of an erasure."""
            return self.person(name).state == Subject.State.ACTIVE

        @rule(name=PEOPLE)
        def talk(self, name):
            if self.is_open(name):
                talk.conversation(world.agent, self.person(name))

        @rule(name=PEOPLE, number=st.integers(0, 9))
        def go_on(self, name, number):
            if self.is_open(name) and (session := self.session(name, number)) is not None:
                talk.item(session)

        @rule(name=PEOPLE, number=st.integers(0, 9), at_seq=st.integers(1, 4))
        def fork(self, name, number, at_seq):
            session = self.session(name, number)
            if self.is_open(name) and session is not None and at_seq <= session.head_seq:
                self.forks += 1
                session_verbs.fork(session=session, at_seq=at_seq, key=f"fork-{self.forks}", by=make.lethe(world.tenant))

        @rule(picks=st.lists(st.tuples(PEOPLE, st.integers(0, 30)), min_size=1, max_size=3), owner=st.sampled_from([None, "anna", "bert"]))
        def derive(self, picks, owner):
            closed = {self.person(name).id for name in ("anna", "bert") if not self.is_open(name)}
            sources = []
            for name, number in picks:
                items = list(Item.objects.filter(subject_id=self.person(name).id).order_by("session_id", "seq")[:31])
                sources += [items[number % len(items)]] if items else []
            sources += list(world.notes.model.objects.order_by("id")[:1]) if len(picks) == 3 else []
            subject = self.person(owner) if owner else None
            if sources and closed.isdisjoint({subject and subject.id, *(source.subject_id for source in sources)}):
                world.notes.derive(*{str(source.pk): source for source in sources}.values(), subject=subject)

        @precondition(lambda self: not self.holds)
        @rule(name=PEOPLE, number=st.integers(0, 9))
        def delete(self, name, number):
            if (session := self.session(name, number)) is not None:
                session_verbs.delete(session=session, by=make.lethe(world.tenant))

        @precondition(lambda self: len(self.holds) < 1)
        @rule(name=PEOPLE, number=st.integers(0, 9))
        def hold(self, name, number):
            if (session := self.session(name, number)) is not None:
                target = Target(scope="session", session_id=session.id)
                self.holds.append(holds.place(target=target, matter="M-1", reason="litigation", by=make.lethe(world.tenant)))

        @rule(name=PEOPLE, failures=st.integers(0, 3), late=st.sampled_from(["nothing", "a message", "a deletion"]))
        def erase(self, name, failures, late):
            subject, other = self.person(name), self.person("bert" if name == "anna" else "anna")
            if not self.is_open(name):
                return
            world.notes.failures = failures
            shown, token = previews.preview(subject=subject, by=world.officer)
            request = requests.erase(
                subject=subject, token=token, confirm=subject.display_ref, reason="other", by=world.officer
            )
            if late == "a message" and (session := self.session(name, 0)) is not None:
                talk.item(session)
            elif late == "a deletion" and not self.holds and (session := self.session(name, 0)) is not None:
                session_verbs.delete(session=session, by=make.lethe(world.tenant))
            kept = [rows_of("subject_id", one.id, exclude=("governance_lineage",)) for one in (other, world.stranger)]

            done = erasure.work(request_id=request.id)
            for _ in range(3):
                if done.state == "failed_retryable":
                    assert done.failure["code"] == "regeneration_failed", done.failure
                    type(done).objects.filter(pk=done.pk).update(lease_until=None)
                    done = erasure.work(request_id=request.id)

            assert [rows_of("subject_id", one.id, exclude=("governance_lineage",)) for one in (other, world.stranger)] == kept
            if done.state == "previewed":
                assert late == "a message" or done.drift is not None
                assert sum(entry["added"] + entry["changed"] for entry in done.drift["categories"]) > 0
                requests.cancel(request=done, reason="mistake", by=world.officer)
                return
            assert done.state in ("completed", "completed_with_exceptions"), (done.state, done.failure)
            assert (done.state == "completed") or self.holds
            self.accounts(shown, done)

        def accounts(self, shown, done):
            """The receipt has what the preview showed, category by category, and nothing is left that is not held."""
            counted = {entry["key"]: entry["rows"] for entry in shown.preview["categories"]}
            for entry in done.receipt["categories"]:
                assert entry["previewed"] == sum(entry[outcome] for outcome in OUTCOMES), entry
                assert entry["previewed"] == counted[entry["key"]], entry
            if done.state == "completed":
                scope = register_.Scope(done.tenant_id, done.subject_id)
                assert not [category.key for category in register_.erase_order() if category.verify(scope=scope)]

    return Histories


class World:
    def __init__(self, **things):
        self.__dict__.update(things)


# Ten thousand in parts, which several processes share and each of which can be looked at alone.
_LONG = [pytest.param(500, part, marks=[pytest.mark.long, pytest.mark.timeout(3600)]) for part in range(20)]


@pytest.mark.parametrize(("examples", "part"), [(6, 0), *_LONG])
def test_what_was_shown_is_what_goes(examples, part, notes, agent, officer, tenant, stranger_tenant, settings, tmp_path):  # noqa: F811
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0}
    stranger = make.subject(stranger_tenant, "anna")
    talk.conversation(talk.agent(stranger_tenant), stranger)
    talk.conversation(agent, None)
    world = World(notes=notes, agent=agent, officer=officer, tenant=tenant, stranger=stranger, settings=settings)

    run_state_machine_as_test(machine(world, _folders(tmp_path)), settings=_settings(examples))

    assert Session.objects.filter(subject__isnull=False).get().subject == stranger


def _settings(examples):
    return Settings(
        max_examples=examples, stateful_step_count=10, deadline=None, derandomize=examples < 100, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


def _folders(root):
    number = 0
    while True:
        number += 1
        yield root / f"ledger-{number}"
