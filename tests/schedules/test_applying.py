"""A server is brought to what is declared: by any number of deploys, and without anybody else's schedule."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import (
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleIntervalSpec,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
)

from fanout.client.schedules import Schedules
from fanout.client.sweep_schedule import SweepSchedule
from fanout.errors import ForeignSchedule, InvalidSchedules, UnknownSchedule
from fanout.names import Names
from fanout.store import check_schema
from tests.schedules.support import changes, declared, on_server, server_ids, write
from tests.support import ROOT, Deployment, eventually
from tests.test_cli import lines

EVERY_FIELD: dict[str, Any] = {
    "handler": "test.fail",
    "cron": "0 4 * * MON",
    "time_zone": "Asia/Tokyo",
    "jitter": timedelta(minutes=1),
    "overlap": "buffer_all",
    "catch_up": timedelta(hours=1),
    "items": [1],
    "key": "k/{date}",
    "title": "At night",
    "range_size": 2,
    "max_failures": 1,
    "deadline": timedelta(hours=1),
    "on_close": "test.echo",
    "dedup": "open",
}


async def test_applying_again_changes_nothing_and_each_field_that_changes_is_written(fanout: Deployment) -> None:
    assert await changes(fanout, declared()) == {"nightly": "created"}
    facts: dict[str, Any] = {}
    for name, value in EVERY_FIELD.items():
        facts[name] = value
        assert await changes(fanout, declared(**facts)) == {"nightly": "updated"}, name
        assert await changes(fanout, declared(**facts)) == {"nightly": "unchanged"}, name
    assert await changes(fanout, declared(interval=timedelta(hours=1))) == {"nightly": "updated"}
    assert await changes(fanout, declared(cron="@every 1h")) == {"nightly": "unchanged"}
    updated = (await on_server(fanout)).info.last_updated_at
    assert await changes(fanout, declared(cron="@every 1h", paused=True, note="later")) == {"nightly": "unchanged"}
    assert (await on_server(fanout)).info.last_updated_at == updated


async def test_what_an_operator_changed_is_brought_back_but_for_a_pause_and_its_note(fanout: Deployment) -> None:
    wanted = declared(note="asked for by the library")
    await changes(fanout, wanted)
    assert (await on_server(fanout)).schedule.state.note == "asked for by the library"
    handle = fanout.temporal.get_schedule_handle("fanout-schedule/nightly")

    def every_minute(given: ScheduleUpdateInput) -> ScheduleUpdate:
        spec = ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(minutes=1))])
        return ScheduleUpdate(replace(given.description.schedule, spec=spec))

    async def updated() -> bool:
        return bool((await on_server(fanout)).schedule.spec.intervals)

    await handle.update(every_minute)
    # The server drops a pause that comes together with an update.
    await eventually(updated)
    await handle.pause(note="until monday")
    assert await changes(fanout, wanted) == {"nightly": "updated"}
    found = (await on_server(fanout)).schedule
    assert (found.state.paused, found.state.note, found.spec.intervals) == (True, "until monday", [])
    [paused] = [each async for each in fanout.client.schedules.list()]
    assert (paused.paused, paused.note, paused.next_at) == (True, "until monday", None)
    await handle.unpause(note="")
    assert await changes(fanout, declared(paused=True)) == {"nightly": "unchanged"}
    assert not (await on_server(fanout)).schedule.state.paused


async def test_a_pause_that_comes_while_an_update_is_written_is_kept(fanout: Deployment) -> None:
    """Whatever the update was made from: the server drops one that was made from an older state."""
    await changes(fanout, declared())
    handle = fanout.temporal.get_schedule_handle("fanout-schedule/nightly")
    paused: list[bool] = []

    class Racing(Schedules):
        async def _find(self, server_id: str) -> Any:
            found = await super()._find(server_id)
            if len(paused) == 1:
                await handle.pause(note="in between")
            paused.append(True)
            return found

    racing = Racing(fanout.temporal, fanout.settings.names)
    [change] = await racing.apply([declared(overlap="allow_all")])
    assert change.change == "updated"
    found = (await on_server(fanout)).schedule
    assert (found.state.paused, found.state.note) == (True, "in between")
    assert found.policy.overlap.name == "ALLOW_ALL"


async def test_prune_and_delete_keep_off_what_is_not_ours(fanout: Deployment) -> None:
    temporal, other = fanout.temporal, Schedules(fanout.temporal, Names("other"))
    await SweepSchedule(temporal, fanout.settings, await check_schema(fanout.pool)).assert_it()
    await temporal.get_schedule_handle("fanout-sweeper").pause()
    action = ScheduleActionStartWorkflow("Batch", id="by-hand", task_queue="fanout")
    for name in ("by-hand", "fanout-schedule/by-hand"):
        await temporal.create_schedule(name, Schedule(action=action, spec=ScheduleSpec()))
    await other.apply([declared("kept"), declared("nightly")])
    await changes(fanout, declared("kept"), declared("gone"), declared("gone-too"))
    foreign = {"by-hand", "fanout-schedule/by-hand", "fanout-sweeper", "other-schedule/kept", "other-schedule/nightly"}

    async def listed() -> bool:
        return len(await server_ids(fanout)) == len(foreign) + 3

    await eventually(listed)
    for name in ("by-hand", "fanout-sweeper"):
        with pytest.raises(ForeignSchedule, match=name):
            await fanout.client.schedules.delete(name)
    for nobodys in ("nobody", "nightly", "", "fanout-schedule/gone"):
        with pytest.raises(UnknownSchedule, match=f"no schedule '{nobodys}'"):
            await fanout.client.schedules.delete(nobodys)
    with pytest.raises(ForeignSchedule, match="fanout-schedule/by-hand"):
        await changes(fanout, declared("new"), declared("by-hand"))
    done = await changes(fanout, declared("kept"), prune=True)
    assert done == {"kept": "unchanged", "gone": "deleted", "gone-too": "deleted"}

    async def pruned() -> bool:
        return await server_ids(fanout) == foreign | {"fanout-schedule/kept"}

    await eventually(pruned)
    assert [each.schedule_id async for each in fanout.client.schedules.list()] == ["kept"]
    assert (await fanout.client.schedules.delete("kept")).change == "deleted"


async def test_two_schedules_of_one_id_are_refused(fanout: Deployment) -> None:
    with pytest.raises(InvalidSchedules, match="two schedules have it"):
        await changes(fanout, declared(), declared(cron="@daily"))
    assert await server_ids(fanout) == set()


FILE = "".join(
    f"[schedules.s{number}]\nhandler = 'test.echo'\ncron = '{number} 0 1 1 * 2099'\nitems = [{number}]\n"
    for number in range(5)
)


async def test_deploys_at_the_same_time_make_one_schedule_each(fanout: Deployment, tmp_path: Path) -> None:
    """Four processes; an operator's pause is still there afterwards."""
    await changes(fanout, declared("s0"))
    await fanout.temporal.get_schedule_handle("fanout-schedule/s0").pause(note="by an operator")
    file = write(tmp_path, FILE)
    answers = await asyncio.gather(*(apply(fanout, file) for _ in range(4)))
    told = Counter((line["schedule_id"], line["change"]) for answer in answers for line in answer)
    assert [told[f"s{number}", "created"] for number in range(5)] == [0, 1, 1, 1, 1]
    assert [told[f"s{number}", "unchanged"] for number in range(1, 5)] == [3, 3, 3, 3]
    assert 1 <= told["s0", "updated"] <= 4
    state = (await on_server(fanout, "s0")).schedule.state
    assert (state.paused, state.note) == (True, "by an operator")
    assert {line["change"] for line in await apply(fanout, file)} == {"unchanged"}


