"""Where a reader's stream begins, judged by the position that it asks for."""

import re
from dataclasses import dataclass

from fanout.store import Position

_ID = re.compile(r"[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Start:
    """Events with ids above `after` follow; `reset` says why that is not what was asked for.

    `newest` is the batch's last event so far: no older reading will do. `over`: the reader has had the batch's
    `closed`, and there is nothing to come.
    """

    after: int
    newest: int
    reset: str | None = None
    over: bool = False


def find_start(position: Position, last_event_id: str | int | None) -> Start:
    """Without a position: what happened since the batch was last closed, and of a closed batch its `closed`."""
    given = "" if last_event_id is None else str(last_event_id)
    newest = position.last_id
    if not given:
        return Start(_beginning(position), newest)
    reason = _refusal(position, given)
    if reason is not None:
        return Start(_beginning(position), newest, reason)
    return Start(int(given), newest, over=position.closed and int(given) >= (position.closed_id or 0))


def _refusal(position: Position, given: str) -> str | None:
    """Why nobody can say what came after that id."""
    if not _ID.fullmatch(given):
        return "not_an_id"
    if int(given) > position.last_id:
        return "unknown_id"
    if position.first_id is not None and int(given) + 1 < position.first_id:
        return "purged"
    return None


def _beginning(position: Position) -> int:
    newest = position.closed_id
    if newest is None:
        return 0
    return newest - 1 if position.closed else newest
