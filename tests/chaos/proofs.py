"""What must hold after a run, from the rows and from a trigger's record of every settle: SQL of the campaign's own."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
from temporalio.client import WorkflowExecutionStatus

from tests.chaos.customer import patiently
from tests.chaos.loads import Load
from tests.handlers.chaotic import result_of
from tests.support import Deployment, eventually

BATCH = """select id, status, epoch, total, closed_at is not null as closed, completed, failed, cancelled
from fanout.batches where handler = $1 and key = $2"""
ROWS = """select seq, status, attempts, crashes, result, error ->> 'code' as code, worker_id, claim_id
from fanout.results where batch_id = $1 order by seq"""
ITEMS = "select seq, item_key, payload from fanout.items where batch_id = $1 order by seq"
COUNTERS = """select coalesce(sum(completed), 0)::integer as completed, coalesce(sum(failed), 0)::integer as failed,
coalesce(sum(cancelled), 0)::integer as cancelled from fanout.progress where batch_id = $1"""
EVENTS = """select e.id, e.kind, e.data, h.last_id from fanout.event_heads h
left join fanout.events e on e.batch_id = h.batch_id where h.batch_id = $1 order by e.id"""
SETTLES = "select seq, status, was, epoch from fanout_audit.settles where batch_id = $1 order by seq, at"
END_SECONDS = 90.0


@dataclass(frozen=True)
class Found:
    """Something that must not be: `kind` is one of lost, settled twice, left open, wrong counts, ledger, wrong."""

    kind: str
    batch: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.batch}: {self.detail}"


@dataclass(frozen=True)
class Evidence:
    """Everything that the database knows of one batch."""

    load: Load
    batch: asyncpg.Record
    rows: list[asyncpg.Record]
    items: list[asyncpg.Record]
    counters: asyncpg.Record
    events: list[asyncpg.Record]
    settles: list[asyncpg.Record]

    def found(self, kind: str, detail: object) -> Found:
        """A violation of this batch."""
        return Found(kind, self.load.key, str(detail))


async def collect(fanout: Deployment, load: Load) -> Evidence | None:
    """Reads it; None where there is no such batch, or more than one."""
    batches = await patiently(lambda: fanout.pool.fetch(BATCH, load.handler, load.key))
    if len(batches) != 1:
        return None
    batch_id = batches[0]["id"]
    counters = await fanout.pool.fetchrow(COUNTERS, batch_id)
    assert counters is not None
    return Evidence(
        load,
        batches[0],
        await fanout.pool.fetch(ROWS, batch_id),
        await fanout.pool.fetch(ITEMS, batch_id),
        counters,
        await fanout.pool.fetch(EVENTS, batch_id),
        await fanout.pool.fetch(SETTLES, batch_id),
    )


async def prove(fanout: Deployment, load: Load) -> list[Found]:
    """All that is wrong with one batch after its run."""
    evidence = await collect(fanout, load)
    if evidence is None:
        return [Found("lost", load.key, "there is not exactly one batch of that key")]
    product = await fanout.client.store.read_violations(evidence.batch["id"])
    return [
        *(evidence.found("wrong counts", f"verify: {each.code}: {each.detail}") for each in product),
        *presence(evidence),
        *closing(evidence),
        *counts(evidence),
        *events(evidence),
        *settles(evidence),
        *outcomes(evidence),
        *await ends(fanout, evidence),
    ]


def presence(evidence: Evidence) -> Iterator[Found]:
    """Every item is there with its payload, and each has a row."""
    payloads = [json.loads(item["payload"]) for item in evidence.items]
    if payloads != evidence.load.payloads:
        yield evidence.found("lost", f"{len(payloads)} items, {len(evidence.load.payloads)} were submitted")
    if [row["seq"] for row in evidence.rows] != list(range(len(evidence.load.payloads))):
        yield evidence.found("lost", f"{len(evidence.rows)} rows for {len(evidence.load.payloads)} items")


def closing(evidence: Evidence) -> Iterator[Found]:
    """The batch is closed in the state that its rows give it, and none of them is open."""
    tally = tally_of(evidence)
    if not evidence.batch["closed"]:
        yield evidence.found("left open", f"{evidence.batch['status']} with {tally}")
    opened = [row["seq"] for row in evidence.rows if row["status"] in ("pending", "processing")]
    if opened:
        yield evidence.found("left open", f"rows {opened[:20]}")
    expected = {"completed_with_failures" if tally["failed"] else "completed"}
    if evidence.load.cancelled:
        # The cancel may have come when all was done.
        expected = {"cancelled"} if tally["cancelled"] else {*expected, "cancelled"}
    if evidence.batch["status"] not in expected:
        yield evidence.found("wrong", f"ended as {evidence.batch['status']} with {tally}")
    if tally["cancelled"] and not evidence.load.cancelled:
        yield evidence.found("lost", f"{tally['cancelled']} items were cancelled, and nobody asked for it")


def tally_of(evidence: Evidence) -> dict[str, int]:
    """How many rows stand in each final state."""
    statuses = [row["status"] for row in evidence.rows]
    return {status: statuses.count(status) for status in ("completed", "failed", "cancelled")}


def counts(evidence: Evidence) -> Iterator[Found]:
    """Rows, live counters, final counts and the closing event tell the same."""
    tally = tally_of(evidence)
    told = [json.loads(event["data"]) for event in evidence.events if event["kind"] == "closed"]
    for name, source in (("counters", evidence.counters), ("final counts", evidence.batch), ("event", told[-1:])):
        seen: Any = source[0] if isinstance(source, list) and source else source
        if not seen or {status: seen[status] for status in tally} != tally:
            yield evidence.found("wrong counts", f"{name} say {dict(seen) if seen else None}, rows say {tally}")


def events(evidence: Evidence) -> Iterator[Found]:
    """No id is missing, and an epoch has one closing event at most; the last epoch has one."""
    ids = [event["id"] for event in evidence.events]
    if ids != list(range(1, evidence.events[0]["last_id"] + 1)):
        yield evidence.found("wrong counts", f"{len(ids)} events, the newest id is {evidence.events[0]['last_id']}")
    epochs = [json.loads(event["data"])["epoch"] for event in evidence.events if event["kind"] == "closed"]
    if len(epochs) != len(set(epochs)) or epochs[-1:] != [evidence.batch["epoch"]]:
        yield evidence.found("settled twice", f"closed in epochs {epochs}, the last is {evidence.batch['epoch']}")


def settles(evidence: Evidence) -> Iterator[Found]:
    """By the trigger: once an epoch, again only after a failure, and last as the row stands now."""
    by_seq: dict[int, list[asyncpg.Record]] = {}
    for settle in evidence.settles:
        by_seq.setdefault(settle["seq"], []).append(settle)
    for row in evidence.rows:
        seen = by_seq.get(row["seq"], [])
        epochs = [settle["epoch"] for settle in seen]
        if len(epochs) != len(set(epochs)):
            yield evidence.found("settled twice", f"seq {row['seq']} in epochs {epochs}")
        if any(settle["status"] != "failed" for settle in seen[:-1]):
            yield evidence.found("settled twice", f"seq {row['seq']}: {[settle['status'] for settle in seen]}")
        if any(settle["was"] not in ("processing", "pending") for settle in seen):
            yield evidence.found("settled twice", f"seq {row['seq']} was {[settle['was'] for settle in seen]}")
        if not seen or seen[-1]["status"] != row["status"]:
            yield evidence.found("lost", f"seq {row['seq']} is {row['status']}, settled as {[*map(dict, seen)]}")


def outcomes(evidence: Evidence) -> Iterator[Found]:
    """Each result is what its payload comes to, and no fault was charged to an item."""
    for row, payload in zip(evidence.rows, evidence.load.payloads, strict=False):
        if row["status"] == "cancelled":
            continue
        hopeless = payload.get("hopeless", False)
        expected = ("failed", None, "hopeless", 1) if hopeless else completed(payload)
        result = None if row["result"] is None else json.loads(row["result"])
        seen = (row["status"], result, row["code"], row["attempts"])
        if seen != expected:
            yield evidence.found("wrong", f"seq {row['seq']} is {seen} after {row['crashes']} crashes, not {expected}")


def completed(payload: dict[str, Any]) -> tuple[str, int, None, int]:
    """State, result, error and attempts of an item that can work."""
    return ("completed", result_of(payload["number"]), None, payload.get("failures", 0))


async def ends(fanout: Deployment, evidence: Evidence) -> list[Found]:
    """The workflow of a closed batch ends as well."""
    batch_id: UUID = evidence.batch["id"]
    handle = fanout.temporal.get_workflow_handle(f"fanout/{evidence.load.handler}/{evidence.load.key}")

    async def ended() -> bool:
        return (await patiently(handle.describe)).status is not WorkflowExecutionStatus.RUNNING

    try:
        await eventually(ended, END_SECONDS)
    except (AssertionError, TimeoutError):
        return [evidence.found("left open", f"the workflow of {batch_id} still runs, or cannot be seen")]
    return []
