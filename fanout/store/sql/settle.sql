-- name: complete
-- $3 {seq: claim}, $4 {seq: result}. Every row is tested for its own claim: what a stale attempt found is not recorded.
with settled as (
    update fanout.results r
    set status = 'completed', result = $4::jsonb -> r.seq::text, error = null, settled_at = clock_timestamp()
    where r.batch_id = $1 and r.seq = any($2::integer[])
      and r.status = 'processing' and r.claim_id = ($3::jsonb ->> r.seq::text)::uuid
    returning r.seq
), counted as (
    insert into fanout.progress as p (batch_id, slot, completed)
    select $1, $5, count(*) from settled having count(*) > 0
    on conflict (batch_id, slot)
        do update set completed = p.completed + excluded.completed, progress_at = clock_timestamp()
)
select seq from settled;

-- name: fail
-- $3 {seq: {claim, attempts, crashes, error}}: attempts and crashes are what this verdict adds.
with settled as (
    update fanout.results r
    set status = 'failed', error = $3::jsonb -> r.seq::text -> 'error', settled_at = clock_timestamp(),
        attempts = r.attempts + ($3::jsonb -> r.seq::text ->> 'attempts')::integer,
        crashes = r.crashes + ($3::jsonb -> r.seq::text ->> 'crashes')::integer
    where r.batch_id = $1 and r.seq = any($2::integer[])
      and r.status = 'processing' and r.claim_id = ($3::jsonb -> r.seq::text ->> 'claim')::uuid
    returning r.seq, r.error
), counted as (
    insert into fanout.progress as p (batch_id, slot, failed)
    select $1, $4, count(*) from settled having count(*) > 0
    on conflict (batch_id, slot)
        do update set failed = p.failed + excluded.failed, progress_at = clock_timestamp()
    returning 1
), told as (
    select fanout.emit($1, jsonb_agg(jsonb_build_object(
        'kind', 'failed', 'class', 'failed/' || (s.error ->> 'type'), 'data', jsonb_build_object(
            'seq', s.seq, 'item_key', i.item_key, 'error', s.error)) order by s.seq)) as events
    from settled s
    left join lateral (select item_key from fanout.items where batch_id = $1 and seq = s.seq offset 0) i on true
    -- Progress before events, in every statement: two settles must not wait for each other.
    where (select count(*) from counted) >= 0
)
select s.seq from told left join settled s on true where s.seq is not null;

-- name: release
-- $3 {seq: {claim, attempts, crashes, throttles, delay, kind, error}}: pending again, due after `delay` seconds of the database's
-- clock; in a batch that is being cancelled the row is cancelled instead.
with batch as materialized (
    select status, reason from fanout.batches where id = $1 for share
), released as (
    update fanout.results r
    set status = case when b.status = 'cancelling' then 'cancelled' else 'pending' end,
        claim_id = case when b.status = 'cancelling' then r.claim_id end,
        worker_id = case when b.status = 'cancelling' then r.worker_id end,
        settled_at = case when b.status = 'cancelling' then clock_timestamp() end,
        due_at = case when b.status <> 'cancelling' then
            clock_timestamp() + ($3::jsonb -> r.seq::text ->> 'delay')::float8 * interval '1 second' end,
        attempts = r.attempts + ($3::jsonb -> r.seq::text ->> 'attempts')::integer,
        crashes = r.crashes + ($3::jsonb -> r.seq::text ->> 'crashes')::integer,
        throttles = r.throttles + ($3::jsonb -> r.seq::text ->> 'throttles')::integer,
        error = case when b.status = 'cancelling' then fanout.cancelled_error(b.reason, r.attempts)
            else coalesce(nullif($3::jsonb -> r.seq::text -> 'error', 'null'), r.error) end
    from batch b
    where r.batch_id = $1 and r.seq = any($2::integer[])
      and r.status = 'processing' and r.claim_id = ($3::jsonb -> r.seq::text ->> 'claim')::uuid
    returning r.seq, r.status
), counted as (
    insert into fanout.progress as p (batch_id, slot, cancelled)
    select $1, $4, count(*) from released where status = 'cancelled' having count(*) > 0
    on conflict (batch_id, slot)
        do update set cancelled = p.cancelled + excluded.cancelled, progress_at = clock_timestamp()
    returning 1
), told as (
    select fanout.emit($1, jsonb_agg(jsonb_build_object(
        'kind', f.fact ->> 'kind', 'class', (f.fact ->> 'kind') || '/' || coalesce(f.fact -> 'error' ->> 'type', ''),
        'data', jsonb_build_object('seq', s.seq, 'item_key', i.item_key, 'delay', f.fact -> 'delay',
                                   'error', f.fact -> 'error')) order by s.seq)) as events
    from released s
    cross join lateral (select $3::jsonb -> s.seq::text as fact) f
    left join lateral (select item_key from fanout.items where batch_id = $1 and seq = s.seq offset 0) i on true
    where f.fact ->> 'kind' is not null and (select count(*) from counted) >= 0
)
select s.seq from told left join released s on true where s.seq is not null;

-- name: read_settled
-- Of these rows, the ones that stand as $4 under the very claims that are named: settles whose answer was lost.
select r.seq from fanout.results r
where r.batch_id = $1 and r.seq = any($2::integer[]) and r.status = $4
  and r.claim_id = ($3::jsonb ->> r.seq::text)::uuid;

-- name: is_settled
-- Whether a COMMIT whose answer was lost took place. The lock waits for a session that is still at it.
select r.status = 'completed' and r.claim_id = $3 from fanout.results r where r.batch_id = $1 and r.seq = $2 for update;
