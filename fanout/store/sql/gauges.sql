-- name: read_open
-- What is open, by handler and state of its batch: of the oldest $1 open batches, each with 16 rows of counters at most.
with open as materialized (
    select id, handler, status, total, created_at from fanout.batches where closed_at is null order by created_at limit $1
)
select o.handler, o.status, count(*)::integer as batches, sum(o.total - p.settled)::bigint as items,
       extract(epoch from clock_timestamp() - min(o.created_at))::float8 as oldest_seconds
from open o
cross join lateral (
    select coalesce(sum(completed + failed + cancelled), 0) as settled from fanout.progress where batch_id = o.id
) p
group by o.handler, o.status;

-- name: read_held
-- What live workers hold, by handler, and how many workers have the handler.
select h.handler, count(*)::integer as workers,
       coalesce(sum((w.holds -> h.handler ->> 'items')::integer), 0)::integer as items,
       -- As old as it was when the worker said so, and the time since.
       max((w.holds -> h.handler ->> 'oldest_seconds')::float8 + extract(epoch from clock_timestamp() - w.seen_at)::float8)
           as oldest_seconds
from fanout.workers w
cross join lateral jsonb_object_keys(w.handlers) as h(handler)
where w.seen_at > clock_timestamp() - $1::interval
group by h.handler;
