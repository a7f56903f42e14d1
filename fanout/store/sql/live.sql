-- name: send_ticks
-- Ids and numbers alone, so that nothing in a batch can reach the channel. `version` is the batch's newest event.
select pg_notify($1, jsonb_build_object('batch', batch_id, 'version', last_id)::text)
from fanout.event_heads where batch_id = any($2::uuid[]);

-- name: send_probe
select pg_notify($1, $2);

-- name: read_position
-- Where a batch's stream begins and ends, and where its newest `closed` stands, in one snapshot. A purged one has that `closed` alone.
select b.closed_at is not null as closed, h.last_id,
       (select min(id) from fanout.events where batch_id = b.id) as first_id,
       (select id from fanout.events where batch_id = b.id and kind = 'closed' order by id desc limit 1) as closed_id
from fanout.known_batches b
join fanout.event_heads h on h.batch_id = b.id
where b.id = $1;
