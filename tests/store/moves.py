"""Every move that rows make, recorded by triggers of the tests' own, and which of them may be."""

from uuid import UUID

import asyncpg

from fanout.states import BATCH_MOVES, ITEM_MOVES, BatchStatus, ItemStatus
from fanout.store import Pool
from tests.store.model import OPEN

RETRIED_WHILE_OPEN = (BatchStatus.PROCESSING, BatchStatus.PAUSED)
# Beside the store's audit of settles.
RECORD_MOVES = """
create table public.moves (
    subject text, batch_id uuid, seq integer, was text, became text, claim_was uuid, claim_id uuid);
create function public.record_result() returns trigger language plpgsql as $$ begin
    insert into public.moves values ('item', new.batch_id, new.seq, old.status, new.status, old.claim_id, new.claim_id);
    return null;
end $$;
create function public.record_batch() returns trigger language plpgsql as $$ begin
    insert into public.moves (subject, batch_id, was, became) values ('batch', new.id, old.status, new.status);
    return null;
end $$;
create trigger moves after update on fanout.results for each row execute function public.record_result();
create trigger moves after update on fanout.batches for each row execute function public.record_batch();
"""
READ_MOVES = """
select distinct subject, was, became, claim_was is distinct from claim_id as claimed_anew
from public.moves where batch_id = $1
"""


async def record_moves(pool: Pool) -> None:
    """From now on every update of the database is recorded."""
    await pool.execute(RECORD_MOVES)


async def forbidden_moves(pool: Pool, batch_id: UUID) -> list[asyncpg.Record]:
    """What no call may do to a row, and was done."""
    return [move for move in await pool.fetch(READ_MOVES, batch_id) if not _is_allowed(move)]


def _is_allowed(move: asyncpg.Record) -> bool:
    """A move of the tables, or a takeover, or a retry of a batch that still runs."""
    if move["subject"] == "batch":
        was, became = BatchStatus(move["was"]), BatchStatus(move["became"])
        return became in BATCH_MOVES[was] or (was is became and was in RETRIED_WHILE_OPEN)
    was_item, became_item = ItemStatus(move["was"]), ItemStatus(move["became"])
    if was_item is became_item:
        # A takeover has a new claim; `time_passes` is no call of the store.
        return was_item is ItemStatus.PENDING or (was_item in OPEN and bool(move["claimed_anew"]))
    return became_item in ITEM_MOVES[was_item]
