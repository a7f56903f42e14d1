"""Finds the handlers of modules. Nothing registers itself: what a process knows is what it was told to import."""

import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fanout.errors import InvalidRequest
from fanout.handlers.definition import MARK, Handler


class BrokenModule(InvalidRequest):
    """A module of handlers cannot be used; names the module and its own error."""

    code = "broken_module"

    def __init__(self, module: str, reason: str) -> None:
        super().__init__(f"module {module!r}: {reason}")
        self.module = module


class Handlers(Mapping[str, Handler]):
    """The handlers of one process, by name."""

    def __init__(self, handlers: Iterable[Handler], modules: tuple[str, ...] = ()) -> None:
        self._handlers: dict[str, Handler] = {}
        self.modules = modules
        for found in handlers:
            if found.name in self._handlers and self._handlers[found.name].function is not found.function:
                raise InvalidRequest(f"two handlers are named {found.name!r}")
            self._handlers[found.name] = found

    def plus(self, others: Iterable[Handler]) -> "Handlers":
        """These handlers and some more."""
        return Handlers((*self._handlers.values(), *others), self.modules)

    def __getitem__(self, name: str) -> Handler:
        return self._handlers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)


def load_handlers(modules: Iterable[str]) -> Handlers:
    """Imports each module once and collects its handlers; the working folder is searched too. Raises BrokenModule."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    names = tuple(modules)
    return Handlers((found for name in names for found in _load(name)), names)


def _load(name: str) -> list[Handler]:
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise BrokenModule(name, f"{type(error).__name__}: {error}") from error
    found = [handler for value in vars(module).values() if (handler := _mark_of(value)) is not None]
    if not found:
        raise BrokenModule(name, "it defines no handler")
    return found


def _mark_of(value: object) -> Handler | None:
    """The handler that a value of a module is, if any: lazy proxies may raise whatever they are asked for."""
    try:
        found = getattr(value, MARK, None)
    except Exception:
        return None
    return found if isinstance(found, Handler) else None
