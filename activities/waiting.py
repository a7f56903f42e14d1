"""Why an attempt ends while rows of its range are open, and for how long."""

from fanout.store import Remainder

HELD_SECONDS = 1.0


class RangeWaits(Exception):
    """Open rows are left that nobody may claim now; try again after `seconds`."""

    def __init__(self, error_type: str, message: str, seconds: float) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.seconds = max(0.0, seconds)


def why_wait(remainder: Remainder, breaker_in: float | None) -> RangeWaits:
    """What the open rows of a range wait for, none of which may be claimed now; `breaker_in` of an open breaker."""
    if breaker_in is not None:
        return RangeWaits("BreakerOpen", f"{remainder.open} items wait for a probe to succeed", breaker_in)
    if remainder.due_in is None:
        return RangeWaits("HeldElsewhere", f"a live worker holds {remainder.open} items", HELD_SECONDS)
    text = f"{remainder.open} items wait for their next attempt"
    return RangeWaits(remainder.error_type or "Waiting", text, remainder.due_in)
