"""The worker process: polls Temporal, claims items in PostgreSQL, runs handlers. It wires the layers together."""

import argparse
import asyncio
import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, get_args
from uuid import uuid4

if __name__ == "__main__":
    # Until the drain can take over there is nothing to drain.
    for _number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(_number, lambda *_: os._exit(0))

from pydantic import SecretStr
from temporalio.client import Client
from temporalio.common import WorkerDeploymentVersion
from temporalio.worker import PollerBehaviorAutoscaling, Worker, WorkerDeploymentConfig

from activities.batches import BatchActivities
from activities.engine import Engine
from activities.ranges import RangeActivities
from activities.submits import SubmitActivities
from activities.sweeping import SweepActivities
from fanout.builds import build
from fanout.client.items import check_line
from fanout.client.sources import Sources
from fanout.client.starting import Starter
from fanout.client.sweep_schedule import SweepSchedule
from fanout.client.sweeping import Sweeping
from fanout.devstack import Stack, join
from fanout.errors import FanoutError, InvalidRequest, InvalidSetting, MissingExtra, ServerUnreachable
from fanout.exits import leave
from fanout.handlers import Handlers, load_handlers
from fanout.handlers.builtin import builtin_handlers
from fanout.logs import LogFormat, LogLevel, LogSetup
from fanout.metrics import DatabaseGauges, Observation
from fanout.points import FaultPoints
from fanout.servers import Servers, choose_servers
from fanout.settings import EXAMPLE_HANDLERS, Settings, hide_password
from fanout.store import OUTAGE, BatchStore, Pool, WorkerFacts, connect_pool
from workflows.batch import Batch
from workflows.shard import Shard
from workflows.sweeper import Sweeper, SweepTick

START_SECONDS = 60.0
RETRY_SECONDS = 1.0
STICKY_SECONDS = timedelta(seconds=3)
DEADLOCK_SECONDS = 30
BATCH_CONNECTIONS = 4
IDENTITY_CHARACTERS = 200
# What a drain may take beyond the grace time: interrupted handlers are waited for and rows are written back.
DRAIN_SECONDS = 5.0
# For workflows to schedule anew what was given back: what they have in hand when they stop waits for STICKY_SECONDS.
HANDOVER_SECONDS = 0.5
SHUTDOWN_SECONDS = 3.0

log = logging.getLogger("fanout.worker")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="worker.py",
        description="Runs items of Fanout's batches until SIGTERM, then drains; a second one gives all back now.",
    )
    parser.add_argument(
        "--handlers", nargs="+", metavar="MODULE", help="modules with handlers (default: FANOUT_HANDLERS)"
    )
    parser.add_argument("--concurrency", type=int, metavar="N", help="items at once (default: FANOUT_CONCURRENCY, 50)")
    parser.add_argument("--identity", metavar="NAME", help="label in lists and in the Web UI (default: pid@host)")
    parser.add_argument(
        "--grace", type=float, metavar="SECONDS", help="time for running items at SIGTERM (default: 30)"
    )
    parser.add_argument("--log-level", choices=get_args(LogLevel), default="info", help="what is logged to stderr")
    parser.add_argument("--log-format", choices=get_args(LogFormat), default="text", help="how it is logged")
    return parser.parse_args(arguments)


def settings_from(options: argparse.Namespace) -> Settings:
    """The environment's settings with the command line's on top; raises InvalidSetting."""
    settings = Settings.from_environment()
    given = {"concurrency": options.concurrency, "grace_seconds": options.grace, "handlers": options.handlers}
    changed = {name: value for name, value in given.items() if value is not None}
    return settings.with_values(changed)


def modules_for(settings: Settings, stack: Stack | None, servers: Servers) -> tuple[str, ...]:
    """The modules to import: the example handlers only on the dev stack."""
    if settings.handlers:
        return settings.handlers
    if stack is None or servers.database_url != stack.database_url:
        raise InvalidSetting("FANOUT_HANDLERS", "on real servers name the modules with your handlers")
    return EXAMPLE_HANDLERS


