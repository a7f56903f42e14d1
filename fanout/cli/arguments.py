"""Arguments that several commands take."""

from typing import Annotated

import typer

BatchReference = Annotated[str, typer.Argument(show_default=False, help="A batch id, or HANDLER/KEY.")]
HandlerName = Annotated[str, typer.Argument(show_default=False, help="A handler's name.")]
