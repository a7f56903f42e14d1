"""The handlers that every worker has."""

from fanout.handlers.definition import MARK, Handler, handler
from fanout.handlers.http_request import make
from fanout.settings import Settings


def builtin_handlers(settings: Settings) -> list[Handler]:
    """`http.request`, which may call the hosts in FANOUT_HTTP_ALLOW."""
    marked = handler("http.request")(make(settings))
    found: Handler = getattr(marked, MARK)
    return [found]
