"""JSON as Fanout stores it: one rule for payloads and results, on the command line, over HTTP and in the client.

Refused everywhere: NaN and infinities (so 1e400 too), duplicate names, lone surrogates, the character U+0000, more
than 200 levels of nesting, and values that pydantic cannot turn into JSON. Kept as submitted: the order of names,
integers of any length up to 4,300 digits, the difference between 1 and 1.0. Normalised: tuples become lists, names
become strings; a result, which is stored as jsonb, also has its names sorted and its numbers spelled PostgreSQL's way.
"""

import hashlib
import json
import re
from math import inf
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

DEPTH_LIMIT = 200
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=to_jsonable_python)
_CONTAINERS = (dict, list, tuple)
_NAMES = {str}
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_NESTING = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


class UnstorableValue(ValueError):
    """A value that JSON or PostgreSQL cannot hold; the message says why."""


def encode(value: Any) -> str:
    """The JSON text of `value`; raises UnstorableValue."""
    try:
        text = _ENCODER.encode(value)
        text.encode()
        twice = _name_made_twice(value)
    except RecursionError:
        raise UnstorableValue(f"more than {DEPTH_LIMIT} levels of nesting") from None
    except UnicodeEncodeError:
        raise UnstorableValue("a lone surrogate, which is no character") from None
    except (TypeError, ValueError, PydanticSerializationError) as error:
        raise UnstorableValue(f"not JSON: {error}") from None
    except Exception as error:
        # A value's own code ran: a generator, a computed field, a serialiser.
        raise UnstorableValue(f"not JSON: {type(error).__name__} while it was encoded") from None
    if twice is not None:
        raise UnstorableValue(f"the name {twice[:80]!r} stands twice in one object")
    check_text(text)
    return text


def _name_made_twice(value: Any) -> str | None:
    """A name that two keys of one dict would share as JSON, such as 1 and "1"."""
    waiting: list[Any] = [value] if isinstance(value, _CONTAINERS) else []
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            if not {*map(type, found)} <= _NAMES:
                names = [key if isinstance(key, str) else json.dumps(key) for key in found]
                if len({*names}) < len(names):
                    return next(name for name in names if names.count(name) > 1)
            found = [*found.values()]
        waiting += [part for part in found if isinstance(part, _CONTAINERS)]
    return None


def check_text(text: str) -> None:
    """Refuses JSON text that PostgreSQL could not hold or that would be too deep to read back."""
    if "\\u0000" in text and _NUL.search(text):
        raise UnstorableValue("the character U+0000, which PostgreSQL cannot hold")
    if text.count("[") + text.count("{") > DEPTH_LIMIT and _depth(text) > DEPTH_LIMIT:
        raise UnstorableValue(f"more than {DEPTH_LIMIT} levels of nesting")


def _depth(text: str) -> int:
    deepest = depth = 0
    for match in _NESTING.finditer(text):
        token = match.group()
        if token in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif token in "]}":
            depth -= 1
    return deepest


def decode(text: str | bytes) -> Any:
    """Reads JSON text of a caller by the rule above; raises UnstorableValue."""
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        value = json.loads(
            text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant, parse_float=_finite
        )
        check_text(text)
        if "\\ud" in text or "\\uD" in text:
            encode(value)
        return value
    except RecursionError:
        raise UnstorableValue(f"more than {DEPTH_LIMIT} levels of nesting") from None
    except UnicodeDecodeError:
        raise UnstorableValue("not UTF-8") from None
    except UnstorableValue:
        raise
    except ValueError as error:
        raise UnstorableValue(f"not JSON: {error}") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UnstorableValue(f"the name {twice[:80]!r} stands twice in one object")
    return found


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (inf, -inf):
        raise UnstorableValue(f"not JSON: {digits[:80]} is beyond the largest number")
    return value


def _refuse_constant(constant: str) -> Any:
    raise UnstorableValue(f"not JSON: {constant}")


def is_text(words: str) -> bool:
    """Whether UTF-8 can hold it: a lone surrogate, as Python reads a byte that is not UTF-8, is no character."""
    try:
        words.encode()
    except UnicodeEncodeError:
        return False
    return True


def canonical(payload: str) -> str:
    """JSON text made by `encode`, with sorted names: two payloads are the same if these texts are."""
    if "{" not in payload:
        return payload
    return json.dumps(json.loads(payload), ensure_ascii=False, separators=(",", ":"), sort_keys=True)


class Fingerprint:
    """A digest of what was asked for: the items in order, each as its key and its payload with sorted names.

    It is taken from the request, never from stored values, so that the same request always has the same one.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, key: str, payload: str) -> None:
        """Adds the next item; `payload` is JSON text made by `encode`."""
        for part in (key.encode(), canonical(payload).encode()):
            self._hash.update(len(part).to_bytes(8, "big"))
            self._hash.update(part)

    def digest(self) -> bytes:
        """The 32 bytes that name the request."""
        return self._hash.digest()
