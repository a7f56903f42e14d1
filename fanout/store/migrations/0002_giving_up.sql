-- What makes a batch give up before its end: a budget of failures, and a deadline. Both are facts on its row.

alter table fanout.batches
    -- The failures that a person has seen and let pass, by a resume or a retry: the budget counts from there.
    add column failures_forgiven integer not null default 0 check (failures_forgiven >= 0),
    add column deadline_at timestamptz,
    -- What the batch closes as while it is `cancelling`.
    add column ends_as text not null default 'cancelled' check (ends_as in ('cancelled', 'failed'));

-- How many items of a batch have failed. Volatile, so that it looks anew each time, as is_live does: a statement that waited
-- for the batch's row would else compare what it holds now with counters from before.
create function fanout.failed_items(of_batch uuid) returns integer
    language sql volatile
return (select coalesce(sum(failed), 0)::integer from fanout.progress where batch_id = of_batch);

-- Whether more items of a batch have failed than its budget allows, not counting those that were forgiven. A percentage counts only
-- once enough are settled; and where nothing is left to do, there is nothing to pause.
create function fanout.is_over_budget(of_batch uuid) returns boolean
    language sql volatile
return exists (
    select from fanout.batches b
    cross join lateral (
        select coalesce(sum(failed), 0) as failed, coalesce(sum(completed + failed + cancelled), 0) as settled
        from fanout.progress where batch_id = b.id
    ) p
    where b.id = of_batch
      and p.failed - b.failures_forgiven > (b.options ->> 'failure_limit')::integer
      and p.settled >= coalesce((b.options ->> 'failure_least')::integer, 0)
      and (b.options ->> 'on_budget' = 'fail' or p.settled < b.total)
);
