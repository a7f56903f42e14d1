"""Every error that Fanout raises.

FanoutError                 code, and what a command line or an HTTP answer needs to name it
├── InvalidRequest          the caller's words are wrong; nothing was stored
│   ├── InvalidSetting      a setting, naming it and its source
│   ├── InvalidItem         an item, naming its position, its key and the limit
│   │   └── OversizedItem   its payload is larger than the limit
│   ├── DuplicateItemKey    one item key at two positions
│   ├── UnknownHandler      no worker seen within a day and no local module knows it
│   ├── UnknownBatch        no such id, or no such handler and key
│   ├── InvalidSchedules    declarations of schedules: each of their fields that is wrong
│   ├── UnknownSchedule     no schedule of this deployment has that id
│   ├── ForeignSchedule     a schedule of that id is there, but somebody else made it
│   ├── KeyConflict         the key names a batch with other items, and which one differs first
│   │   └── KeyPurged       the key named a batch that is gone
│   ├── KeyHeld             a retry of a batch whose key another open batch has
│   ├── KeyBusy             another submit, retry or purge of the key is at work
│   ├── BatchOpen           a batch that is not closed cannot be purged
│   └── BatchPurged         of that batch nothing is left but its status
├── MissingExtra            a part of Fanout whose packages are not installed
├── ServerUnreachable       PostgreSQL or Temporal does not answer
│   └── NoServer            nothing names one
├── StackFailed             the dev stack's servers do not start, or do not let go of their folder
└── SchemaMismatch          the database is not migrated to this version

Raised by handlers, about the item that they work on:
PermanentError              the item fails at once
RetryLater                  the item waits, uncharged, until the time that is asked for

Raised in a handler by `ctx.transaction()`:
TransactionError            the transaction was rolled back, and the item's row is as it was
├── NotCompleted            it was left without `tx.complete(result)`, or not left at all
├── TransactionEnded        the handler ended it by SQL of its own
├── StaleClaim              another attempt has the item by now
├── DatabaseAway            the database went away under it: the item waits, uncharged
└── NoTransaction           this handler runs where there can be none
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar
from uuid import UUID


class FanoutError(Exception):
    """The base of all errors that Fanout itself raises; `code` is stable and meant for programs."""

    code: ClassVar[str] = "error"


class InvalidRequest(FanoutError):
    """The caller asked for something that cannot be; nothing was stored."""

    code = "invalid_request"


class InvalidSetting(InvalidRequest):
    """A setting has a value that cannot be used."""

    code = "invalid_setting"

    def __init__(self, setting: str, reason: str) -> None:
        super().__init__(f"{setting}: {reason}")
        self.setting = setting
        self.reason = reason


class InvalidItem(InvalidRequest):
    """An item that cannot be stored; positions count from 0, limits are UTF-8 bytes."""

    code = "invalid_item"

    def __init__(self, position: int, key: str | None, reason: str, limit: int | None = None) -> None:
        where = f"item {position}" if key is None else f"item {position} (key {shorten(key)!r})"
        super().__init__(f"{where}: {reason}" + ("" if limit is None else f"; the limit is {limit} bytes"))
        self.position = position
        self.key = key
        self.limit = limit


class OversizedItem(InvalidItem):
    """An item whose payload, or the line that it stands on, is larger than the limit."""


class DuplicateItemKey(InvalidRequest):
    """One item key stands at two positions of a batch."""

    code = "duplicate_item_key"

    def __init__(self, key: str, first: int, second: int) -> None:
        super().__init__(f"item key {shorten(key)!r} stands at positions {first} and {second}")
        self.key = key
        self.positions = (first, second)


class UnknownHandler(InvalidRequest):
    """Neither a worker that was seen within a day nor a local module knows the handler."""

    code = "unknown_handler"

    def __init__(self, handler: str, known: list[str]) -> None:
        names = ", ".join(sorted(known)) or "none; is a worker running?"
        super().__init__(f"no worker knows the handler {handler!r}; known handlers: {names}")
        self.handler = handler
        self.known = known


class UnknownBatch(InvalidRequest):
    """There is no batch under that id, or under that handler and key."""

    code = "unknown_batch"

    def __init__(self, reference: str) -> None:
        super().__init__(f"there is no batch {shorten(reference)!r}")
        self.reference = reference


class UnknownItem(InvalidRequest):
    """The batch has no item under that key."""

    code = "unknown_item"

    def __init__(self, batch: UUID, key: str) -> None:
        super().__init__(f"batch {batch} has no item {shorten(key)!r}")


class InvalidSchedules(InvalidRequest):
    """Declarations of schedules that cannot be applied; none of the file was. A fault names schedule, field, reason."""

    code = "invalid_schedule"

    def __init__(self, file: str, faults: Sequence[tuple[str | None, str | None, str]]) -> None:
        super().__init__("\n".join(": ".join(each for each in (file, *fault) if each) for fault in faults))
        self.file = file
        self.faults = tuple(faults)


class UnknownSchedule(InvalidRequest):
    """No schedule of this deployment has that id."""

    code = "unknown_schedule"

    def __init__(self, schedule_id: str) -> None:
        super().__init__(f"there is no schedule {shorten(schedule_id)!r}")
        self.schedule_id = schedule_id


class ForeignSchedule(InvalidRequest):
    """A schedule that was not made by `schedule apply` of this deployment: it is left as it is."""

    code = "foreign_schedule"

    def __init__(self, server_id: str) -> None:
        super().__init__(f"the schedule {server_id!r} was not made by `schedule apply` of this deployment; it stays")
        self.server_id = server_id


@dataclass(frozen=True, slots=True)
class Difference:
    """The first thing in which a submit is not the batch that has its key: keys, sizes and totals, never payloads.

    `position` and `key` are the submitted item's, or None where only the numbers of items differ.
    """

    detail: str
    position: int | None = None
    key: str | None = None


class KeyConflict(InvalidRequest):
    """The key already names a batch that was submitted with other items, or one that was purged."""

    code = "key_conflict"

    def __init__(self, handler: str, key: str, batch_id: UUID, difference: Difference | None = None) -> None:
        detail = "" if difference is None else f": {difference.detail}"
        super().__init__(
            f"{handler}/{key} is batch {batch_id}, which was submitted with other items{detail}; use another key"
        )
        self.batch_id = batch_id
        self.difference = difference


class KeyPurged(KeyConflict):
    """The key names a batch of which nothing is left, so that there is nothing to compare with."""

    def __init__(self, handler: str, key: str, batch_id: UUID) -> None:
        FanoutError.__init__(
            self, f"{handler}/{key} was batch {batch_id}, which is gone; use another key, or the dedup policy open"
        )
        self.batch_id = batch_id
        self.difference = None


class KeyHeld(InvalidRequest):
    """The key of a batch that should be retried belongs to another batch by now, which is open."""

    code = "key_held"

    def __init__(self, batch_id: UUID, holder: UUID) -> None:
        super().__init__(
            f"batch {batch_id} cannot be retried while batch {holder}, which has the same key, is open; "
            f"wait for it or cancel it"
        )
        self.batch_id = batch_id
        self.holder = holder


class KeyBusy(InvalidRequest):
    """Somebody else decides about the key at this moment, as a submit that stores its items; asking again is safe."""

    code = "key_busy"

    def __init__(self, handler: str, key: str) -> None:
        super().__init__(f"another submit, retry or purge of {handler}/{key} is still at work; try again")


class BatchOpen(InvalidRequest):
    """A batch was to be purged that is not closed."""

    code = "batch_open"

    def __init__(self, batch_id: UUID, status: str) -> None:
        super().__init__(f"batch {batch_id} is {status}; only a closed batch can be purged: wait for it or cancel it")
        self.batch_id = batch_id


class BatchPurged(InvalidRequest):
    """The rows of that batch were purged; its status is all that is left."""

    code = "batch_purged"

    def __init__(self, batch_id: UUID) -> None:
        super().__init__(f"batch {batch_id} was purged: its status is left, its items and results are not")
        self.batch_id = batch_id


class MissingExtra(FanoutError):
    """A part of Fanout needs packages that an extra installs."""

    code = "missing_extra"

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the extra {extra!r}: pip install 'temporal-fanout[{extra}]'")
        self.extra = extra


class ServerUnreachable(FanoutError):
    """A server does not answer; `chosen_by` names the setting that selected it."""

    code = "unreachable"

    def __init__(self, server: str, address: str, chosen_by: str, cause: str) -> None:
        super().__init__(f"{server} at {address} (chosen by {chosen_by}) cannot be reached: {cause}")
        self.server = server
        self.address = address
        self.chosen_by = chosen_by


class StackFailed(FanoutError):
    """The dev stack of a folder cannot be had; `detail` is the reason or the end of the log."""

    code = "stack_failed"

    def __init__(self, home: Path, detail: str) -> None:
        super().__init__(f"the dev stack in {home} does not run: {detail}")
        self.home = home
        self.detail = detail


class NoServer(ServerUnreachable):
    """Nothing names a server: no option, no setting, no running dev stack."""

    def __init__(self, server: str, setting: str, home: Path) -> None:
        FanoutError.__init__(
            self,
            f"no {server} to use: no dev stack runs in {home} and {setting} is not set; "
            f"start a dev stack with `python starter.py dev`, or set {setting}",
        )
        self.server = server
        self.address = ""
        self.chosen_by = setting


class SchemaMismatch(FanoutError):
    """The database's schema is not the one that this version works with."""

    code = "schema_mismatch"

    def __init__(self, found: int, needed: int) -> None:
        fix = "run `python starter.py migrate`" if found < needed else "upgrade this Fanout"
        super().__init__(f"the database has schema version {found}, this Fanout needs {needed}: {fix}")
        self.found = found
        self.needed = needed


