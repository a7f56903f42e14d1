-- name: open_batch
-- The first open of a batch by the workflow that its row names.
with opened as (
    update fanout.batches set status = 'processing', started_at = coalesce(started_at, clock_timestamp())
    where id = $1 and workflow_id = $2 and status = 'pending'
    returning id
), told as (
    select fanout.emit(id, '[{"kind": "started", "class": "batch", "data": {}}]') as events from opened
)
select count(*) from told;

-- name: close_batch
-- Closes epoch $2 of a batch when every one of its rows is settled; the counts are counted from the rows.
with counted as materialized (
    select count(*) filter (where status = 'completed') as completed,
           count(*) filter (where status = 'failed') as failed,
           count(*) filter (where status = 'cancelled') as cancelled,
           count(*) as total
    from fanout.results where batch_id = $1
), closed as (
    update fanout.batches b
    -- Cancelled rows of an earlier epoch may be left, where a retry reopened others.
    set status = case when b.status = 'cancelling' or c.cancelled > 0 then b.ends_as
                      when c.failed > 0 then 'completed_with_failures'
                      else 'completed' end,
        closed_at = clock_timestamp(), completed = c.completed, failed = c.failed, cancelled = c.cancelled,
        breaker_type = null, breaker_until = null
    from counted c
    -- The epoch is tested here, where the row is locked: a retry that commits meanwhile keeps the batch open.
    where b.id = $1 and b.epoch = $2
      -- A budget pauses so that no more items fail: once all are settled it holds nothing up.
      and (b.status in ('processing', 'cancelling') or b.status = 'paused' and b.reason = 'failure_budget')
      and c.completed + c.failed + c.cancelled = b.total and c.total = b.total
    returning b.id, b.status, b.epoch, b.total, b.completed, b.failed, b.cancelled
), told as (
    select fanout.emit(id, jsonb_build_array(jsonb_build_object('kind', 'closed', 'class', 'batch', 'data',
        jsonb_build_object('status', status, 'epoch', epoch, 'total', total, 'completed', completed,
                           'failed', failed, 'cancelled', cancelled)))) as events
    from closed
)
select count(*) from told;

-- name: cancel_batch
-- First part of a cancel: the batch, before any row. Then cancel_rows, and the event last, as in every statement: batch, rows,
-- counters, events are locked in this order, so that no two transactions wait for each other.
update fanout.batches set status = 'cancelling', ends_as = 'cancelled', reason = $2, cancelling_at = clock_timestamp(),
    started_at = coalesce(started_at, clock_timestamp())
where id = $1 and status in ('pending', 'processing', 'paused')
returning true;

-- name: expire_batch
-- First part of giving up a batch whose deadline has passed; the others are those of a cancel.
update fanout.batches set status = 'cancelling', ends_as = 'failed', reason = 'deadline', cancelling_at = clock_timestamp(),
    started_at = coalesce(started_at, clock_timestamp())
where id = $1 and status in ('pending', 'processing', 'paused') and deadline_at <= clock_timestamp()
returning true;

-- name: trip_budget
-- Stops a batch that has more failures than its budget allows. Whoever has no budget, or is within it, locks nothing.
with tripped as (
    update fanout.batches
    set status = case options ->> 'on_budget' when 'fail' then 'cancelling' else 'paused' end,
        reason = 'failure_budget',
        ends_as = case options ->> 'on_budget' when 'fail' then 'failed' else ends_as end,
        cancelling_at = case options ->> 'on_budget' when 'fail' then clock_timestamp() else cancelling_at end
    -- The last test looks at rows and counters anew, also when the update has waited for the batch's lock.
    where id = $1 and options ? 'failure_limit'
      and (status = 'processing' or status = 'paused' and options ->> 'on_budget' = 'fail')
      and fanout.is_over_budget(id)
    returning id, options, fanout.failed_items(id) - failures_forgiven as failed
)
select fanout.emit(id, jsonb_build_array(jsonb_build_object('kind', 'budget_tripped', 'class', 'batch', 'data',
    jsonb_build_object('failed', failed, 'limit', options -> 'failure_limit', 'action', options -> 'on_budget'))))
from tripped;

