"""Signing in: a browser's page gets a cookie for the token, as an EventSource sends no header of ours."""

from fastapi import APIRouter
from fastapi.requests import Request
from fastapi.responses import Response

from fanout.http.guard import session_in
from fanout.http.models import Answer, Body
from fanout.http.problems import Refusal
from fanout.http.routes import ApiRoute, problems
from fanout.http.sessions import SESSION_SECONDS, Sessions


class Token(Body):
    """The API's token."""

    token: str


class SessionState(Answer):
    """Whether a session is needed here, and whether the caller has one."""

    needed: bool
    signed_in: bool


def routes(sessions: Sessions | None) -> APIRouter:
    """The endpoints of sessions; without a token there are none to begin."""
    made = APIRouter(route_class=ApiRoute)

    @made.get("/session", response_model=SessionState)
    async def show_session(request: Request) -> SessionState:
        """Whether to ask for the token."""
        needed = sessions is not None
        return SessionState(needed=needed, signed_in=sessions is None or sessions.holds(session_in(request, sessions)))

    @made.post("/session", response_model=SessionState, responses=problems(401, 413, 415))
    async def begin_session(request: Request, response: Response, body: Token) -> SessionState:
        """Signs a browser in for twelve hours, by a cookie that no script can read and no other site can use."""
        if sessions is not None:
            if not sessions.knows(body.token):
                raise Refusal(401, "unauthorized", "that is not the API's token")
            _set(response, request, sessions.cookie, sessions.begin(), SESSION_SECONDS)
        return SessionState(needed=sessions is not None, signed_in=True)

    @made.delete("/session", response_model=SessionState)
    async def end_session(request: Request, response: Response) -> SessionState:
        """Signs out; the cookie is worth nothing from here on."""
        if sessions is not None:
            sessions.end(session_in(request, sessions))
            _set(response, request, sessions.cookie, "", 0)
        return SessionState(needed=sessions is not None, signed_in=sessions is None)

    return made


def _set(response: Response, request: Request, name: str, value: str, seconds: int) -> None:
    response.set_cookie(
        name,
        value,
        max_age=seconds,
        path=request.scope.get("root_path", "") or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
