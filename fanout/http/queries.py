"""What a request asks for: what nobody reads is refused, as a misspelt filter would answer everything."""

from collections.abc import Iterator
from typing import Any, get_args, get_origin
from urllib.parse import unquote_to_bytes

from fastapi.dependencies.models import Dependant
from fastapi.requests import Request
from fastapi.security import APIKeyQuery
from pydantic import BaseModel

from fanout.errors import InvalidRequest, shorten
from fanout.http.problems import Refusal


def check_query(request: Request, dependant: Dependant) -> None:
    """Raises Refusal for a name that no part of the endpoint takes, and for one that stands twice where one will do."""
    given = request.query_params
    if not given:
        return
    if not is_utf_8(request.scope["query_string"]):
        raise Refusal(422, InvalidRequest.code, "the query is not UTF-8")
    lists = dict(_names(dependant))
    for name in given:
        if name not in lists:
            others = f"; there are {', '.join(lists)}" if lists else ""
            raise _refusal(name, f"there is no {shorten(repr(name))} in the query{others}")
        if not lists[name] and len(given.getlist(name)) > 1:
            raise _refusal(name, f"{name} stands {len(given.getlist(name))} times in the query")


def is_utf_8(quoted: bytes) -> bool:
    """Whether a part of an address can be read: all bytes that cannot read alike, and different keys as one."""
    try:
        unquote_to_bytes(quoted).decode()
    except UnicodeDecodeError:
        return False
    return True


def _refusal(name: str, detail: str) -> Refusal:
    return Refusal(422, InvalidRequest.code, detail, path=f"?{shorten(name)}")


def _names(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """Each name that is taken, and whether any number of times; also those of an app around the router."""
    if isinstance(dependant.call, APIKeyQuery):
        yield dependant.call.model.name, False
    for field in dependant.query_params:
        taken = field.field_info.annotation
        if isinstance(taken, type) and issubclass(taken, BaseModel):
            yield from ((each.alias or name, _is_list(each.annotation)) for name, each in taken.model_fields.items())
        else:
            yield field.alias, _is_list(taken)
    for each in dependant.dependencies:
        yield from _names(each)


def _is_list(annotation: Any) -> bool:
    return any((get_origin(part) or part) in (list, set, tuple) for part in (annotation, *get_args(annotation)))
