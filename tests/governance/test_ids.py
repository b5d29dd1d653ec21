"""Identifiers: ordered by the time at which they were made, within a millisecond as well."""

import time
import uuid

import pytest

from governance.errors import NotFound
from governance.ids import parse, shown, uuid7


def test_ids_are_in_the_order_in_which_they_were_made():
    made = [uuid7() for _ in range(2_000)]

    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_id_is_a_uuid_of_version_7_and_of_now():
    before = time.time_ns() // 1_000_000
    made = uuid7()

    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert before <= made.int >> 80 <= time.time_ns() // 1_000_000


def test_what_is_shown_is_read_again():
    made = uuid7()

    assert parse("run", shown("run", made)) == parse("run", str(made)) == made
    for text in ("run_", "ses_" + made.hex, "x"):
        with pytest.raises(NotFound):
            parse("run", text)
