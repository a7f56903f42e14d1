"""Arguments that several commands take."""

from typing import Annotated

import typer

BatchReference = Annotated[str, typer.Argument(metavar="BATCH", show_default=False, help="A batch id, or HANDLER/KEY.")]
HandlerName = Annotated[str, typer.Argument(metavar="HANDLER", show_default=False, help="A handler's name.")]