async def apply(fanout: Deployment, file: str) -> list[dict[str, Any]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "starter.py", "schedule", "apply", file, "--json"),
        cwd=ROOT,
        env=fanout.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    answer, said = await process.communicate()
    assert process.returncode == 0, said
    return [json.loads(line) for line in answer.splitlines()]


async def test_the_command_line_applies_lists_and_deletes(fanout: Deployment, tmp_path: Path) -> None:
    file = write(tmp_path, FILE)
    assert fanout.run("schedule", "apply", file).stdout.splitlines() == [f"s{number} created" for number in range(5)]
    bad = write(tmp_path, "[schedules.s0]\nhandler = 'test.echo'\ncron = '@daily'\nitems = []\n[schedules.s9]\n")
    refused = fanout.run("schedule", "apply", bad, "--prune")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "schedules.toml: s9: handler: it is missing" in refused.stderr

    async def listed() -> bool:
        return len(await server_ids(fanout)) == 5

    await eventually(listed)
    rows = lines(fanout.run("schedule", "list", "--json"))
    assert [(row["schedule_id"], row["handler"], row["next_at"]) for row in rows] == [
        (f"s{number}", "test.echo", f"2099-01-01T00:0{number}:00Z") for number in range(5)
    ]
    assert lines(fanout.run("schedule", "delete", "s4", "--json")) == [{"schedule_id": "s4", "change": "deleted"}]
    gone = fanout.run("schedule", "delete", "s4")
    assert (gone.returncode, "unknown_schedule: there is no schedule 's4'" in gone.stderr) == (2, True)
