"""Cron expressions mean what they mean to Temporal's server."""

from typing import Any

import pytest
from temporalio.api.schedule.v1 import ScheduleSpec as Spec
from temporalio.client import Schedule, ScheduleActionStartWorkflow, ScheduleSpec, ScheduleState
from temporalio.service import RPCError

from fanout.client.cron import read_cron
from fanout.client.schedule import Schedule as Declared
from fanout.client.schedule_forms import spec_of
from tests.support import Deployment

READ = [
    "30 2 * * *",
    "*/20 * * * *",
    "5/10 0-22/2 * * *",
    "1-5/2,30 * * * *",
    "*/70 * * * *",
    "0 0 13 * 5",
    "0 0 * * 7",
    "0 0 * * 5-7",
    "0 0 * * 0-7",
    "0 0 * * */2",
    "0 0 * * 1/2",
    "0 0 * * 2/2",
    "0 0 * * 0/1",
    "0 0 * * 7/2",
    "0 0 * * 5-7/2",
    "0 0 * * 1-7/3",
    "0 0 * * SUN-TUE,thursday",
    "0 0 * jan-MAR mon",
    "0 0 1/7 */3 *",
    "  0   3 * * *  ",
    "0 0 2 * * *",
    "0 0 1 1 * 2027-2030/2",
    "15 0 0 2 * * *",
    "0 0 30 2 *",
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
    "@every 90m",
    "@every 1h30m",
    "@every 1d/6h",
]
REFUSED = [
    ("", "0 fields"),
    ("* * * *", "4 fields"),
    ("* * * * * * * *", "8 fields"),
    ("60 * * * *", "the minute 60 is not between 0 and 59"),
    ("0 22-2 * * *", "the hour '22-2' ends before it starts"),
    ("0 0 0 * *", "the day of month 0 is not between 1 and 31"),
    ("0 0 L * *", "the day of month 'l' is no number"),
    ("0 0 ? * MON", "the day of month '?' is no number"),
    ("0 0 * 13 *", "the month 13"),
    ("0 0 * * 8", "the day of week 8"),
    ("0 0 * * 6-0", "ends before it starts"),
    ("0 0 * * noday", "no name"),
    ("0 0 1 1 * 1999", "the year 1999 is not between 2000 and 2100"),
    ("0/0 * * * *", "the step 0"),
    ("*-5 * * * *", "is no number, range or step"),
    ("1,,2 * * * *", "is no number, range or step"),
    ("-5 * * * *", "is no number, range or step"),
    ("@reboot", "there is no '@reboot'"),
    ("@Daily", "there is no '@Daily'"),
    ("@every", "there is no '@every'"),
    ("@every 0s", "at least 1s"),
    ("@every 1h/2h", "longer than its phase"),
    ("@every soon", "a time span"),
]
# The server takes these, each in a way that nobody means.
TRAPS = [
    ("CRON_TZ=Asia/Tokyo 0 3 * * *", "time_zone"),
    ("TZ=Asia/Tokyo 0 3 * * *", "time_zone"),
    ("0 0 * * MON#2", "comment"),
    ("0 3 * * * # nightly", "comment"),
]


async def kept(fanout: Deployment, spec: ScheduleSpec) -> Any:
    """What the server makes of times."""
    action = ScheduleActionStartWorkflow("Batch", id="never", task_queue="never")
    handle = await fanout.temporal.create_schedule(
        "asked", Schedule(action=action, spec=spec, state=ScheduleState(paused=True))
    )
    found = (await handle.describe()).raw_description.schedule.spec
    await handle.delete()
    return found


async def test_an_expression_is_read_as_the_server_reads_it(fanout: Deployment) -> None:
    for expression in READ:
        found = await kept(fanout, ScheduleSpec(cron_expressions=[expression], time_zone_name="Europe/Berlin"))
        ours = Spec()
        ours.CopyFrom(spec_of(Declared(id="x", handler="x", cron=expression, time_zone="Europe/Berlin", items=[])))
        for calendar in ours.structured_calendar:
            calendar.comment = ""
        assert ours == found, expression


async def test_what_the_server_refuses_is_refused_before_it_is_asked(fanout: Deployment) -> None:
    for expression, said in REFUSED:
        with pytest.raises(ValueError) as raised:
            read_cron(expression)
        assert said in str(raised.value), expression
        with pytest.raises(RPCError, match="Invalid schedule spec"):
            await kept(fanout, ScheduleSpec(cron_expressions=[expression]))


@pytest.mark.parametrize(("expression", "said"), TRAPS)
def test_what_nobody_means_is_refused_with_what_to_write_instead(expression: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_cron(expression)
