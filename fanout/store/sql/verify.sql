-- name: read_violations
-- Every invariant of one batch that its rows break, re-proved in one snapshot; no row means that all hold.
with batch as (
    select id, handler, key, options, status, epoch, total, reason, closed_at, cancelling_at, completed, failed, cancelled,
           breaker_type, failures_forgiven, ends_as, deadline_at
    from fanout.batches where id = $1
), rows_ as (
    select count(*) as total,
           count(*) filter (where status = 'completed') as completed,
           count(*) filter (where status = 'failed') as failed,
           count(*) filter (where status = 'cancelled') as cancelled,
           count(*) filter (where status in ('pending', 'processing')) as open,
           min(seq) as lo, max(seq) as hi
    from fanout.results where batch_id = $1
), items_ as (
    select count(*) as total, min(seq) as lo, max(seq) as hi from fanout.items where batch_id = $1
), counters as (
    select coalesce(sum(completed), 0) as completed, coalesce(sum(failed), 0) as failed,
           coalesce(sum(cancelled), 0) as cancelled
    from fanout.progress where batch_id = $1
), events_ as (
    select count(*) as total, coalesce(max(id), 0) as hi from fanout.events where batch_id = $1
), hooks as (
    -- Of each epoch that closed, the batches that tell the handler on_close of it: those that are purged count too.
    select x.data ->> 'epoch' as epoch, (
        select count(*) from fanout.known_batches h
        where h.handler = b.options ->> 'on_close' and h.key = format('%s/%s/closed', b.id, x.data ->> 'epoch')) as found
    from batch b
    join fanout.events x on x.batch_id = b.id and x.kind = 'closed'
    where b.options ? 'on_close'
)
select v.code, v.detail
from batch b
cross join (rows_ r cross join items_ i cross join counters c cross join events_ e)
left join fanout.sweeps s on s.batch_id = b.id
cross join lateral (values
    ('rows_missing', format('%s rows for a total of %s', r.total, b.total),
        r.total <> b.total or (b.total > 0 and (r.lo <> 0 or r.hi <> b.total - 1))),
    ('items_missing', format('%s items for a total of %s', i.total, b.total),
        i.total <> b.total or (b.total > 0 and (i.lo <> 0 or i.hi <> b.total - 1))),
    ('closed_with_open_rows', format('%s open rows in a closed batch', r.open), b.closed_at is not null and r.open > 0),
    ('counters_differ', format('counters say %s/%s/%s, rows say %s/%s/%s (completed/failed/cancelled)',
            c.completed, c.failed, c.cancelled, r.completed, r.failed, r.cancelled),
        (c.completed, c.failed, c.cancelled) is distinct from (r.completed, r.failed, r.cancelled)),
    ('final_counts_differ', format('closed with %s/%s/%s, rows say %s/%s/%s (completed/failed/cancelled)',
            b.completed, b.failed, b.cancelled, r.completed, r.failed, r.cancelled),
        b.closed_at is not null
            and (b.completed, b.failed, b.cancelled) is distinct from (r.completed, r.failed, r.cancelled)),
    ('status_differs', format('%s with %s failed rows', b.status, r.failed),
        b.status = 'completed' and r.failed + r.cancelled > 0 or b.status = 'completed_with_failures' and r.failed = 0),
    ('events_skipped', format('%s events, newest id %s', e.total, e.hi), e.total <> e.hi),
    ('closed_events', 'not exactly one closing event per epoch',
        exists (select from fanout.events x where x.batch_id = b.id and x.kind = 'closed'
                group by x.data -> 'epoch' having count(*) > 1)
        or b.closed_at is not null and not exists (select from fanout.events x
            where x.batch_id = b.id and x.kind = 'closed' and (x.data ->> 'epoch')::integer = b.epoch)),
    ('key_elsewhere', 'the key of this open batch names another one',
        b.closed_at is null and not exists (select from fanout.keys k
            where k.handler = b.handler and k.key = b.key and k.batch_id = b.id)),
    ('breaker_in_closed', format('its breaker stands open for %s', b.breaker_type),
        b.closed_at is not null and b.breaker_type is not null),
    ('forgiven_exceed_failed', format('%s failures are forgiven, %s rows failed', b.failures_forgiven, r.failed),
        b.failures_forgiven > r.failed),
    ('ends_as_differs', format('closed as %s, was to end as %s', b.status, b.ends_as),
        b.status in ('failed', 'cancelled') and b.status <> b.ends_as),
    ('failed_without_reason', 'nothing says why it was given up', b.status = 'failed' and b.reason is null),
    ('deadline_not_reached', format('given up at %s for a deadline at %s', b.cancelling_at, b.deadline_at),
        b.ends_as = 'failed' and b.reason = 'deadline' and coalesce(b.deadline_at > b.cancelling_at, true)),
    ('budget_without_limit', 'stopped by a budget that it does not have',
        b.reason = 'failure_budget' and (b.status = 'paused' or b.ends_as = 'failed') and not b.options ? 'failure_limit'),
    ('hook_not_once', (select string_agg(format('epoch %s has %s', epoch, found), ', ') from hooks where found <> 1),
        exists (select from hooks where found <> 1)),
    ('revivals_exceed_epochs', format('%s revivals at epoch %s', s.revivals, b.epoch), s.revivals >= b.epoch),
    ('purged_and_here', 'it is among the purged batches too',
        exists (select from fanout.purged p where p.batch_id = b.id))
) v(code, detail, broken)
where v.broken;
