"""What is going on right now: hints from whoever changes a batch, and streams for whoever watches one."""

from fanout.live.hub import Hub
from fanout.live.messages import Kind, Message
from fanout.live.notifier import Notifier
from fanout.live.start import Start

__all__ = ["Hub", "Kind", "Message", "Notifier", "Start"]
