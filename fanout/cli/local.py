"""The handlers that this process can import itself."""

from importlib.util import find_spec

from fanout.handlers import Handlers, load_handlers
from fanout.handlers.builtin import builtin_handlers
from fanout.settings import EXAMPLE_HANDLERS, Settings


def local_modules(settings: Settings) -> tuple[str, ...]:
    """FANOUT_HANDLERS, else the example handlers where they can be found: in the repository, not in the wheel."""
    if settings.handlers:
        return settings.handlers
    return tuple(module for module in EXAMPLE_HANDLERS if _exists(module))


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def local_handlers(settings: Settings) -> Handlers:
    """The handlers of those modules, and the built-in ones. Raises BrokenModule."""
    return load_handlers(local_modules(settings)).plus(builtin_handlers(settings))
