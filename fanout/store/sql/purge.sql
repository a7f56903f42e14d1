-- name: list_closed_before
-- The batches that have been closed for longer than $1, the oldest first, but those in $3.
select id from fanout.batches
where closed_at < clock_timestamp() - $1::interval and id <> all($3::uuid[])
order by closed_at
limit $2;

-- name: lock_key_to_purge
-- Whoever has the key locked, a submit or a retry, is deciding about this batch: not to be waited for.
select k.batch_id from fanout.keys k
join fanout.batches b on b.handler = k.handler and b.key = k.key
where b.id = $1
for update of k nowait;

-- name: bury_batch
-- The batch's row becomes what is remembered of it; from here on nobody finds its rows. A key that names another batch by now, and
-- one that the batch's own policy sets free, need no memory: then it is kept for $3, for `status` to tell.
with gone as (
    delete from fanout.batches b
    where b.id = $1 and b.closed_at is not null and b.closed_at <= clock_timestamp() - $2::interval
    returning b.id, b.handler, b.key, b.workflow_id, b.title, b.fingerprint, b.options, b.status, b.epoch, b.total, b.reason,
              b.created_at, b.started_at, b.deadline_at, b.closed_at, b.completed, b.failed, b.cancelled
)
insert into fanout.purged (batch_id, handler, key, workflow_id, title, fingerprint, options, status, epoch, total, reason,
                           created_at, started_at, progress_at, deadline_at, closed_at, completed, failed, cancelled, keep_until)
select g.id, g.handler, g.key, g.workflow_id, g.title, g.fingerprint, g.options, g.status, g.epoch, g.total, g.reason,
       g.created_at, g.started_at, fanout.last_progress_at(g.id), g.deadline_at, g.closed_at, g.completed, g.failed, g.cancelled,
       case
           when not exists (select from fanout.keys k where k.handler = g.handler and k.key = g.key and k.batch_id = g.id)
               then clock_timestamp() + $3::interval
           when jsonb_typeof(g.options -> 'dedup') = 'number'
               then greatest(g.closed_at + make_interval(secs => (g.options ->> 'dedup')::float8), clock_timestamp() + $3::interval)
           when g.options ->> 'dedup' = 'open' or g.options ->> 'dedup' = 'success' and g.status <> 'completed'
               then clock_timestamp() + $3::interval
       end
from gone g
returning batch_id;

-- name: list_half_purged
-- The batches of which rows are left, because whoever purged them was interrupted.
select batch_id from fanout.purged where next_seq is not null order by batch_id limit $1;

-- name: delete_rows
-- The next $2 items of a purged batch, in the order of seq; answers whether there are more.
with span as materialized (
    select next_seq as lo, next_seq + $2::integer as hi, total
    from fanout.purged where batch_id = $1 and next_seq is not null for update
), results_ as (
    delete from fanout.results r
    where r.batch_id = $1 and r.seq >= (select lo from span) and r.seq < (select hi from span)
    returning 1
), items_ as (
    delete from fanout.items i
    where i.batch_id = $1 and i.seq >= (select lo from span) and i.seq < (select hi from span)
    returning 1
), moved as (
    update fanout.purged set next_seq = (select hi from span) where batch_id = $1 and (select count(*) from span) = 1
)
select (select count(*) from results_) + (select count(*) from items_) as rows, s.hi < s.total as more from span s;

-- name: delete_events
-- All but the newest `closed`, with which the batch's stream ends for whoever asks for it.
with gone as (
    delete from fanout.events
    where batch_id = $1 and id = any(array(
        select id from fanout.events
        where batch_id = $1 and id is distinct from (
            select id from fanout.events where batch_id = $1 and kind = 'closed' order by id desc limit 1)
        order by id limit $2))
    returning 1
)
select count(*) from gone;

-- name: delete_duplicates
-- The oldest lines first; what is deleted is counted in the same statement, so the sum is right at any time.
with gone as (
    delete from fanout.duplicates
    where ctid = any(array(select ctid from fanout.duplicates where batch_id = $1 order by at limit $2))
    returning at, origin
), counted as (
    update fanout.purged
    set duplicates = duplicates + (select count(*) from gone),
        duplicate_origin = (select origin from gone order by at desc limit 1)
    where batch_id = $1 and exists (select from gone)
)
select count(*) from gone;

-- name: list_joined_purged
-- The purged batches that were joined before $1 of time, of which the lines are to be deleted too.
select distinct p.batch_id from fanout.purged p
join fanout.duplicates d on d.batch_id = p.batch_id
where p.next_seq is null and d.at < clock_timestamp() - $1::interval
limit $2;

-- name: finish_burial
-- The few rows that are left; after this there is of the batch what is remembered, its last event, and who joins it from now on.
with progress_ as (
    delete from fanout.progress where batch_id = $1 returning 1
), counts as (
    delete from fanout.event_counts where batch_id = $1 returning 1
), sweeps_ as (
    delete from fanout.sweeps where batch_id = $1 returning 1
), done as (
    update fanout.purged set next_seq = null where batch_id = $1 and next_seq is not null
)
select (select count(*) from progress_) + (select count(*) from counts) + (select count(*) from sweeps_);

-- name: forget_purged
-- Those whose time is over, with all that is left of them and the keys that still name them; a key that somebody has locked is left for another time.
with due as materialized (
    select batch_id, handler, key from fanout.purged
    where keep_until < clock_timestamp() and next_seq is null
    order by keep_until
    limit $1
    for update skip locked
), held as materialized (
    select k.handler, k.key, k.batch_id from fanout.keys k
    join due d on d.handler = k.handler and d.key = k.key and d.batch_id = k.batch_id
    for update of k skip locked
), freed as (
    delete from fanout.keys k using held h where k.handler = h.handler and k.key = h.key and k.batch_id = h.batch_id
), forgotten as (
    delete from fanout.purged p using due d
    where p.batch_id = d.batch_id
      and (exists (select from held h where h.batch_id = d.batch_id)
        or not exists (select from fanout.keys k where k.handler = d.handler and k.key = d.key and k.batch_id = d.batch_id))
    returning p.batch_id
), lines as (
    delete from fanout.duplicates where batch_id in (select batch_id from forgotten)
), events_ as (
    delete from fanout.events where batch_id in (select batch_id from forgotten)
), heads as (
    delete from fanout.event_heads where batch_id in (select batch_id from forgotten)
)
select count(*) from forgotten;