async def connect(
    settings: Settings,
    servers: Servers,
    identity: str,
    handlers: Handlers,
    points: FaultPoints | None,
    observation: Observation,
) -> tuple[Client, Engine, Pool]:
    """Waits up to a minute for both servers; raises what the last try raised."""
    give_up = time.monotonic() + START_SECONDS
    while True:
        try:
            return await try_to_connect(settings, servers, identity, handlers, points, observation)
        except ServerUnreachable as error:
            if time.monotonic() > give_up:
                raise
            log.warning("%s; trying again", error)
            await asyncio.sleep(RETRY_SECONDS)


async def try_to_connect(
    settings: Settings,
    servers: Servers,
    identity: str,
    handlers: Handlers,
    points: FaultPoints | None,
    observation: Observation,
) -> tuple[Client, Engine, Pool]:
    """One try at everything that a worker needs; raises ServerUnreachable, also for a server that is lost meanwhile."""
    meters, tracing = observation.meters, observation.tracing
    temporal = await servers.connect_temporal(runtime=observation.runtime, interceptors=tracing.interceptors)
    worker = WorkerFacts(
        id=uuid4(),
        identity=identity,
        handlers={name: handlers[name].facts for name in handlers},
        build=build(),
        concurrency=settings.concurrency,
    )
    pool = await connect_pool(servers.database_url, purpose="batches", size=BATCH_CONNECTIONS)
    try:
        return temporal, await Engine.start(settings, worker, handlers, points, meters, tracing), pool
    except BaseException as error:
        pool.terminate()
        if isinstance(error, OUTAGE):
            url, cause = hide_password(servers.database_url), str(error) or type(error).__name__
            raise ServerUnreachable("PostgreSQL", url, servers.database_chosen_by, cause) from error
        raise


async def run(settings: Settings, servers: Servers, identity: str, handlers: Handlers, logs: LogSetup) -> int:
    """Works until a signal, then drains; 0 when everything was given back, else 1."""
    observation = Observation(settings)
    async with observation.served():
        return await work(settings, servers, identity, handlers, logs, observation)


async def work(
    settings: Settings,
    servers: Servers,
    identity: str,
    handlers: Handlers,
    logs: LogSetup,
    observation: Observation,
) -> int:
    """Connects, works and drains."""
    stop, hurry = signals()
    vitals = observation.vitals
    points = FaultPoints.armed(settings.fault_points)
    settings = settings.with_values({"database_url": SecretStr(servers.database_url)})
    temporal, engine, pool = await connect(settings, servers, identity, handlers, points, observation)
    try:
        stale_after = timedelta(seconds=settings.heartbeat_seconds)
        store = BatchStore(pool, stale_after, points, engine.notifier.note)
        chosen_by = servers.temporal_chosen_by
        starter = Starter(
            temporal, settings.names, engine.database_id, chosen_by, points, stale_after, observation.tracing
        )
        sweeping = Sweeping(store, temporal, starter, settings, observation.meters)
        sources = Sources(servers.database_url, servers.database_chosen_by)
        activities = short_activities(settings, engine, store, starter, sweeping, sources)
        batches = make_batch_worker(temporal, settings, identity, activities)
        ranges = make_range_worker(temporal, settings, identity, engine)
        observation.gauges = DatabaseGauges(store.gauges)
        async with batches, ranges, SweepSchedule(temporal, settings, engine.database_id).kept():
            log.info("worker %s runs %s, %d items at once", identity, ", ".join(handlers), settings.concurrency)
            vitals.works(temporal, lambda: engine.lease_is_fresh, lambda: batches.is_running and ranges.is_running)
            logs.say(f"worker {identity} is ready: {', '.join(sorted(handlers))}")
            await stop.wait()
            vitals.draining = True
            log.info("draining: running items have %g s", settings.grace_seconds)
            # First of all no more ranges: one that came now would be given back, scheduled anew, and might come again.
            await asyncio.gather(ranges.shutdown(), engine.drain(hurry))
            await asyncio.sleep(HANDOVER_SECONDS)
            unwritten = await end(batches, engine)
    finally:
        pool.terminate()
    return 1 if unwritten else 0


