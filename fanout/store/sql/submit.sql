-- name: lock_key
-- Takes the key for a new batch, or waits for and answers the batch that has it. "Look, then insert" would let two pass.
insert into fanout.keys (handler, key, batch_id) values ($1, $2, $3)
on conflict (handler, key) do update set batch_id = keys.batch_id
returning batch_id;

-- name: find_first_positions
-- Which of these item keys the batch has already, and where.
select item_key, seq from fanout.items where greatest(batch_id) = $1 and item_key = any($2::text[]);

-- name: insert_results
insert into fanout.results (batch_id, seq) select $1, generate_series(0, $2::integer - 1);

-- name: insert_batch
with batch as (
    insert into fanout.batches (id, handler, key, workflow_id, title, fingerprint, options, total, deadline_at)
    values ($1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp() + $9::interval)
    returning id
), head as (
    insert into fanout.event_heads (batch_id, last_id) select id, 1 from batch
)
insert into fanout.events (batch_id, id, kind, data)
select id, 1, 'submitted', jsonb_build_object('total', $8::integer) from batch;

-- name: insert_duplicate
insert into fanout.duplicates (batch_id, origin, outcome) values ($1, $2, $3);
