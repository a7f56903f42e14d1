-- name: read_server
-- What the database's server says of itself.
select clock_timestamp() as at,
       current_setting('cluster_name') as cluster_name,
       current_setting('fsync') = 'on' as fsync,
       current_setting('synchronous_commit') as synchronous_commit,
       current_setting('autovacuum') = 'on' as autovacuum,
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
           - coalesce(current_setting('reserved_connections', true), '0')::integer as most_connections,
       (select coalesce(sum(numbackends), 0) from pg_stat_database)::integer as connections;

-- name: list_surges
-- Handlers of which many batches were made within one second, among the newest $2 of the last $1: $3 of any, or $4 with the same
-- items; of each the second with the most of these. Batches that tell of another's end come together by nature.
with recent as (
    select handler, fingerprint, created_at from fanout.batches
    where created_at > clock_timestamp() - $1::interval and key !~ '^[0-9a-f-]{36}/[0-9]+/closed$'
    order by created_at desc
    limit $2
), counted as (
    select handler, created_at,
           count(*) over (partition by handler order by created_at
                          range between interval '1 second' preceding and current row) as together,
           count(*) over (partition by handler, fingerprint order by created_at
                          range between interval '1 second' preceding and current row) as alike
    from recent
)
select distinct on (handler) handler, together, alike, created_at as at
from counted where together >= $3::integer or alike >= $4::integer
order by handler, alike desc, together desc;

-- name: list_unknown_handlers
-- Handlers of batches that could run, which no live worker has.
select b.handler, count(*) as batches
from fanout.batches b
where b.closed_at is null and b.status in ('pending', 'processing')
  and not exists (select from fanout.workers w
                  where w.handlers ? b.handler and w.seen_at > clock_timestamp() - $1::interval)
group by b.handler
order by b.handler
limit 100;

-- name: count_open
select count(*) from fanout.batches where closed_at is null;

-- name: list_stopped
-- Batches whose breaker is open, and those that have been paused for longer than $1.
select b.id, b.status, b.reason, b.breaker_type, p.seconds as paused_seconds
from fanout.batches b
cross join lateral (
    select extract(epoch from clock_timestamp() - max(e.at))::float8 as seconds
    from fanout.events e
    where e.batch_id = b.id and e.kind in ('paused', 'budget_tripped') and b.status = 'paused'
) p
where b.closed_at is null
  and (b.status = 'processing' and b.breaker_type is not null
    or b.status = 'paused' and p.seconds > extract(epoch from $1::interval))
order by b.created_at
limit 20;

-- name: list_stale_claims
-- Rows that were claimed by a worker which has been silent for $1, in the oldest open batches that have $2 rows together.
with searched as (
    select o.id from (
        select id, sum(total) over (order by created_at, id) as rows from fanout.batches where closed_at is null
    ) o
    where o.rows <= $2
)
select r.worker_id, max(w.identity) as worker, count(*) as rows, count(distinct s.id) as batches,
       (array_agg(s.id))[1] as batch_id, min(r.claimed_at) as since
from searched s
cross join lateral (
    select worker_id, claimed_at from fanout.results where batch_id = s.id and status = 'processing' offset 0
) r
left join fanout.workers w on w.id = r.worker_id
where coalesce(w.seen_at, r.claimed_at) < clock_timestamp() - $1::interval
group by r.worker_id
order by count(*) desc
limit 20;

-- name: list_keys_without_batch
-- Of these handlers and keys the places of those whose batches have all been closed for $3, or that have none.
select g.place
from unnest($1::text[], $2::text[]) with ordinality as g(handler, key, place)
cross join lateral (
    select count(*) as batches, max(closed_at) as closed_at, bool_or(closed_at is null) as open
    from fanout.known_batches where handler = g.handler and key = g.key
) b
where b.batches = 0 or not b.open and b.closed_at < clock_timestamp() - $3::interval
order by g.place;

-- name: list_clock_witnesses
-- The newest batches that ran in one epoch, with the times that have a counterpart in Temporal.
select b.id, b.workflow_id, b.created_at, e.at as opened_at, b.closed_at
from fanout.batches b
cross join lateral (
    select at from fanout.events where batch_id = b.id and kind = 'started' order by id limit 1
) e
where b.epoch = 1 and b.created_at > clock_timestamp() - $1::interval
order by b.created_at desc
limit $2;
