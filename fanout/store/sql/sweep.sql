-- name: begin_pass
-- When a pass begins, since when a batch must have been quiet to be looked at, and where an earlier pass ran out of time. A pass
-- before that is longer ago than $1 counts as one of that time: after a long rest two passes are enough, as ever.
select clock_timestamp() as began_at, greatest(l.began_at, clock_timestamp() - $1::interval) as quiet_since, l.resume_after
from (values (true)) one (pass) left join fanout.last_sweep l on true;

-- name: forget_closed
delete from fanout.sweeps s
where not exists (select from fanout.batches b where b.id = s.batch_id and b.closed_at is null);

-- name: list_quiet_batches
-- A page of the open batches that have settled nothing since $3, and of those that nobody has opened for $4.
select b.id, b.handler, b.workflow_id, b.status, b.epoch, b.total, p.settled, p.progress_at, b.created_at, s.run_id,
       coalesce(s.revivals, 0) as revivals,
       coalesce(s.owes_start and s.status = b.status and s.epoch = b.epoch, false) as owes_start,
       (select count(*) from fanout.workers w
        where w.handlers ? b.handler and w.seen_at > clock_timestamp() - $5::interval) as workers
from fanout.batches b
cross join lateral (
    select coalesce(sum(completed + failed + cancelled), 0)::integer as settled, max(progress_at) as progress_at
    from fanout.progress where batch_id = b.id
) p
left join fanout.sweeps s on s.batch_id = b.id
where b.closed_at is null and b.id > $1
  and case when b.status = 'pending' then b.created_at < clock_timestamp() - $4::interval
           else coalesce(p.progress_at, b.started_at, b.created_at) < $3 end
order by b.id
limit $2;

-- name: note_verdict
-- Keeps what a pass found of a batch. Times stay where it found the same as the pass before.
insert into fanout.sweeps as s (batch_id, status, epoch, settled, progress_at, verdict, run_id)
values ($1, $2, $3, $4, $5, $6, $7)
on conflict (batch_id) do update set
    (status, epoch, settled, progress_at, verdict, run_id, since, found_at, told, owes_start) = (
        select excluded.status, excluded.epoch, excluded.settled, excluded.progress_at, excluded.verdict, excluded.run_id,
               case when f.same then s.since else clock_timestamp() end,
               case when f.same and s.verdict = excluded.verdict then s.found_at else clock_timestamp() end,
               case when f.same then s.told else '{}' end,
               s.owes_start and (s.status, s.epoch) = (excluded.status, excluded.epoch) and excluded.verdict = 'start'
        from (select (s.status, s.epoch, s.settled, s.progress_at)
            is not distinct from (excluded.status, excluded.epoch, excluded.settled, excluded.progress_at) as same) f)
returning extract(epoch from clock_timestamp() - since)::float8 as quiet_seconds,
          extract(epoch from clock_timestamp() - found_at)::float8 as found_seconds, told;

-- name: revive_batch
-- A new epoch for a batch that has no run, if it still is as two passes saw it: every attempt of an earlier epoch then claims no more.
-- What live workers run goes on under its claim.
with seen as (
    -- Whoever holds the row is at work on the batch: then it is none that nobody cares for.
    select id from fanout.batches
    where id = $1 and status = $2 and epoch = $3 and fanout.last_progress_at(id) is not distinct from $4
      and status in ('pending', 'processing', 'paused')
    for update skip locked
), revived as (
    update fanout.batches b set epoch = b.epoch + 1 from seen where b.id = seen.id returning b.id, b.epoch
), noted as (
    update fanout.sweeps s
    set epoch = r.epoch, revivals = s.revivals + 1, owes_start = true, since = clock_timestamp(), told = '{}',
        verdict = 'start', found_at = clock_timestamp()
    from revived r where s.batch_id = r.id
    returning s.batch_id, r.epoch, s.revivals
)
select fanout.emit(batch_id, jsonb_build_array(jsonb_build_object('kind', 'swept', 'class', 'swept', 'data',
    jsonb_build_object('action', 'revived', 'epoch', epoch, 'revivals', revivals) || $5::jsonb)))
from noted;

-- name: abandon_batch
-- First part of ending a batch that has no run, if it still is as two passes saw it; the others are those of a cancel.
with seen as (
    select id from fanout.batches
    where id = $1 and status = $2 and epoch = $3 and fanout.last_progress_at(id) is not distinct from $4
      and status in ('pending', 'processing', 'paused')
    for update skip locked
)
update fanout.batches b
set status = 'cancelling', ends_as = $5, reason = $6, cancelling_at = clock_timestamp(),
    started_at = coalesce(b.started_at, clock_timestamp())
from seen where b.id = seen.id
returning true;

-- name: tell_abandoned
with noted as (
    update fanout.sweeps s
    set status = b.status, owes_start = true, since = clock_timestamp(), told = '{}',
        progress_at = fanout.last_progress_at(b.id), verdict = 'start', found_at = clock_timestamp()
    from fanout.batches b where b.id = $1 and s.batch_id = b.id
    returning s.batch_id
)
select fanout.emit(batch_id, jsonb_build_array(jsonb_build_object('kind', 'swept', 'class', 'swept', 'data', $2::jsonb)))
from noted;

-- name: tell_once
-- An event of a standstill, unless its batch was told of it before, or is closed by now. A pass does not wait for whoever holds
-- the row: what it has to tell it tells the next time, or in its report alone.
with batch as materialized (
    select id from fanout.batches where id = $1 and closed_at is null for share skip locked
), first as (
    update fanout.sweeps set told = told || $2::text
    where batch_id = (select id from batch) and not told @> array[$2::text]
    returning batch_id
)
select fanout.emit(batch_id, jsonb_build_array(jsonb_build_object('kind', $3::text, 'class', $3::text, 'data', $4::jsonb)))
from first;

-- name: note_start
-- The run that the batch needed has been started.
update fanout.sweeps set owes_start = false where batch_id = $1;

-- name: end_pass
insert into fanout.last_sweep (began_at, examined, healed, failed, resume_after) values ($1, $2, $3, $4, $5)
on conflict (singleton) do update
    set began_at = excluded.began_at, ended_at = clock_timestamp(), examined = excluded.examined,
        healed = excluded.healed, failed = excluded.failed, resume_after = excluded.resume_after;

-- name: read_last_sweep
select began_at, ended_at, extract(epoch from clock_timestamp() - ended_at)::float8 as age_seconds
from fanout.last_sweep;
