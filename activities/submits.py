"""The activity that stores a batch for a start made with nothing but Temporal."""

import asyncio
from collections.abc import Callable, Set
from contextlib import suppress
from typing import Any
from uuid import UUID

from temporalio import activity
from temporalio.exceptions import ApplicationError

from fanout.client.requests import Request
from fanout.client.sources import Sources
from fanout.client.starting import Starter
from fanout.client.submitting import SEEN_WITHIN, SubmitOutcome, refuse_unknown, store_batch
from fanout.contracts import SubmitAnswer, SubmitWork
from fanout.errors import InvalidRequest, KeyBusy
from fanout.metrics import NO_METERS, Meters
from fanout.names import Names
from fanout.store import OUTAGE, BatchStore

LAST_LOOK_SECONDS = 3.0


class SubmitActivities:
    """Runs as a local activity, so that the items stand in no other history than that of the start itself."""

    def __init__(
        self,
        store: BatchStore,
        names: Names,
        starter: Starter,
        payload_limit: int,
        own_handlers: Set[str],
        sources: Sources,
        meters: Meters = NO_METERS,
    ) -> None:
        self._sources = sources
        self._meters = meters
        self._own_handlers = own_handlers
        self._store = store
        self._names = names
        self._starter = starter
        self._payload_limit = payload_limit

    @activity.defn
    async def submit_batch(self, work: SubmitWork) -> SubmitAnswer:
        """Stores the batch in one transaction, or joins the one that has its key; then starts it, if it is another's.

        Safe to repeat, also after a reset of the workflow: the batch has the id `start_id`, and so has its line in the
        ledger. A request that cannot be stored fails with its error's code as type, and nothing was stored. Cancelled
        once the batch is stored it answers all the same, so that the run can cancel that.
        """
        try:
            return await self._submit(work)
        except asyncio.CancelledError:
            if await self._is_stored(work.start_id):
                firing = Request.read(work.request.root, work.origin, work.fired_at).firing
                return await self._answer(work.start_id, SubmitOutcome.STARTED, firing is not None and firing.waits)
            raise

    async def _submit(self, work: SubmitWork) -> SubmitAnswer:
        try:
            request = Request.read(work.request.root, work.origin, work.fired_at)
            batch_id, outcome = await self._store_batch(request, work.start_id)
        except KeyBusy:
            raise
        except InvalidRequest as error:
            raise ApplicationError(str(error), type=error.code, non_retryable=True) from None
        waits = request.firing is not None and request.firing.waits and outcome is SubmitOutcome.STARTED
        return await self._answer(batch_id, outcome, waits)

    async def _is_stored(self, batch_id: UUID) -> bool:
        """False where the database does not say at once."""
        with suppress(*OUTAGE):
            async with asyncio.timeout(LAST_LOOK_SECONDS):
                return await self._store.read_batch(batch_id) is not None
        return False

    async def _store_batch(self, request: Request, start_id: UUID) -> tuple[UUID, SubmitOutcome]:
        if not request.allow_unknown:
            workers = await self._store.list_workers(SEEN_WITHIN)
            known = {name for worker in workers for name in worker.facts.handlers}
            refuse_unknown(request.options.handlers, known | self._own_handlers)
        async with self._sources.items(request) as items:
            batch_id, outcome = await store_batch(
                self._store, self._names, request.options, items, self._payload_limit, start_id=start_id
            )
        if outcome is not SubmitOutcome.STARTED:
            self._meters.count_duplicate(request.options.handler, outcome)
        return batch_id, outcome

    async def _answer(self, batch_id: UUID, outcome: str, waits: bool) -> SubmitAnswer:
        batch = await self._store.read_batch(batch_id)
        if batch is None:
            raise ApplicationError(f"batch {batch_id} was purged", type="unknown_batch", non_retryable=True)
        own = batch.workflow_id == activity.info().workflow_id
        if not batch.closed and not own:
            await self._starter.start(batch)
        return SubmitAnswer(
            batch_id=batch.id,
            workflow_id=batch.workflow_id,
            handler=batch.handler,
            key=batch.key,
            outcome=outcome,
            total=batch.total,
            database_id=self._starter.database_id,
            goes_on=own and not batch.closed,
            waits=waits and not own and not batch.closed,
        )

    @property
    def all(self) -> list[Callable[..., Any]]:
        """Every activity of this class, for the worker."""
        return [self.submit_batch]
