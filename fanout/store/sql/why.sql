-- name: read_standing
-- What the open rows of a batch wait for: one look at each of them.
select count(*) filter (where r.status = 'processing' and w.live) as running,
       count(*) filter (where r.status = 'processing' and w.live is not true) as silent,
       count(*) filter (where r.status = 'pending' and (r.due_at is null or r.due_at <= n.at)) as due,
       count(*) filter (where r.status = 'pending' and r.due_at > n.at) as waiting,
       min(r.due_at) filter (where r.status = 'pending' and r.due_at > n.at) as due_at,
       min(r.error ->> 'type') filter (where r.status = 'pending' and r.due_at > n.at) as error_type,
       coalesce((array_agg(distinct w.identity) filter (where r.status = 'processing' and w.live))[1:3], '{}') as holders
from (select clock_timestamp() as at) n
cross join fanout.results r
left join (
    select id, identity, seen_at > clock_timestamp() - $2::interval as live from fanout.workers
) w on w.id = r.worker_id
where r.batch_id = $1 and r.status in ('pending', 'processing');

-- name: read_slots
-- How many items the live workers that know a handler can run at once, and how many they run, of whatever batch.
with crew as materialized (
    select id, concurrency from fanout.workers
    where handlers ? $1::text and seen_at > clock_timestamp() - $2::interval
), total as (
    select coalesce(sum(concurrency), 0) as slots from crew
)
select t.slots, (
    select count(*) from (
        select from fanout.results r
        where r.batch_id in (select id from fanout.batches where closed_at is null)
          and r.status = 'processing' and r.worker_id in (select id from crew)
        limit (select slots from total)
    ) taken) as busy
from total t;

-- name: read_item_standing
select r.status, r.attempts, r.error ->> 'code' as code, r.error ->> 'type' as error_type, r.claimed_at, r.settled_at,
       case when r.due_at > clock_timestamp() then r.due_at end as due_at, w.identity as worker,
       coalesce(w.seen_at > clock_timestamp() - $3::interval, false) as live
from fanout.items i
join fanout.results r on r.batch_id = i.batch_id and r.seq = i.seq
left join fanout.workers w on w.id = r.worker_id
where greatest(i.batch_id) = $1 and i.item_key = $2;