-- name: cancel_rows
-- In a batch that is being cancelled, settles what does not run: pending rows, rows of dead workers, and after the grace
-- time every row.
with batch as materialized (
    select id, reason, clock_timestamp() > cancelling_at + $3::interval as overdue
    from fanout.batches where id = $1 and status = 'cancelling' for share
), unheld as materialized (
    -- What is locked here settles itself at this moment; waiting for it in another order could be a deadlock.
    select r.seq from fanout.results r
    where r.batch_id = (select id from batch) and r.status = 'processing'
      and ((select overdue from batch) or not fanout.is_live(r.worker_id, $2))
    for update of r skip locked
), settled as (
    update fanout.results r
    set status = 'cancelled', settled_at = clock_timestamp(), due_at = null,
        error = fanout.cancelled_error(b.reason, r.attempts)
    from batch b
    where r.batch_id = b.id and (r.status = 'pending' or r.seq in (select seq from unheld))
    returning r.seq
), counted as (
    insert into fanout.progress as p (batch_id, slot, cancelled)
    select $1, 0, count(*) from settled having count(*) > 0
    on conflict (batch_id, slot)
        do update set cancelled = p.cancelled + excluded.cancelled, progress_at = clock_timestamp()
)
select count(*) from settled;

-- name: tell_cancelling
select fanout.emit(id, jsonb_build_array(jsonb_build_object(
    'kind', 'cancelling', 'class', 'batch', 'data', jsonb_build_object('reason', reason))))
from fanout.batches where id = $1;

-- name: tell_expired
select fanout.emit(id, jsonb_build_array(jsonb_build_object(
    'kind', 'deadline_passed', 'class', 'batch', 'data', jsonb_build_object('deadline_at', deadline_at))))
from fanout.batches where id = $1;

-- name: pause_batch
-- From its commit on no claim succeeds; what runs goes on.
with paused as (
    update fanout.batches set status = 'paused', started_at = coalesce(started_at, clock_timestamp())
    where id = $1 and status in ('pending', 'processing')
    returning id
)
select fanout.emit(id, '[{"kind": "paused", "class": "batch", "data": {}}]') from paused;

-- name: resume_batch
-- Whoever resumes a batch has seen its failures: its budget counts from here, and its breaker is closed.
with resumed as (
    update fanout.batches set status = 'processing', reason = null, failures_forgiven = fanout.failed_items(id),
        breaker_type = null, breaker_until = null
    where id = $1 and status = 'paused'
    returning id
)
select fanout.emit(id, '[{"kind": "resumed", "class": "batch", "data": {}}]') from resumed;

-- name: lock_key_of_batch
-- Before a retry: which batch has the key of batch $1. A submit of the key waits meanwhile.
select k.batch_id from fanout.keys k
join fanout.batches b on b.handler = k.handler and b.key = k.key
where b.id = $1
for update of k;

-- name: retake_key
-- The key names batch $1 again, unless the batch $2 that has it is open.
update fanout.keys k set batch_id = $1
from fanout.batches b
where b.id = $1 and k.handler = b.handler and k.key = b.key and k.batch_id = $2
  and not exists (select from fanout.batches o where o.id = $2 and o.closed_at is null)
returning true;

-- name: reopen_batch
-- First part of a retry: the batch and its new epoch, before any row, so that a close in flight cannot overlook them. A deadline
-- that has passed is over: the batch would end at once.
update fanout.batches
set status = case when status = 'paused' then 'paused' else 'processing' end,
    epoch = epoch + 1, reason = null, ends_as = 'cancelled', closed_at = null, cancelling_at = null,
    completed = null, failed = null, cancelled = null, breaker_type = null, breaker_until = null,
    deadline_at = case when deadline_at > clock_timestamp() then deadline_at end
where id = $1 and (status in ('processing', 'paused', 'completed_with_failures', 'failed')
    or status = 'cancelled' and $2::text = 'cancelled')
returning epoch;

-- name: reopen_rows
-- Second part: the rows in state $2, of the error type $3, the item keys in $4 and the error code $5 where they are named.
with reopened as (
    update fanout.results r
    set status = 'pending', claim_id = null, worker_id = null, settled_at = null, due_at = null,
        attempts = 0, crashes = 0, throttles = 0, error = case when $2::text = 'failed' then r.error end
    where r.batch_id = $1 and r.status = $2 and r.status in ('failed', 'cancelled')
      and ($3::text is null or r.error ->> 'type' = $3) and ($5::text is null or r.error ->> 'code' = $5)
      and ($4::text[] is null or r.seq = any(array(
          select i.seq from fanout.items i where greatest(i.batch_id) = $1 and i.item_key = any($4))))
    returning r.seq
), counted as (
    insert into fanout.progress as p (batch_id, slot, failed, cancelled)
    select $1, 0, case when $2 = 'failed' then -count(*) else 0 end, case when $2 = 'cancelled' then -count(*) else 0 end
    from reopened having count(*) > 0
    on conflict (batch_id, slot)
        do update set failed = p.failed + excluded.failed, cancelled = p.cancelled + excluded.cancelled,
                      progress_at = clock_timestamp()
)
select count(*) from reopened;

