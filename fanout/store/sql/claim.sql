-- name: claim
-- Claims up to $5 rows of [$3, $4) for one claim of one worker; answers one row without a seq when there are none. While the batch's
-- breaker is open it claims only for a probe ($9), and else answers when the next one is due.
with batch as materialized (
    -- The lock waits for a cancel, pause or retry that is being committed, and then sees its outcome.
    select id, breaker_type is null or $9 as free,
           extract(epoch from breaker_until - clock_timestamp())::float8 as breaker_in
    from fanout.batches where id = $1 and epoch = $2 and status = 'processing' for share
), chosen as materialized (
    -- Live work is never started twice: a processing row is free only when its worker's lease is gone, and never for its own
    -- worker, which lives. The first test, by the snapshot, costs nothing; whoever fails it is looked up anew, as this
    -- statement may have waited for the batch's lock.
    select r.seq, r.status = 'processing' as lost, r.crashes, r.worker_id
    from fanout.results r
    where r.batch_id = (select id from batch where free)
      and r.seq >= $3 and r.seq < $4
      and (r.status = 'pending' and (r.due_at is null or r.due_at <= clock_timestamp())
        or r.status = 'processing' and r.worker_id <> $7 and (select fanout.may_take_over($7))
            and r.worker_id not in (select w.id from fanout.workers w where w.seen_at > clock_timestamp() - $8::interval)
            and not fanout.is_live(r.worker_id, $8))
    order by r.seq
    limit $5
    for update of r skip locked
), claimed as (
    update fanout.results r
    set status = 'processing', claim_id = $6, worker_id = $7, due_at = null, claimed_at = clock_timestamp(),
        crashes = r.crashes + (r.status = 'processing')::integer
    where r.batch_id = $1 and r.seq = any(array(select seq from chosen))
    returning r.seq, r.attempts, r.crashes, r.throttles, r.error ->> 'traceparent' as traceparent
), told as (
    select fanout.emit($1, jsonb_agg(jsonb_build_object(
        'kind', 'lost', 'class', 'lost', 'data', jsonb_build_object(
            'seq', c.seq, 'crashes', c.crashes + 1, 'worker_id', c.worker_id)) order by c.seq)) as events
    from chosen c where c.lost
)
select (select count(*) from batch) = 1 as current, (select breaker_in from batch where not free) as breaker_in,
       (select count(*)::integer from chosen where lost) as lost,
       w.seq, w.attempts, w.crashes, w.throttles, w.traceparent, i.item_key, i.payload
from told
left join claimed w on true
-- A subselect by key for each row, and offset 0: a plain join to items would scan the whole batch while it has no statistics.
left join lateral (
    select item_key, payload from fanout.items where batch_id = $1 and seq = w.seq offset 0
) i on true
order by w.seq;

-- name: read_claim
-- The rows that a claim holds whose answer was lost.
select w.seq, w.attempts, w.crashes, w.throttles, w.error ->> 'traceparent' as traceparent, i.item_key, i.payload
from fanout.results w
left join lateral (
    select item_key, payload from fanout.items where batch_id = $1 and seq = w.seq offset 0
) i on true
where w.batch_id = $1 and w.seq >= $2 and w.seq < $3 and w.claim_id = $4 and w.status = 'processing'
order by w.seq;

-- name: read_remainder
-- What is left of [$2, $3): how many open rows, which are claimable now, which wait and until when, which are held.
select count(*) as open,
       min(r.seq) as first,
       count(*) filter (where c.claimable) as claimable,
       min(r.seq) filter (where c.claimable) as first_claimable,
       extract(epoch from min(r.due_at) filter (where r.status = 'pending' and not c.claimable)
           - clock_timestamp())::float8 as due_in,
       (array_agg(r.error ->> 'type' order by r.due_at) filter (where r.status = 'pending' and not c.claimable))[1]
           as error_type,
       coalesce(array_agg(distinct r.claim_id) filter (where r.status = 'processing' and r.worker_id = $4), '{}')
           as own_claims
from fanout.results r
cross join (select fanout.may_take_over($4) as may offset 0) m
cross join lateral (
    select case r.status
        when 'pending' then r.due_at is null or r.due_at <= clock_timestamp()
        else m.may and r.worker_id <> $4 and r.worker_id not in (
            select w.id from fanout.workers w where w.seen_at > clock_timestamp() - $5::interval)
        end as claimable
    offset 0
) c
where r.batch_id = $1 and r.seq >= $2 and r.seq < $3 and r.status in ('pending', 'processing');

-- name: read_currency
-- Of the batches that a worker works on: state and epoch, to tell running handlers of a cancel.
select id, status, epoch from fanout.batches where id = any($1::uuid[]);
