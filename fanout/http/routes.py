"""How every endpoint is reached: keys with slashes in the path, bodies within limits, problems in one shape."""

from collections.abc import Callable, Coroutine, MutableMapping
from typing import Any
from urllib.parse import unquote

from fastapi.requests import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import Match

from fanout.http.bodies import ApiRequest
from fanout.http.problems import Problem, answer
from fanout.http.queries import check_query

# No key holds a control character.
_SLASH = "\x1f"
Scope = MutableMapping[str, Any]


class ApiRoute(APIRoute):
    """A route that tells everything that goes wrong in it as a problem, in whatever app it is mounted."""

    any_query = False
    """Whether a name in the query that nothing reads is let through."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler with all of that around it."""
        handle = super().get_route_handler()

        async def handle_safely(request: Request) -> Response:
            ours = ApiRequest(request.scope, request.receive)
            try:
                if not self.any_query:
                    # What the app around adds to the route is not in the route itself.
                    reached = request.scope.get("fastapi", {}).get("effective_route_context", self)
                    check_query(request, reached.dependant)
                return await handle(ours)
            except Exception as error:
                response = answer(error)
                await ours.linger()
                return response

        return handle_safely

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Takes an encoded slash for a part of a batch's key, and any other for one of the path."""
        match, found = super().matches({**scope, "path": _masked(scope)} if scope["type"] == "http" else scope)
        parameters = found.get("path_params", {})
        for name, value in parameters.items():
            if isinstance(value, str):
                parameters[name] = value.replace(_SLASH, "/")
        return match, found


class AnyQueryRoute(ApiRoute):
    """The route of a page or a probe: links and machines from elsewhere put names of theirs into its query."""

    any_query = True


def _masked(scope: Scope) -> str:
    """The path with its encoded slashes as another character; servers that do not tell the raw one have none."""
    path: str = scope["path"]
    raw = scope.get("raw_path", b"").partition(b"?")[0].decode("ascii", "replace")
    decoded = unquote(raw)
    if "%2f" not in raw.lower() or not path.endswith(decoded):
        return path
    masked = unquote(raw.replace("%2f", _SLASH).replace("%2F", _SLASH))
    return path[: len(path) - len(decoded)] + masked


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI says of the problems that an endpoint can answer with."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    every = {*statuses, 422, 503}
    return {status: {"model": Problem, "content": content} for status in sorted(every)}


def inlined(model: type[BaseModel]) -> dict[str, Any]:
    """A model's schema without references, for a body that FastAPI itself does not read."""
    schema = model.model_json_schema()
    parts = schema.pop("$defs", {})

    def resolve(value: Any) -> Any:
        if isinstance(value, dict):
            found = parts[value["$ref"].rpartition("/")[2]] if "$ref" in value else value
            return {name: resolve(part) for name, part in found.items()}
        return [resolve(part) for part in value] if isinstance(value, list) else value

    return dict(resolve(schema))
