"""The dev stack: a real PostgreSQL and a real Temporal server that belong to a folder.

They live as long as any process uses them. Each user holds `users.lock` in the folder, shared, which the
kernel takes back however the user ends; a supervisor waits for the exclusive lock and then ends the servers.
Their data stay in the folder.
"""

from fanout.devstack.stack import Stack
from fanout.devstack.users import join, running, use
from fanout.errors import StackFailed

__all__ = ["Stack", "StackFailed", "join", "running", "use"]
