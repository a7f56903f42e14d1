"""Arguments that several commands take, and how their texts are read."""

from datetime import timedelta
from typing import Annotated

import typer

from fanout.client.durations import read_duration

BatchReference = Annotated[str, typer.Argument(metavar="BATCH", show_default=False, help="A batch id, or HANDLER/KEY.")]
HandlerName = Annotated[str, typer.Argument(metavar="HANDLER", show_default=False, help="A handler's name.")]


def duration(option: str, text: str | None) -> timedelta | None:
    """A time span such as 90s, 10m, 2h or 7d; raises InvalidRequest naming the option."""
    return None if text is None else read_duration(option, text)