-- name: tell_reopened
-- Last part: the failures that stay failed are forgiven, and the event.
with reopened as (
    update fanout.batches set failures_forgiven = fanout.failed_items(id) where id = $1 returning id, epoch
)
select fanout.emit(id, jsonb_build_array(jsonb_build_object(
    'kind', 'reopened', 'class', 'batch', 'data', jsonb_build_object('epoch', epoch))))
from reopened;

-- name: read_batch
-- One batch with its live counts: of an open batch the sum of its counters, of a closed one what its close counted. A batch that
-- was purged is known still.
select b.id, b.handler, b.key, b.workflow_id, b.title, b.fingerprint, b.options, b.status, b.epoch, b.total, b.reason,
       b.created_at, b.started_at, b.closed_at, b.purged_at, coalesce(p.progress_at, b.progress_at) as progress_at, b.deadline_at,
       b.duplicates + (select count(*) from fanout.duplicates where batch_id = b.id) as duplicates,
       coalesce((select origin from fanout.duplicates where batch_id = b.id order by at desc limit 1), b.duplicate_origin)
           as duplicate_origin,
       extract(epoch from b.deadline_at - clock_timestamp())::float8 as deadline_seconds, b.breaker_type, b.breaker_until,
       coalesce(b.completed, p.completed, 0) as completed,
       coalesce(b.failed, p.failed, 0) as failed,
       coalesce(b.cancelled, p.cancelled, 0) as cancelled,
       (select count(*) from fanout.workers w
        where w.handlers ? b.handler and w.seen_at > clock_timestamp() - $2::interval) as workers,
       (select coalesce(sum(w.concurrency), 0) from fanout.workers w
        where w.handlers ? b.handler and w.seen_at > clock_timestamp() - $2::interval) as slots
from fanout.known_batches b
cross join lateral (
    select sum(completed)::integer as completed, sum(failed)::integer as failed,
           sum(cancelled)::integer as cancelled, max(progress_at) as progress_at
    from fanout.progress where batch_id = b.id
) p
where b.id = $1;

-- name: read_open_spans
-- Where open rows are, as at most about a thousand spans of $2 seqs; a span may hold settled rows beside them.
select min(seq) as lo, max(seq) + 1 as hi
from fanout.results
where batch_id = $1 and status in ('pending', 'processing')
group by seq / $2::integer
order by lo;

-- name: count_processing
-- Of a big batch what its live workers said with their leases, a second ago at most: its rows are too many to be counted.
select case
    when b.total <= 20000 then
        (select count(*) from fanout.results r where r.batch_id = b.id and r.status = 'processing')
    else
        (select coalesce(sum((w.holds -> b.handler -> 'batches' ->> b.id::text)::bigint), 0)::bigint
         from fanout.workers w where w.seen_at > clock_timestamp() - $2::interval)
    end as count
from fanout.batches b
where b.id = $1;

-- name: read_item_keys
select item_key from fanout.items where batch_id = $1 and seq >= $2 and seq < $3 order by seq;

-- name: find_batch
select id from fanout.known_batches where handler = $1 and key = $2 order by created_at desc limit 1;

-- name: read_successor
-- The open batch that has the key of batch $1 by now, if that is another.
select o.id from fanout.batches b
join fanout.keys k on k.handler = b.handler and k.key = b.key
join fanout.batches o on o.id = k.batch_id
where b.id = $1 and o.id <> b.id and o.closed_at is null;

-- name: list_batches
select id from fanout.batches
where ($1::text is null or status = $1) and ($2::text is null or handler = $2)
order by created_at desc, id
limit $3;

-- name: list_open_batches
select id from fanout.batches where closed_at is null order by created_at;

-- name: list_closed_batches
select id from fanout.batches where closed_at is not null order by closed_at desc limit $1;
