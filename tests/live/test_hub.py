"""One reading for all readers, and nothing missed: whatever commits late, stalls, or is cut."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest

from fanout.live import Kind, feed
from fanout.live.feed import RECENT
from fanout.store.pool import READ_SECONDS
from tests.faults.proxy import Line
from tests.live.support import Notes, live, settle, until, worker
from tests.store.support import LONG_GRACE, add_batch, at_the_lock, observer
from tests.support import eventually

NEWS = """[{"kind": "told", "class": "batch", "data": {}}]"""
EMIT = "select fanout.emit($1, $2)"


async def test_a_stream_tells_a_batch_from_its_first_event_to_its_close(url: str) -> None:
    async with live(url) as found, worker(url) as actor:
        batch_id = await add_batch(found.batches, 10)
        async with found.reading(batch_id) as notes:
            await settle(found, actor, batch_id, 4, failing=1)
            await settle(found, actor, batch_id, 6)
            await found.batches.close_batch(batch_id, 1, LONG_GRACE)
            await until(lambda: Kind.CLOSED in notes.kinds())
        assert notes.events() == ["submitted", "started", "failed", "closed"]
        assert notes.settled() == sorted(notes.settled())
        assert notes.settled()[-1] == 10
        assert notes.kinds()[-1] == "closed"


async def test_a_hub_closes_at_once_in_whatever_moment_of_its_beginning(url: str) -> None:
    async with live(url) as found:
        batch_id = await add_batch(found.batches, 1)
    for milliseconds in range(0, 60, 2):
        async with live(url) as found:
            reading = asyncio.create_task(found.read(batch_id, Notes()))
            await asyncio.sleep(milliseconds / 1_000)
            async with asyncio.timeout(10):
                await found.hub.close()
            await asyncio.gather(reading, return_exceptions=True)


async def test_an_event_that_commits_late_is_missed_by_nobody_and_strangers_hold_nobody_up(url: str) -> None:
    async with live(url) as found, worker(url) as late, observer(url) as first, observer(url) as stranger:
        batch_id = await add_batch(found.batches, 1)
        open_for_long = stranger.transaction()
        await open_for_long.start()
        # It has an id and a snapshot: whoever waits for older transactions would wait for it.
        await stranger.fetchval("select pg_current_xact_id()")
        async with found.reading(batch_id) as notes:
            await until(lambda: notes.ids() == [1, 2])
            transaction = first.transaction()
            await transaction.start()
            await first.execute(EMIT, batch_id, NEWS.replace("told", "early"))
            async with at_the_lock(late, late.pool.execute(EMIT, batch_id, NEWS.replace("told", "late"))):
                await found.batches.trip_budget(batch_id)
                await transaction.commit()
            await until(lambda: len(notes.ids()) == 4)
            assert notes.ids() == [1, 2, 3, 4]
            assert notes.events()[2:] == ["early", "late"]
        await open_for_long.rollback()


async def test_five_hundred_readers_share_one_listen_and_leave_nothing_behind(url: str) -> None:
    async with live(url) as found, worker(url) as actor:
        batch_id = await add_batch(found.batches, 20)
        async with AsyncExitStack() as readers:
            entering = [readers.enter_async_context(found.reading(batch_id)) for _ in range(500)]
            everybody = await asyncio.gather(*entering)
            await settle(found, actor, batch_id, 20, failing=5)
            await until(lambda: all(notes.settled()[-1] == 20 for notes in everybody))
            await until(lambda: all(notes.ids() == list(range(1, 8)) for notes in everybody))
            assert found.hub.readers == 500
            assert len(await found.heard()) == 1
        assert found.hub.readers == 0


async def test_a_slow_reader_gets_every_event_and_only_the_newest_status(url: str) -> None:
    async with live(url) as found, worker(url) as actor:
        batch_id = await add_batch(found.batches, 60)
        start = await found.hub.find_start(batch_id, None)
        messages = found.hub.messages(batch_id, start)
        slow = [await anext(messages)]
        async with found.reading(batch_id) as quick:
            for _ in range(6):
                await settle(found, actor, batch_id, 10)
                await found.pool.execute(EMIT, batch_id, f"[{','.join([NEWS[1:-1]] * (RECENT // 4))}]")
            await found.batches.close_batch(batch_id, 1, LONG_GRACE)
            await until(lambda: Kind.CLOSED in quick.kinds())
        slow += [message async for message in messages]
        assert [message.id for message in slow if message.id] == quick.ids() == list(range(1, 4 + 6 * (RECENT // 4)))
        assert [message.status.settled for message in slow if message.status] == [0, 60]


async def test_a_listener_that_is_killed_listens_again_and_misses_nothing(url: str) -> None:
    async with live(url) as found, worker(url) as actor:
        batch_id = await add_batch(found.batches, 30)
        async with found.reading(batch_id) as notes:
            for round_ in range(1, 4):
                [listener] = await found.heard()
                await found.pool.execute("select pg_terminate_backend($1)", listener)
                await settle(found, actor, batch_id, 10, failing=2)
                await until(lambda: notes.settled()[-1] == 10 * round_, seconds=20)  # noqa: B023
            await until(lambda: notes.events().count("failed") == 6)
            await until(lambda: not found.hub.degraded)
        assert notes.ids() == list(range(1, 9))


async def test_a_dead_line_is_noticed_and_news_come_all_the_same(url: str) -> None:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    async with Line(parts.hostname, parts.port) as line, worker(url) as actor:
        through = url.replace(f"{parts.hostname}:{parts.port}", line.address)
        async with live(url, through) as found:
            batch_id = await add_batch(found.batches, 20)
            async with found.reading(batch_id) as notes:
                [before] = await found.heard()
                line.strand()
                await settle(found, actor, batch_id, 20, failing=1)
                await until(lambda: notes.settled()[-1] == 20 and "failed" in notes.events(), seconds=15)

                async def listens_anew() -> bool:
                    return not found.hub.degraded and set(await found.listeners()) - {before} != set()

                await eventually(listens_anew)


@pytest.mark.parametrize("obstacle", ["refused", "deaf"])
async def test_without_listen_news_come_by_looking_and_it_is_said_once(
    url: str, obstacle: str, caplog: pytest.LogCaptureFixture
) -> None:
    # A transaction pooler takes a LISTEN and never passes anything on; so does another database.
    listen_url = "postgresql://nobody@127.0.0.1:1/x" if obstacle == "refused" else f"{url.rpartition('/')[0]}/postgres"
    with caplog.at_level(logging.INFO, "fanout.live"):
        async with live(url, listen_url) as found, worker(url) as actor:
            batch_id = await add_batch(found.batches, 10)
            async with found.reading(batch_id) as notes:
                await until(lambda: found.hub.degraded)
                await settle(found, actor, batch_id, 10, failing=3)
                await until(lambda: notes.settled()[-1] == 10 and notes.events().count("failed") == 3)
                await found.batches.close_batch(batch_id, 1, LONG_GRACE)
                await until(lambda: notes.kinds()[-1] == "closed")
    said = [record.message for record in caplog.records if "LISTEN does not work" in record.message]
    assert len(said) == 1
    assert "FANOUT_LISTEN_URL" in said[0]


async def test_readers_outlive_an_outage_of_the_database(url: str) -> None:
    async with live(url) as found, worker(url) as actor:
        batch_id = await add_batch(found.batches, 10)
        async with found.reading(batch_id) as notes:
            await found.heard()
            async with observer(url) as killer:
                await killer.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity "
                    "where datname = current_database() and application_name in ('fanout live', 'fanout listen')"
                )
            await settle(found, actor, batch_id, 10)
            await until(lambda: notes.settled()[-1] == 10)


@pytest.mark.parametrize("away", [Line.cut, Line.stall])
async def test_a_database_that_does_not_answer_is_told_once_and_so_is_its_return(
    url: str, monkeypatch: pytest.MonkeyPatch, away: Callable[[Line], None]
) -> None:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    async with Line(parts.hostname, parts.port) as line:
        through = url.replace(f"{parts.hostname}:{parts.port}", line.address)
        async with live(through) as found:
            batch_id = await add_batch(found.batches, 10)
            async with found.reading(batch_id) as notes:
                await until(lambda: notes.ids() == [1, 2])
                monkeypatch.setattr(feed, "STALE_SECONDS", 0.3)
                away(line)
                # Long before a read that hangs gives up.
                await until(lambda: notes.kinds()[-1] == Kind.STALE, READ_SECONDS / 2)
                line.restore()
                await until(lambda: notes.kinds()[-1] == Kind.PROGRESS)
                assert notes.kinds().count(Kind.STALE) == 1
                first, *others = [message.status for message in notes.messages if message.status is not None]
                assert others[-1] == first


async def test_a_stream_ends_when_its_batch_is_purged_and_when_the_hub_closes(url: str) -> None:
    async with live(url) as found:
        batch_id, other = await add_batch(found.batches, 1), await add_batch(found.batches, 1)
        streams = []
        for each in (batch_id, other):
            start = await found.hub.find_start(each, None)
            streams.append(found.hub.messages(each, start))
            assert (await anext(streams[-1])).kind == "snapshot"
        await found.pool.execute("delete from fanout.batches where id = $1", batch_id)
        async with asyncio.timeout(20):
            assert [message.data["kind"] async for message in streams[0]] == ["submitted", "started"]
            await found.hub.close()
            assert [message.id async for message in streams[1]] == [1, 2]