class PermanentError(Exception):
    """Raised by a handler: this item can never succeed, so it fails at once.

    `code` (at most 60 characters) becomes the stored error's code, in place of `permanent`; `poison`, `lost_too_often`
    and `cancelled` do not, as they tell what Fanout itself has seen.
    """

    def __init__(self, message: str = "", *, code: str = "permanent") -> None:
        super().__init__(message)
        self.code = "permanent" if code is None else str(code)[:60]


class RetryLater(Exception):
    """Raised by a handler: run this item again, not before `after`; no attempt is charged.

    `after` is a time span from now, or a time with a zone.
    """

    def __init__(self, message: str = "", *, after: timedelta | datetime) -> None:
        if not isinstance(after, timedelta | datetime):
            raise TypeError(f"RetryLater(after=…) takes a time span or a time, not {type(after).__name__}")
        if isinstance(after, datetime) and after.tzinfo is None:
            raise ValueError("RetryLater(after=…) needs a time with a zone")
        super().__init__(message)
        self.after = after


class TransactionError(Exception):
    """A handler's transaction was rolled back; nothing of it is in the database."""


class NotCompleted(TransactionError):
    """The block of `ctx.transaction()` was left without `tx.complete(result)`."""

    def __init__(self) -> None:
        super().__init__("a transaction ends with tx.complete(result); without it nothing is written")


class TransactionEnded(TransactionError):
    """The handler's own SQL committed or rolled back what `ctx.transaction()` had begun."""

    def __init__(self) -> None:
        super().__init__("COMMIT and ROLLBACK are ctx.transaction()'s own: the item was not settled")


class StaleClaim(TransactionError):
    """The item was taken over while its handler ran: what this attempt found does not count."""

    def __init__(self) -> None:
        super().__init__("another attempt has this item by now; this one's effects were rolled back")


class DatabaseAway(TransactionError):
    """The database went away before the transaction could be committed; no attempt is charged for it."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"the database went away: {cause}")


class NoTransaction(TransactionError):
    """`ctx.transaction()` is for coroutine handlers of a worker, one transaction an item."""


def shorten(text: str, limit: int = 80) -> str:
    """`text` with its middle left out where it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}…{text[-limit // 2 :]}"
