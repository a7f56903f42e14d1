"""A dependency for apps that mount the router and have no way of their own to tell who may call."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from fanout.http.problems import unauthorized
from fanout.http.sessions import Sessions

_SCHEME = HTTPBearer(auto_error=False, description="The API's token.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_SCHEME)]


def bearer(token: str) -> Callable[..., Awaitable[None]]:
    """A dependency that refuses with 401 whoever does not bring `token`, compared in constant time.

    `app.include_router(router(client), dependencies=[Depends(bearer(token))])`
    """
    sessions = Sessions(token)

    async def check(credentials: Credentials) -> None:
        if credentials is None or not sessions.knows(credentials.credentials):
            raise unauthorized()

    return check
