"""Cursors: where a page ended, as a text that means nothing to its reader."""

import base64
import json
from datetime import UTC, datetime
from uuid import UUID

from fanout.http.problems import Refusal


def write(*place: str | int) -> str:
    """The cursor of a place."""
    text = json.dumps(place, ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_time_and_id(cursor: str | None) -> tuple[datetime, UUID] | None:
    """The place in a list by age; raises Refusal for a cursor that is none of ours."""
    if cursor is None:
        return None
    try:
        at, batch_id = _read(cursor)
        found = datetime.fromisoformat(str(at))
        if found.tzinfo is None:
            raise ValueError
        return found.astimezone(UTC), UUID(str(batch_id))
    except (ValueError, OverflowError):
        raise _refused() from None


def read_seq(cursor: str | None) -> int:
    """The place in a list by position."""
    if cursor is None:
        return 0
    try:
        [seq] = _read(cursor)
        if type(seq) is not int or not 0 <= seq < 2**31:
            raise ValueError
        return seq
    except ValueError:
        raise _refused() from None


def read_key(cursor: str | None) -> str:
    """The place in a list by item key."""
    if cursor is None:
        return ""
    try:
        [key] = _read(cursor)
        if not isinstance(key, str) or "\0" in key or key.encode(errors="replace").decode() != key:
            raise ValueError
        return key
    except ValueError:
        raise _refused() from None


def _read(cursor: str) -> list[object]:
    try:
        found = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except RecursionError:
        raise ValueError from None
    if not isinstance(found, list):
        raise ValueError
    return found


def _refused() -> Refusal:
    return Refusal(422, "invalid_cursor", "the cursor is none that this list gave", path="?cursor")
