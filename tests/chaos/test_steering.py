"""Cancels, retries, deploys and throttling at their full size; short forms of them run in every test session."""

import os
import random

import pytest

from tests.support import Deployment
from tests.test_cancel_races import cancel_against_close, cancel_against_finish, cancel_under_load, retry_against_close
from tests.test_deploys import back_off, queue, roll_through
from tests.test_throttling import Stampede, stampede_takes

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1_200)]

SEED = int(os.environ.get("FANOUT_CHAOS_SEED") or random.SystemRandom().randrange(1_000_000))


async def test_200_cancels_against_a_finish(fanout: Deployment) -> None:
    await cancel_against_finish(fanout, rounds=200)


async def test_200_cancels_against_a_close(fanout: Deployment) -> None:
    await cancel_against_close(fanout, rounds=200)


async def test_200_retries_against_a_close(fanout: Deployment) -> None:
    await retry_against_close(fanout, rounds=200)


async def test_50_cancels_of_big_batches_at_random_moments(fanout: Deployment) -> None:
    print(f"SEED={SEED}")
    await cancel_under_load(fanout, tries=50, rng=random.Random(SEED))


async def test_a_rolling_restart_through_a_batch_of_2_000(fanout: Deployment) -> None:
    await roll_through(fanout, items=2_000)


async def test_an_item_in_a_back_off_of_20_s_is_no_dead_work(fanout: Deployment) -> None:
    await back_off(fanout, seconds=20)


async def test_the_end_of_a_queue_of_a_minute_waits_untouched(fanout: Deployment) -> None:
    await queue(fanout, items=300, seconds=0.2)


async def test_a_stampede_of_10_000_ends_soon_after_its_last_item_is_due(fanout: Deployment) -> None:
    stampede = Stampede(items=10_000, seconds=0.05, concurrency=50, after=5)
    assert await stampede_takes(fanout, stampede) < 1.3
