"""How big ranges are and how many run at once: decided only from what activities returned, so that it replays."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from fanout.contracts import RANGE_ITEMS, Pace, RangeOutcome

RANGE_SECONDS = 2.0
"""A range aims at taking this long."""
SLOW_ITEM_SECONDS = 0.25
"""Items that take longer get an activity each, so that the Web UI shows each by its key."""
SHORT_ITEM_SECONDS = 0.1
GROWTH = 16
LEAST_GROWTH = 4
WINDOW = 400
"""Pending activities of one workflow; the server's limit is 2,000."""
RANGES_PER_WORKER = 4
PROBE_SECONDS = 0.3
"""How long the first few ranges may take to show that items are short, before the window is filled."""


def next_pace(pace: Pace, outcome: RangeOutcome, passed: int, fixed: int | None) -> Pace:
    """The pace after a range that passed so many seqs: sizes grow 16-fold at most, towards two seconds a range.

    Rows that were settled before count as passed too: after a reset a workflow must get past them quickly.
    """
    item_seconds = pace.item_seconds
    worked = outcome.settled > 0 or outcome.ended > 0
    if worked:
        item_seconds = outcome.item_seconds if item_seconds is None else (item_seconds + outcome.item_seconds) / 2
    if fixed is not None:
        return Pace(range_size=fixed, item_seconds=item_seconds)
    if passed == 0:
        return pace
    if item_seconds is not None and item_seconds >= SLOW_ITEM_SECONDS and worked:
        return Pace(range_size=1, item_seconds=item_seconds)
    wanted = int(RANGE_SECONDS * passed / max(outcome.elapsed_seconds, 0.001))
    if outcome.elapsed_seconds < RANGE_SECONDS / 2:
        # A short range is mostly the cost of being one at all: its time says little of a longer one's.
        wanted = max(wanted, LEAST_GROWTH * passed)
    size = max(1, min(wanted, pace.range_size * GROWTH, RANGE_ITEMS))
    return Pace(range_size=size, item_seconds=item_seconds)


def window_size(pace: Pace, slots: int, workers: int, probing: bool) -> int:
    """How many ranges may be pending: enough to fill every slot with slow items, a few a worker with short ones.

    While `probing`, a few: hundreds of activities for single items that turn out to be short would cost seconds.
    """
    few = max(RANGES_PER_WORKER, RANGES_PER_WORKER * workers)
    short = pace.item_seconds is not None and pace.item_seconds < SHORT_ITEM_SECONDS and pace.range_size > 1
    return min(WINDOW, few if probing or short else max(few, 2 * slots))
