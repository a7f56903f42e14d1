-- name: refresh_worker
-- The lease of all that this worker claimed. Repeating it is harmless; a row that was removed comes back.
insert into fanout.workers as w (id, identity, handlers, build, concurrency, holds) values ($1, $2, $3, $4, $5, $6)
on conflict (id) do update
    set seen_at = clock_timestamp(), holds = excluded.holds,
        fresh_since = case when w.seen_at > clock_timestamp() - interval '3 seconds'
            then w.fresh_since else clock_timestamp() end;

-- name: remove_worker
delete from fanout.workers where id = $1;

-- name: forget_workers
-- Rows of workers that died long ago; their claims are free with or without them.
delete from fanout.workers where seen_at < clock_timestamp() - interval '1 day';

-- name: list_workers
select w.id, w.identity, w.handlers, w.lanes, w.build, w.concurrency, w.started_at, w.seen_at
from fanout.workers w
where w.seen_at > clock_timestamp() - $1::interval
order by w.started_at, w.id;

-- name: read_meta
select schema_version, database_id from fanout.meta;
