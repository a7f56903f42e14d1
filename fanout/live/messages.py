"""What a reader of a batch's stream gets."""

import json
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from fanout.status import Status


class Kind(StrEnum):
    """The kinds of messages; only `event` and `closed` have an id, by which a stream is resumed."""

    RESET = "reset"
    SNAPSHOT = "snapshot"
    PROGRESS = "progress"
    STALE = "stale"
    EVENT = "event"
    CLOSED = "closed"


@dataclass(frozen=True)
class Message:
    """One message, shared by all readers: `data` is a status, an event of the batch, or why the stream starts anew."""

    kind: Kind
    data: dict[str, Any]
    id: int | None = None
    status: Status | None = None

    @classmethod
    def of_status(cls, kind: Kind, status: Status) -> "Message":
        """`snapshot` or `progress`."""
        return cls(kind, status.model_dump(mode="json"), status=status)

    @classmethod
    def of_event(cls, event: dict[str, Any]) -> "Message":
        """`closed` for the event of that kind, else `event`."""
        return cls(Kind.CLOSED if event["kind"] == "closed" else Kind.EVENT, event, event["id"])

    @classmethod
    def of_reset(cls, reason: str) -> "Message":
        """The given position cannot be resumed: forget all events, for they come again."""
        return cls(Kind.RESET, {"reason": reason})

    @classmethod
    def of_staleness(cls) -> "Message":
        """What was told last may be old: the batch cannot be read at present."""
        return cls(Kind.STALE, {})

    @property
    def position(self) -> int:
        """The id, or 0 where it has none."""
        return self.id or 0

    @property
    def closed_epoch(self) -> int | None:
        """Which of its epochs the batch has closed; None of any other message."""
        return self.data["data"]["epoch"] if self.kind is Kind.CLOSED else None

    @cached_property
    def server_sent(self) -> bytes:
        """A server-sent event, encoded once for all readers. A reset takes the reader's position away."""
        text = json.dumps(self.data, ensure_ascii=False, separators=(",", ":"))
        position = "" if self.id is None else f"id: {self.id}\n"
        if self.kind is Kind.RESET:
            position = "id:\n"
        return f"{position}event: {self.kind}\ndata: {text}\n\n".encode()
