"""Every name that Fanout gives to something on a server, and the limits that keep derived ids under 255 bytes."""

import re
from dataclasses import dataclass

BATCH_KEY_BYTES = 150
ITEM_KEY_BYTES = 400
HANDLER_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,47}")
SCHEDULE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""With NAME and the time that a server appends, the ids of its runs stay under 255 bytes."""
DEPLOYMENT_NAME = re.compile(r"^[a-z0-9][a-z0-9_-]{0,11}$")

CHANGED_SIGNAL = "changed"
SEARCH_ATTRIBUTE_HANDLER = "FanoutHandler"
SEARCH_ATTRIBUTE_KEY = "FanoutKey"
SEARCH_ATTRIBUTE_STATUS = "FanoutStatus"
SEARCH_ATTRIBUTE_TOTAL = "FanoutTotal"
SEARCH_ATTRIBUTE_FAILED = "FanoutFailed"


@dataclass(frozen=True)
class Names:
    """The names of one deployment, all under `FANOUT_NAME`, so that two of them can share a namespace."""

    deployment: str

    @property
    def task_queue(self) -> str:
        """The queue that workers of this deployment poll."""
        return self.deployment

    @property
    def sweeper(self) -> str:
        """The singleton id of the sweeper's workflow, and that of the schedule that starts it."""
        return f"{self.deployment}-sweeper"

    @property
    def sweep_tick(self) -> str:
        """What the schedule's ticks are called; Temporal appends the time to it."""
        return f"{self.deployment}-sweep-tick"

    @property
    def schedules(self) -> str:
        """What the server's ids of this deployment's user schedules begin with; an id of theirs holds no slash."""
        return f"{self.deployment}-schedule/"

    @property
    def preview(self) -> str:
        """What the ids of the schedules begin with that live for as long as a preview asks for their times."""
        return f"{self.deployment}-preview/"

    def schedule_id(self, name: str) -> str:
        """The server's id of a user's schedule, and of the runs that it starts; Temporal appends the time to these."""
        return f"{self.schedules}{name}"

    def workflow_id(self, handler: str, key: str) -> str:
        """The singleton id of a batch's workflow: a handler's name holds no slash, so no two pairs share one."""
        return f"{self.deployment}/{handler}/{key}"


def shard_workflow_id(batch_workflow_id: str, epoch: int, number: int) -> str:
    """The id of the `number`th shard that a batch starts in `epoch`."""
    return f"{batch_workflow_id}/{epoch}/{number}"
