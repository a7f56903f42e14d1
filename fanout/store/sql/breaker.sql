-- name: open_breaker
-- From its commit on no claim of the batch succeeds but that of a probe.
with opened as (
    update fanout.batches set breaker_type = $2, breaker_until = clock_timestamp() + $3::interval
    where id = $1 and status = 'processing' and breaker_type is null
    returning id
)
select fanout.emit(id, jsonb_build_array(jsonb_build_object('kind', 'breaker_opened', 'class', 'breaker_opened', 'data',
    jsonb_build_object('error_type', $2::text, 'in_a_row', $4::integer, 'probe_in', extract(epoch from $3::interval)))))
from opened;

-- name: take_probe
-- The right to try one item while the breaker is open: whoever moves the time of the next probe has it.
update fanout.batches set breaker_until = clock_timestamp() + $3::interval
where id = $1 and epoch = $2 and status = 'processing' and breaker_until <= clock_timestamp()
returning true;

-- name: close_breaker
-- A probe did not end with that type of error any more.
with closed as (
    update fanout.batches b set breaker_type = null, breaker_until = null
    from (select id, breaker_type from fanout.batches where id = $1) was
    where b.id = was.id and b.breaker_type is not null
    returning b.id, was.breaker_type
)
select fanout.emit(id, jsonb_build_array(jsonb_build_object('kind', 'breaker_closed', 'class', 'breaker_closed', 'data',
    jsonb_build_object('error_type', breaker_type))))
from closed;

-- name: tell_blocked
-- The lock keeps a close from getting in between: nothing follows it in a batch's events but a retry.
with batch as materialized (
    select id from fanout.batches where id = $1 and closed_at is null for share
)
select fanout.emit(id, jsonb_build_array(jsonb_build_object('kind', 'blocked', 'class', 'blocked', 'data',
    jsonb_build_object('seq', $2::integer, 'item_key', $3::text, 'seconds', $4::float8, 'worker', $5::text))))
from batch;
