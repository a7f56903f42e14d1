"""Metrics and probes of real workers, and what the rows say beside them."""

import asyncio
import re
import signal
import socket
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from fanout.devstack.ports import free_ports
from fanout.errors import InvalidSetting
from fanout.metrics import METRICS, endpoint, exposition
from fanout.metrics.endpoint import Answer, Endpoint
from fanout.metrics.exposition import MOST_HANDLERS, OTHER, measure, render
from fanout.metrics.meters import SdkMeters
from fanout.metrics.runtime import ProcessRuntime
from fanout.settings import Settings
from fanout.states import BatchStatus
from fanout.store import Gauges, HeldWork, OpenWork
from tests.support import Deployment, eventually
from tests.test_crashes import processing

SERIES = re.compile(r"^(\w+)(?:\{(.*)\})? ([0-9.e+-]+|NaN|\+Inf)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def address() -> str:
    return f"127.0.0.1:{free_ports([], 1)[0]}"


def fetch(place: str, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://{place}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


async def get(place: str, path: str) -> tuple[int, str]:
    return await asyncio.to_thread(fetch, place, path)


def parse(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Series by name and sorted labels; an assertion error for a line that is none."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        parts = SERIES.match(line)
        assert parts, line
        labels = tuple(sorted(LABEL.findall(parts[2] or "")))
        assert labels not in found.setdefault(parts[1], {}), line
        found[parts[1]][labels] = float(parts[3])
    return found


async def scrape(place: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    status, text = await get(place, "/metrics")
    assert status == 200
    return parse(text)


def labels(**given: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(given.items()))


def check_against_the_catalogue(found: dict[str, Any]) -> set[str]:
    """The names of our own that stand there, each with the labels that are declared and no other."""
    declared = {metric.name: metric for metric in METRICS}
    seen = set()
    for name, series in found.items():
        if not name.startswith("fanout_"):
            assert name.startswith("temporal_"), name
            continue
        base = re.sub("_(bucket|sum|count)$", "", name)
        metric = declared[base]
        seen.add(base)
        for each in series:
            assert {label for label, _ in each} - {"le"} == set(metric.labels), name
    return seen


async def test_a_worker_tells_what_it_does_and_how_it_is(fanout: Deployment) -> None:
    place = address()
    worker = await fanout.start_worker(FANOUT_METRICS_ADDRESS=place, FANOUT_GRACE_SECONDS="30")
    await fanout.client.submit("test.nobody", [1, 2, 3], key="secret-key", allow_unknown=True)
    batches = [
        await fanout.client.submit("test.flaky", [0] * 30 + [1]),
        await fanout.client.submit("test.fail", [1, 2]),
    ]
    for batch in batches:
        await batch.wait()
    nap = await fanout.client.submit("test.sleep", [{"seconds": 600}] * 2)

    async def napping() -> Any:
        found = await scrape(place)
        items = found.get("fanout_items_open", {})
        return found if items.get(labels(handler="test.sleep", state="processing")) == 2 else None

    found = await eventually(napping)
    seen = check_against_the_catalogue(found)
    assert seen >= {metric.name for metric in METRICS if not metric.of_process} - {"fanout_last_sweep_age_seconds"}
    settled = found["fanout_items_settled_total"]
    assert settled == {
        labels(handler="test.flaky", state="completed"): 31,
        labels(handler="test.fail", state="failed"): 2,
    }
    attempts = found["fanout_attempt_duration_seconds_count"]
    assert attempts[labels(handler="test.flaky", outcome="completed")] == 31
    assert attempts[labels(handler="test.flaky", outcome="transient")] == 1
    assert attempts[labels(handler="test.fail", outcome="permanent")] == 2
    assert found["fanout_items_open"][labels(handler="test.nobody", state="pending")] == 3
    assert found["fanout_batches_open"][labels(handler="test.nobody", status="processing")] == 1
    assert found["fanout_workers"][labels(handler="test.sleep")] == 1
    assert 0 < found["fanout_oldest_claim_age_seconds"][labels(handler="test.sleep")] < 60
    assert sum(found["fanout_notify_lag_seconds_count"].values()) > 0
    assert found["temporal_worker_task_slots_used"]
    _, text = await get(place, "/metrics")
    assert not [word for word in ("secret-key", str(nap.batch_id), *(str(b.batch_id) for b in batches)) if word in text]
    await check_pages(place)
    await check_that_junk_harms_nobody(place)
    worker.process.send_signal(signal.SIGTERM)

    async def draining() -> bool:
        return await get(place, "/ready") == (503, '{"ready": false, "reasons": ["draining"]}\n')

    await eventually(draining)
    assert (await get(place, "/health"))[0] == 200
    # The second one ends the grace time.
    worker.process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(worker.process.wait, 60) == 0


async def check_pages(place: str) -> None:
    assert await get(place, "/health") == (200, "alive\n")

    async def is_ready() -> bool:
        return await get(place, "/ready?verbose") == (200, '{"ready": true, "reasons": []}\n')

    await eventually(is_ready)
    assert (await get(place, "/nothing"))[0] == 404


async def check_that_junk_harms_nobody(place: str) -> None:
    host, _, port = place.rpartition(":")
    for junk in (b"\r\n\r\n", b"\x00\xff" * 10 + b"\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n", b"GET /" + b"x" * 20_000):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(junk)
        try:
            answer = await reader.read()
        except ConnectionError:
            answer = b""
        assert b" 200 " not in answer.partition(b"\r\n")[0]
        writer.close()
    silent = [await asyncio.open_connection(host, int(port)) for _ in range(40)]
    for _, writer in silent:
        writer.close()

    async def answers() -> bool:
        try:
            return (await get(place, "/health"))[0] == 200
        except OSError:
            return False

    await eventually(answers)


async def test_a_peer_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much of the answer is still to be sent: else each such peer would keep a connection for ever."""
    monkeypatch.setattr(endpoint, "REQUEST_SECONDS", 0.5)

    async def long() -> Answer:
        return Answer("x" * 20_000_000)

    async with Endpoint({"/": long}).listening("127.0.0.1", 0, "FANOUT_METRICS_ADDRESS") as port:
        with socket.socket() as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            peer.connect(("127.0.0.1", port))
            peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
            for wanted in (1, 0):
                await eventually(lambda: holds(port, wanted))  # noqa: B023


async def holds(port: int, connections: int) -> bool:
    """Whether somebody here has so many connections open that came in at the port."""
    table = await asyncio.to_thread(Path("/proc/net/tcp").read_text)
    found = [line.split() for line in table.splitlines()[1:]]
    ours = [fields for fields in found if fields[1].endswith(f":{port:04X}") and fields[3] != "0A"]
    return sum(fields[9] != "0" for fields in ours) == connections


async def test_lost_executions_and_stale_writes_are_counted(fanout: Deployment) -> None:
    """A frozen worker's item is taken over; what the frozen one writes once it is back is refused."""
    first_place, second_place = address(), address()
    ledger = {"FANOUT_TEST_LEDGER": str(fanout.folder)}
    first = await fanout.start_worker(
        handlers="tests.handlers.frozen", FANOUT_METRICS_ADDRESS=first_place, FANOUT_TEST_ENDING="A", **ledger
    )
    batch = await fanout.client.submit("test.frozen", [None])
    await eventually(lambda: processing(fanout, batch.batch_id))
    first.process.send_signal(signal.SIGSTOP)
    await fanout.start_worker(
        handlers="tests.handlers.frozen", FANOUT_METRICS_ADDRESS=second_place, FANOUT_TEST_ENDING="B", **ledger
    )
    await asyncio.wait_for(batch.wait(), 120)
    found = await scrape(second_place)
    assert found["fanout_lost_executions_total"] == {labels(handler="test.frozen"): 1}
    assert "fanout_stale_writes_refused_total" not in found
    (fanout.folder / "go").touch()
    first.process.send_signal(signal.SIGCONT)

    async def refused() -> bool:
        stale = (await scrape(first_place)).get("fanout_stale_writes_refused_total", {})
        return stale == {labels(handler="test.frozen"): 1}

    await eventually(refused)


async def test_a_name_that_none_can_be_is_refused_by_the_settings_name() -> None:
    with pytest.raises(InvalidSetting, match=r"FANOUT_METRICS_ADDRESS: nothing can listen on no\.\.host:1"):
        async with Endpoint({}).listening("no..host", 1, "FANOUT_METRICS_ADDRESS"):
            raise AssertionError("it listens")


async def test_an_address_that_is_taken_ends_the_worker_by_name(fanout: Deployment) -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(AssertionError, match=f"FANOUT_METRICS_ADDRESS: nothing can listen on {place}"):
        await fanout.start_worker(FANOUT_METRICS_ADDRESS=place)
    assert fanout.workers[0].process.returncode == 2
    server.close()


@pytest.mark.parametrize("wrong", ["9464", ":9464", "localhost", "http://localhost:1", "a:b", "host:123456"])
def test_an_address_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidSetting, match="FANOUT_METRICS_ADDRESS"):
        Settings.from_environment({"FANOUT_METRICS_ADDRESS": wrong})
    assert Settings.from_environment({"FANOUT_METRICS_ADDRESS": "[::1]:9464"}).metrics_place == ("::1", 9464)


async def test_a_client_tells_the_rows_and_the_duplicates_that_it_suppressed(fanout: Deployment) -> None:
    for _ in range(3):
        await fanout.client.submit("test.noop", [1, 2], key="k", allow_unknown=True)
    found = parse(await exposition(fanout.client))
    check_against_the_catalogue(found)
    assert found["fanout_items_open"][labels(handler="test.noop", state="pending")] == 2
    assert found["fanout_duplicates_suppressed_total"] == {labels(handler="test.noop", outcome="joined"): 2}
    await fanout.client.submit("test.noop", [3], key="other", allow_unknown=True)
    again = parse(await exposition(fanout.client))
    assert again["fanout_items_open"] == found["fanout_items_open"], "read again although it was read just before"


async def test_rows_that_cannot_be_read_are_told_as_such(fanout: Deployment) -> None:
    await fanout.pool.execute("alter table fanout.progress rename to elsewhere")
    assert parse(await exposition(fanout.client)) == {"fanout_database_up": {(): 0}}


def test_names_that_anybody_can_make_up_are_bounded() -> None:
    opened = [OpenWork(f"made-up-{n}", BatchStatus.PENDING, 1, 10, float(n)) for n in range(500)]
    held = [HeldWork("real", 2, 25, 3.5)]
    shown = {metric.name: series for metric, series in measure(Gauges(opened, held, None))}
    assert len(shown["fanout_batches_open"]) == MOST_HANDLERS
    assert shown["fanout_batches_open"][OTHER, "pending"] == 401
    assert shown["fanout_workers"]["real",] == 2
    assert sum(shown["fanout_items_open"].values()) == 5_000
    assert shown["fanout_last_sweep_age_seconds"] == {}


def test_labels_are_escaped() -> None:
    metric = next(each for each in METRICS if each.name == "fanout_workers")
    assert render(metric, {('a"b\\c\nd',): 1}).splitlines()[2] == r'fanout_workers{handler="a\"b\\c\nd"} 1'


async def test_every_counter_of_a_process_is_told_under_its_name() -> None:
    process = ProcessRuntime(metered=True)
    meters = SdkMeters(process.runtime.metric_meter)
    meters.count_settled("h", "completed")
    meters.note_attempt("h", "completed", 0.2)
    meters.count_lost("h", 2)
    meters.count_lost("h", 0)
    meters.count_stale("h")
    meters.count_swept("revived")
    meters.count_stalled("nobody_polls")
    meters.count_duplicate("h", "joined")
    meters.note_notify_lag(0.02)
    text = await process.text()
    found = parse(text)
    assert check_against_the_catalogue(found) == {metric.name for metric in METRICS if metric.of_process}
    assert found["fanout_lost_executions_total"] == {labels(handler="h"): 2}
    assert found["fanout_notify_lag_seconds_bucket"][labels(le="0.05")] == 1
    for metric in METRICS:
        assert not metric.of_process or f"# HELP {metric.name} {metric.help}" in text
        assert not metric.of_process or f"# TYPE {metric.name} {metric.kind}" in text
