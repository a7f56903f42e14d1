-- A batch whose breaker is open starts no item but a probe at breaker_until.
alter table fanout.batches
    add column breaker_type  text,
    add column breaker_until timestamptz,
    add constraint batches_breaker check ((breaker_type is null) = (breaker_until is null));

-- Since when a worker has renewed its lease without a gap.
alter table fanout.workers add column fresh_since timestamptz not null default clock_timestamp();

-- After a database outage every lease looks stale until its worker is back. So only a worker that has been back for three seconds
-- itself, in which all others could renew theirs, takes silence for death.
create function fanout.may_take_over(the_worker uuid) returns boolean
    language sql volatile
return exists (
    select from fanout.workers w
    where w.id = the_worker and w.fresh_since < clock_timestamp() - interval '3 seconds'
      -- A claim may come before the first renewal after an outage: the row still tells of the time before it.
      and w.seen_at > clock_timestamp() - interval '3 seconds'
);
