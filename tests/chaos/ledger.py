"""The proof for effects inside the settling transaction: a user's table that a handler books into."""

from tests.bookings import CREATE
from tests.chaos.proofs import Found
from tests.support import Deployment

DIFFERENCE = """
select b.key, r.seq, r.status, count(k.seq) as booked, sum(k.amount) as amount
from fanout.batches b
join fanout.results r on r.batch_id = b.id
left join bookings k on k.batch_id = r.batch_id and k.seq = r.seq
where b.handler = 'chaos.ledger'
group by b.key, r.seq, r.status, r.result
having count(k.seq) <> (r.status = 'completed')::integer or sum(k.amount) is distinct from (r.result #>> '{}')::bigint
order by r.seq
"""
STRAY = """
select count(*) from bookings k
where not exists (select from fanout.results r where r.batch_id = k.batch_id and r.seq = k.seq)
"""


async def open_ledger(fanout: Deployment) -> None:
    """Makes the table."""
    await fanout.pool.execute(CREATE)


async def balance(fanout: Deployment) -> list[Found]:
    """Every completed item is booked once with its result, and nothing else is."""
    differences = await fanout.pool.fetch(DIFFERENCE)
    found = [
        Found(
            "ledger", row["key"], f"seq {row['seq']} is {row['status']}, booked {row['booked']} times: {row['amount']}"
        )
        for row in differences
    ]
    stray = await fanout.pool.fetchval(STRAY)
    return [*found, Found("ledger", "all", f"{stray} bookings of no item")] if stray else found