async def end(batches: Worker, engine: Engine) -> int:
    """Ends both; answers how many rows could not be written. Does not return when the Temporal worker will not end.

    That one repeats a local activity until it succeeds, and so would wait for as long as the database is away.
    """
    ending = asyncio.create_task(batches.shutdown())
    _, unwritten = await asyncio.gather(asyncio.wait([ending], timeout=SHUTDOWN_SECONDS), engine.stop())
    if not ending.done():
        log.error("leaving without the end of a workflow task, which another worker will take over")
        leave(1 if unwritten else 0)
    return unwritten


def short_activities(
    settings: Settings, engine: Engine, store: BatchStore, starter: Starter, sweeping: Sweeping, sources: Sources
) -> list[Callable[..., Any]]:
    """What workflows run as local activities."""
    batches = BatchActivities(store, engine.database_id, settings.heartbeat_seconds, settings.names, starter)
    limit = settings.max_payload_bytes
    submits = SubmitActivities(store, settings.names, starter, limit, engine.handler_names, sources, engine.meters)
    return [*batches.all, *submits.all, *SweepActivities(sweeping, engine.database_id).all]


def make_batch_worker(
    temporal: Client, settings: Settings, identity: str, activities: Sequence[Callable[..., Any]]
) -> Worker:
    """The half of the Temporal worker that runs workflows, with their short local activities."""
    worker = Worker(
        temporal,
        task_queue=settings.names.task_queue,
        workflows=[Batch, Shard, Sweeper, SweepTick],
        activities=activities,
        no_remote_activities=True,
        identity=identity,
        max_cached_workflows=settings.workflow_cache,
        workflow_task_poller_behavior=PollerBehaviorAutoscaling(minimum=2, initial=2, maximum=20),
        sticky_queue_schedule_to_start_timeout=STICKY_SECONDS,
        deployment_config=unversioned(),
    )
    # Nothing public sets it: docs/decisions/0028.
    worker._workflow_worker._deadlock_timeout_seconds = DEADLOCK_SECONDS  # type: ignore[union-attr]
    return worker


def make_range_worker(temporal: Client, settings: Settings, identity: str, engine: Engine) -> Worker:
    """The half that runs ranges: a drain ends it first, while workflows go on and schedule what it gives back."""
    return Worker(
        temporal,
        task_queue=settings.names.task_queue,
        activities=[RangeActivities(engine).process_range],
        identity=identity,
        max_concurrent_activities=settings.concurrency,
        activity_task_poller_behavior=PollerBehaviorAutoscaling(initial=2, maximum=50),
        max_heartbeat_throttle_interval=timedelta(seconds=settings.beat_seconds),
        default_heartbeat_throttle_interval=timedelta(seconds=settings.beat_seconds),
        graceful_shutdown_timeout=timedelta(seconds=settings.grace_seconds + DRAIN_SECONDS),
        deployment_config=unversioned(),
    )


def unversioned() -> WorkerDeploymentConfig:
    """Any worker takes any task. Named, the build costs nothing; else the SDK hashes every loaded module, in 0.2 s."""
    return WorkerDeploymentConfig(WorkerDeploymentVersion("fanout", build()), use_worker_versioning=False)


def spare_the_collector() -> None:
    """What is imported stays, and items make few cycles: collecting at the usual rate was a fifth of the work."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Events that the first SIGTERM or SIGINT sets, and the second; the third one ends the process."""
    stop, hurry = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        if hurry.is_set():
            leave(1)
        (hurry if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stop, hurry


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a worker; the exit codes are: 0 drained, 1 not all given back, 2 bad module or setting, 3 no server."""
    options = parse(arguments)
    logs = LogSetup(options.log_level, options.log_format)
    logs.apply()
    identity = options.identity or f"{os.getpid()}@{socket.gethostname()}"
    try:
        check_line("--identity", identity, IDENTITY_CHARACTERS)
        settings = settings_from(options)
        with ExitStack() as held:
            stack = held.enter_context(join(settings))
            servers = choose_servers(settings, stack)
            logs.say(*servers.lines)
            handlers = load_handlers(modules_for(settings, stack, servers)).plus(builtin_handlers(settings))
            spare_the_collector()
            return asyncio.run(run(settings, servers, identity, handlers, logs))
    except (InvalidRequest, MissingExtra) as error:
        logs.say(f"worker.py: {error}")
        return 2
    except FanoutError as error:
        logs.say(f"worker.py: {error}")
        return 3


if __name__ == "__main__":
    leave(main())
