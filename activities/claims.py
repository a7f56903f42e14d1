"""What one worker holds: how many rows of each of its claims are still in its hands, since when, and whose."""

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any
from uuid import UUID


@dataclass(slots=True)
class _Claim:
    handler: str
    batch_id: UUID
    rows: int
    since: float


class Claims:
    """The claims of one worker, so that no attempt takes for lost what another one holds; oldest first."""

    def __init__(self) -> None:
        self._claims: dict[UUID, _Claim] = {}

    def hold(self, claim_id: UUID, rows: int, handler: str, batch_id: UUID) -> None:
        """Notes how many more rows a claim holds."""
        if not rows:
            return
        claim = self._claims.get(claim_id)
        if claim is None:
            self._claims[claim_id] = _Claim(handler, batch_id, rows, time.monotonic())
        else:
            claim.rows += rows

    def holds(self, claim_id: UUID) -> bool:
        """Whether rows of that claim are still in this worker's hands."""
        return claim_id in self._claims

    def let_go(self, claim_id: UUID) -> None:
        """One row of the claim is out of this worker's hands."""
        claim = self._claims.get(claim_id)
        if claim is None:
            return
        claim.rows -= 1
        if claim.rows == 0:
            del self._claims[claim_id]

    def by_handler(self) -> dict[str, dict[str, Any]]:
        """What the worker's row tells of them."""
        now = time.monotonic()
        held: dict[str, dict[str, Any]] = {}
        for claim in self._claims.values():
            # The first claim of a handler is its oldest.
            oldest = round(now - claim.since, 3)
            facts = held.setdefault(claim.handler, {"items": 0, "oldest_seconds": oldest, "batches": Counter()})
            facts["items"] += claim.rows
            facts["batches"][str(claim.batch_id)] += claim.rows
        return held
