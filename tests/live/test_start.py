"""Where a stream begins, for every position that a reader may name."""

import pytest

from fanout.live.start import Start, find_start
from fanout.store import Position

OPEN = Position(closed=False, last_id=9, first_id=1, closed_id=None)
CLOSED = Position(closed=True, last_id=9, first_id=1, closed_id=9)
REOPENED = Position(closed=False, last_id=12, first_id=1, closed_id=9)
PURGED = Position(closed=False, last_id=9, first_id=6, closed_id=None)


@pytest.mark.parametrize("given", [None, ""])
def test_without_a_position_the_story_since_the_last_close_is_told(given: str | None) -> None:
    assert find_start(OPEN, given) == Start(0, 9)
    assert find_start(REOPENED, given) == Start(9, 12)
    assert find_start(CLOSED, given) == Start(8, 9)


@pytest.mark.parametrize(("given", "after"), [("9", 9), ("6", 6), ("0", 0), (7, 7), ("000000000000000007", 7)])
def test_a_known_id_is_resumed_right_behind_it(given: str | int, after: int) -> None:
    assert find_start(OPEN, given) == Start(after, 9)


ODD = ["abc", "-1", " 7", "7 ", "1e1", "7.0", "0x7", "\u0667", "7\x00", "7\r\n8", "10", str(10**30), "9" * 5_000]


@pytest.mark.parametrize("given", ODD, ids=lambda given: ascii(given)[:20])
def test_what_cannot_be_resumed_begins_anew_with_a_reason(given: str) -> None:
    reason = "unknown_id" if given == "10" else "not_an_id"
    assert find_start(OPEN, given) == Start(0, 9, reason)
    assert find_start(CLOSED, given) == Start(8, 9, reason)


def test_an_id_before_what_was_purged_begins_anew() -> None:
    assert find_start(PURGED, "4") == Start(0, 9, "purged")
    assert find_start(PURGED, "5") == Start(5, 9)


def test_who_has_had_the_close_is_told_that_it_is_over_until_a_retry() -> None:
    assert find_start(CLOSED, "9").over
    assert not find_start(CLOSED, "8").over
    assert not find_start(REOPENED, "9").over
