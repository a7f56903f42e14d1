-- name: lock_key
-- Takes the key for a new batch, or waits for and answers the batch that has it. "Look, then insert" would let two pass.
insert into fanout.keys (handler, key, batch_id) values ($1, $2, $3)
on conflict (handler, key) do update set batch_id = keys.batch_id
returning batch_id;

-- name: read_holder
-- The batch that has a key, and whether policy $2 lets a new one have it: a statement after lock_key, so that it sees what
-- whoever had the lock before has committed.
select id, fingerprint, total, closed_at is not null as closed,
       coalesce(case $2::text
           when 'open' then closed_at is not null
           when 'success' then closed_at is not null and status <> 'completed'
           when 'duration' then closed_at + $3::interval <= clock_timestamp()
       end, false) as replaceable
from fanout.known_batches where id = $1;

-- name: take_key
-- The key names a new batch from here on. Whoever calls this holds the lock of lock_key.
update fanout.keys set batch_id = $3 where handler = $1 and key = $2;

-- name: find_holder
select batch_id from fanout.keys where handler = $1 and key = $2;

-- name: find_first_positions
-- Which of these item keys the batch has already, and where.
select item_key, seq from fanout.items where greatest(batch_id) = $1 and item_key = any($2::text[]);

-- name: insert_items
-- What COPY does for our own connections: a caller's may have a codec of its own for JSON, which would encode texts once more.
insert into fanout.items (batch_id, seq, item_key, payload)
select $1, ($2::integer + given.number - 1)::integer, given.item_key, given.payload::json
from unnest($3::text[], $4::text[]) with ordinality as given(item_key, payload, number);

-- name: insert_results
insert into fanout.results (batch_id, seq) select $1, generate_series(0, $2::integer - 1);

-- name: insert_batch
with batch as (
    insert into fanout.batches (id, handler, key, workflow_id, title, fingerprint, options, total, deadline_at)
    values ($1, $2, $3, $4, $5, $6, $7::text::jsonb, $8, clock_timestamp() + $9::interval)
    returning id
), head as (
    insert into fanout.event_heads (batch_id, last_id) select id, 1 from batch
)
insert into fanout.events (batch_id, id, kind, data)
select id, 1, 'submitted', jsonb_build_object('total', $8::integer) from batch;

-- name: read_stamps
-- What tells whether items are those of another submit, without their payloads.
select item_key, octet_length(payload::text) as size, sha256(convert_to(payload::text, 'UTF8')) as digest
from fanout.items where batch_id = $1 and seq >= $2 and seq < $3 order by seq;

-- name: read_payloads
select seq, payload::text as payload from fanout.items where batch_id = $1 and seq = any($2::integer[]) order by seq;

-- name: insert_duplicate
-- A start that is repeated after a lost answer names itself by $4, and is recorded once.
insert into fanout.duplicates (batch_id, origin, outcome, start_id) values ($1, $2, $3, $4)
on conflict (start_id) where start_id is not null do nothing;

-- name: list_duplicates
-- The newest first, at most $2 of them where it is given.
select at, origin, outcome from fanout.duplicates where batch_id = $1 order by at desc limit $2::bigint;

-- name: read_place
-- Where a caller's connection leads, and whether its transaction sees what others commit.
select database_id, current_setting('transaction_isolation') as isolation from fanout.meta;
