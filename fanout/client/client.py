"""`FanoutClient`: submits batches and looks into them."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from temporalio.client import Client

from fanout.client.dedup import NAMES, Dedup
from fanout.client.handle import BatchHandle
from fanout.client.items import Items, key_fault
from fanout.client.limits import Limits
from fanout.client.schedules import Schedules
from fanout.client.starting import Starter
from fanout.client.submitting import (
    SEEN_WITHIN,
    SubmitOptions,
    SubmitOutcome,
    check_batch,
    refuse_unknown,
    store_batch,
)
from fanout.client.why import Inquiry
from fanout.client.witness import Witness
from fanout.devstack import running
from fanout.errors import InvalidRequest, UnknownBatch
from fanout.handlers import Handlers
from fanout.live import Hub, Notifier
from fanout.metrics import DatabaseGauges
from fanout.names import BATCH_KEY_BYTES, HANDLER_NAME
from fanout.points import FaultPoints
from fanout.servers import Servers, choose_servers
from fanout.settings import Settings
from fanout.states import BatchStatus
from fanout.status import Status
from fanout.store import BatchStore, Connection, Ticks, WorkerRow, check_place, check_schema, connect_pool
from fanout.tracing import NO_TRACING, Tracing, tracing_of_process

CONNECTIONS = 10
NO_HANDLERS = Handlers(())


class FanoutClient:
    """A client of one deployment: safe to share between tasks, closed with its `connect` block."""

    def __init__(
        self,
        store: BatchStore,
        hub: Hub,
        starter: Starter,
        temporal: Client,
        settings: Settings,
        handlers: Handlers,
        servers: Servers | None = None,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self._tracing = tracing
        self.store = store
        self.hub = hub
        """What all readers of live progress share; it does nothing before the first one."""
        self.gauges = DatabaseGauges(store.gauges)
        self.suppressed: Counter[tuple[str, str]] = Counter()
        self.starter = starter
        self.temporal = temporal
        self.settings = settings
        self.handlers = handlers
        self.servers = servers
        self.schedules = Schedules(temporal, settings.names)

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        settings: Settings | None = None,
        *,
        servers: Servers | None = None,
        handlers: Handlers = NO_HANDLERS,
        tracing: Tracing | None = None,
    ) -> AsyncIterator["FanoutClient"]:
        """Connects to both servers: those that are given, else the environment's, else a running dev stack's.

        `handlers` are accepted by `submit` even while no worker runs. In a process that uses OpenTelemetry submits
        have spans, unless `tracing` says otherwise. Raises ServerUnreachable or SchemaMismatch.
        """
        tracing = tracing or tracing_of_process()
        settings = settings or Settings.from_environment()
        servers = servers or choose_servers(settings, running(settings))
        pool = await connect_pool(
            servers.database_url, purpose="client", size=CONNECTIONS, chosen_by=servers.database_chosen_by
        )
        ticks = Ticks(pool)
        notifier = Notifier(ticks)
        try:
            database_id = await check_schema(pool)
            temporal = await servers.connect_temporal(interceptors=tracing.interceptors)
            points = FaultPoints.armed(settings.fault_points)
            stale_after = timedelta(seconds=settings.heartbeat_seconds)
            store = BatchStore(pool, stale_after, points, notifier.note)
            chosen_by = servers.temporal_chosen_by
            starter = Starter(temporal, settings.names, database_id, chosen_by, points, stale_after, tracing)
            hub = Hub(store, ticks, servers.listen_url)
            try:
                yield cls(store, hub, starter, temporal, settings, handlers, servers, tracing)
            finally:
                await hub.close()
        finally:
            await notifier.close()
            await pool.close()

    async def submit(
        self,
        handler: str,
        items: Items,
        *,
        key: str | None = None,
        title: str | None = None,
        range_size: int | None = None,
        max_failures: int | str | None = None,
        on_budget: str | None = None,
        deadline: timedelta | None = None,
        on_close: str | None = None,
        dedup: str | timedelta = NAMES[0],
        connection: Connection | None = None,
        allow_unknown: bool = False,
        origin: str = "client",
    ) -> BatchHandle:
        """Stores a batch in one transaction, then starts its workflow; `handle.outcome` says what came of it.

        `items` is an iterable or async iterable of payloads or `Item`s, read once, in constant memory. While a batch
        with that key is open, the same items join it (which repeats the start, and so heals a crash between commit and
        start) and others are a KeyConflict. Once it is closed `dedup` decides: "forever" answers `already_done`, "open"
        makes a new batch, "success" does unless it closed as completed, a time span once that has passed since. Without
        a key every submit is a new batch. Raises InvalidRequest for what cannot be stored, and then nothing is.

        More than `max_failures` failed items, a number or a percentage of them such as "5%", pause the batch, or with
        `on_budget="fail"` end it as failed. So does `deadline`, counted from now. When it closes, in whatever state,
        one item with its status is submitted to the handler `on_close`. A batch that is joined keeps its own options.

        With `connection`, an asyncpg one to Fanout's database with a transaction open, all that is written becomes part
        of that transaction. `await handle.start()` follows its commit. Rolled back, there is no batch.
        """
        limits = Limits(max_failures, on_budget, deadline)
        options = SubmitOptions(handler, key, title, range_size, origin, limits, on_close, Dedup.of(dedup))
        return await self.submit_with(options, items, connection=connection, allow_unknown=allow_unknown)

    async def submit_with(
        self,
        options: SubmitOptions,
        items: Items,
        *,
        connection: Connection | None = None,
        allow_unknown: bool = False,
    ) -> BatchHandle:
        """`submit` with options that are checked already, as the command line and the HTTP interface have them."""
        if not allow_unknown:
            refuse_unknown(options.handlers, await self.known_handlers())
        if connection is not None:
            await check_place(connection, self.starter.database_id)
        limit = self.settings.max_payload_bytes
        with self._tracing.submitting(options.handler) as span:
            options = replace(options, traceparent=span.traceparent)
            batch_id, outcome = await store_batch(self.store, self.settings.names, options, items, limit, connection)
            span.came_to(batch_id, outcome)
            return await self._start(options, batch_id, outcome, start=connection is None)

    async def _start(
        self, options: SubmitOptions, batch_id: UUID, outcome: SubmitOutcome, *, start: bool
    ) -> BatchHandle:
        if outcome is not SubmitOutcome.STARTED:
            self.suppressed[options.handler, outcome.value] += 1
        handle = BatchHandle(self, batch_id, outcome)
        if start:
            await handle.start()
        return handle

    async def check(
        self, handler: str, items: Items, *, key: str | None = None, dedup: str | timedelta = NAMES[0]
    ) -> int:
        """How many items a submit would store; raises InvalidRequest as it would, and stores nothing.

        Whether anybody knows the handler is not looked at.
        """
        options = SubmitOptions(handler, key, dedup=Dedup.of(dedup))
        return await check_batch(self.store, options, items, self.settings.max_payload_bytes)

    async def known_handlers(self) -> set[str]:
        """The names that this client knows, or a worker that was seen within a day."""
        workers = await self.store.list_workers(SEEN_WITHIN)
        return {*self.handlers, *(name for worker in workers for name in worker.facts.handlers)}

    async def get(self, reference: UUID | str) -> BatchHandle:
        """The batch of that id, or the newest batch of `HANDLER/KEY`; raises UnknownBatch."""
        handle = BatchHandle(self, await self._find(reference))
        await handle.read()
        return handle

    async def _find(self, reference: UUID | str) -> UUID:
        if isinstance(reference, UUID):
            return reference
        if not isinstance(reference, str):
            raise UnknownBatch(str(reference))
        handler, slash, key = reference.partition("/")
        if slash:
            known = key_fault(key, BATCH_KEY_BYTES) is None and HANDLER_NAME.fullmatch(handler)
            found = await self.store.find_batch(handler, key) if known else None
            if found is None:
                raise UnknownBatch(reference)
            return found
        try:
            return UUID(reference)
        except ValueError:
            raise UnknownBatch(reference) from None

    async def list(
        self, *, status: BatchStatus | str | None = None, handler: str | None = None, limit: int = 50
    ) -> AsyncIterator[Status]:
        """The status of each batch, newest first."""
        if limit < 1:
            raise InvalidRequest(f"limit {limit} is not above 0")
        wanted = None if status is None else _batch_status(status)
        for batch_id in await self.store.list_batches(wanted, handler, limit):
            yield await BatchHandle(self, batch_id).progress()

    @property
    def inquiry(self) -> Inquiry:
        """What `BatchHandle.why` asks."""
        return Inquiry(self.store, Witness(self.temporal, self.settings.names, self.starter.database_id), self.settings)

    async def workers(self) -> Sequence[WorkerRow]:
        """The workers whose lease is fresh."""
        return await self.store.list_workers()


def _batch_status(status: str) -> BatchStatus:
    try:
        return BatchStatus(status)
    except ValueError:
        raise InvalidRequest(f"{status!r} is no state of a batch: {', '.join(BatchStatus)}") from None
