"""What stands out in a batch: its failures by kind, and when its items settled."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query

from fanout.client import FanoutClient
from fanout.http.models import FailureExample, FailureGroup, Failures, Span, Timeline
from fanout.http.routes import ApiRoute, problems
from fanout.http.service import TheBatch, TheClient
from fanout.store import BatchRow, Settles, step
from fanout.store import FailureGroup as FoundGroup

routes = APIRouter(route_class=ApiRoute)
GROUPS_SHOWN = 50
SPANS = 60
MOST_SPANS = 300
SHORTEST_TIME = timedelta(seconds=1)


@routes.get("/batches/{batch}/failures", response_model=Failures, responses=problems(404))
async def sum_failures(batch: TheBatch, client: TheClient) -> Failures:
    """The failed items by code and type, with one example of each; estimated where a big batch has many."""
    row = await batch.check_rows()
    found, estimated = await _failures(client, row) if row.failed else ([], False)
    found = sorted(found, key=lambda group: (-group.found, group.code, group.type))
    shown = found[:GROUPS_SHOWN]
    examples = await client.store.browsing.read_failures(row.id, [group.first for group in shown])
    groups = []
    for group in shown:
        failure = examples.get(group.first)
        example = None
        if failure is not None:
            example = FailureExample(
                seq=failure.seq, item_key=failure.item_key, attempts=failure.attempts, message=failure.message or ""
            )
        groups.append(FailureGroup(code=group.code, type=group.type, count=group.found, example=example))
    return Failures(failed=row.failed, estimated=estimated, groups=groups, left_out=len(found) - len(shown))


async def _failures(client: FanoutClient, row: BatchRow) -> tuple[list[FoundGroup], bool]:
    """The groups, and whether their counts are estimates."""
    told = await client.store.browsing.group_told_failures(row.id)
    if sum(group.found for group in told) == row.failed:
        return told, False
    sampled = await client.store.browsing.group_sampled_failures(row.id, row.total)
    if step(row.total) == 1:
        return sampled, False
    seen = sum(group.found for group in sampled)
    scale = row.failed / seen if seen else 0
    merged = {(group.code, group.type): group for group in told}
    for group in sampled:
        known = merged.get((group.code, group.type))
        count = max(round(group.found * scale), known.found if known else 1)
        merged[group.code, group.type] = FoundGroup(group.code, group.type, count, group.first)
    return list(merged.values()), True


@routes.get("/batches/{batch}/timeline", response_model=Timeline, responses=problems(404))
async def show_timeline(
    batch: TheBatch, client: TheClient, spans: Annotated[int, Query(ge=1, le=MOST_SPANS)] = SPANS
) -> Timeline:
    """When items settled, in equal spans of time; estimated from a sample of a big batch."""
    row = await batch.check_rows()
    begin = row.started_at or row.created_at
    end = max(row.closed_at or datetime.now(UTC), begin + SHORTEST_TIME)
    found = await client.store.browsing.sample_settles(row.id, row.total, begin, end, spans)
    estimated = step(row.total) > 1
    counts = [[0.0, 0.0, 0.0] for _ in range(spans)]
    scales = _scales(row, found) if estimated else (1.0, 1.0, 1.0)
    for each in found:
        place = counts[min(max(each.bucket, 1), spans) - 1]
        for number, value in enumerate((each.completed, each.failed, each.cancelled)):
            place[number] += value * scales[number]
    length = (end - begin) / spans
    shown = [
        Span(at=begin + number * length, completed=round(one), failed=round(two), cancelled=round(three))
        for number, (one, two, three) in enumerate(counts)
    ]
    return Timeline(begin=begin, end=end, span_seconds=length.total_seconds(), estimated=estimated, spans=shown)


def _scales(row: BatchRow, found: Sequence[Settles]) -> tuple[float, ...]:
    """What one row of the sample stands for, of each state."""
    settled = ((row.completed, "completed"), (row.failed, "failed"), (row.cancelled, "cancelled"))
    return tuple(count / max(1, sum(getattr(each, name) for each in found)) for count, name in settled)
