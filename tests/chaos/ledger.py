"""The place of the proof for effects inside the settling transaction: a user's table that a handler books into."""

from tests.chaos.proofs import Found
from tests.support import Deployment


async def balance(fanout: Deployment) -> list[Found]:
    """The table's balance is the number of completed items; there is no such handler yet."""
    return []
