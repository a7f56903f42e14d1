"""Who may call: the API's token, and the signed cookie that a browser gets for it."""

import hashlib
import hmac
import secrets
import time

SESSION_SECONDS = 12 * 3_600
_BEARER = "bearer "


class Sessions:
    """Judges tokens and cookies, comparing in constant time.

    A cookie is signed with a key made from the token: it outlives a restart, holds on every replica, and dies with the
    token. So is its name: browsers do not tell the ports of a host apart, on which servers with other tokens may be.
    """

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._key = hmac.digest(self._token, b"fanout session", "sha256")
        self.cookie = f"fanout_session_{self._sign('name')[:8]}"
        self._ended: dict[str, float] = {}

    def knows(self, token: str) -> bool:
        """Whether that is the token."""
        return hmac.compare_digest(token.encode(errors="replace"), self._token)

    def allows(self, authorization: str) -> bool:
        """Whether a header `Authorization` brings the token."""
        scheme, token = authorization[: len(_BEARER)], authorization[len(_BEARER) :]
        return scheme.lower() == _BEARER and self.knows(token.strip())

    def begin(self) -> str:
        """The value of a new session's cookie."""
        facts = f"{int(time.time()) + SESSION_SECONDS}.{secrets.token_urlsafe(16)}"
        return f"{facts}.{self._sign(facts)}"

    def holds(self, cookie: str) -> bool:
        """Whether a cookie is one of ours, not expired, and not ended here."""
        facts, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(errors="replace"), self._sign(facts).encode()):
            return False
        return int(facts.partition(".")[0]) > time.time() and cookie not in self._ended

    def end(self, cookie: str) -> None:
        """Ends a session in this process; elsewhere it ends with its time."""
        now = time.time()
        self._ended = {each: until for each, until in self._ended.items() if until > now}
        if self.holds(cookie):
            self._ended[cookie] = now + SESSION_SECONDS

    def _sign(self, facts: str) -> str:
        return hmac.digest(self._key, facts.encode(errors="replace"), hashlib.sha256).hex()
