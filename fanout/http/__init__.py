"""The HTTP interface: a router for FastAPI apps, an app for all others; it needs the extra `http`."""

from fanout.errors import MissingExtra

try:
    from fanout.http.app import app
    from fanout.http.bearer import bearer
    from fanout.http.bodies import BodyLimits
    from fanout.http.guard import Rules
    from fanout.http.pages import dashboard
    from fanout.http.router import router
    from fanout.http.sessions import Sessions
except ModuleNotFoundError as _error:
    if _error.name not in ("fastapi", "starlette", "uvicorn", "sse_starlette"):
        raise
    raise MissingExtra("The HTTP interface", "http") from None

__all__ = ["BodyLimits", "Rules", "Sessions", "app", "bearer", "dashboard", "router"]
