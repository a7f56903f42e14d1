-- What each live worker holds, by handler: {"items": rows claimed and not written yet, "oldest_seconds": age of the oldest claim}. It is
-- renewed with the lease, so that a metric needs no look at the rows of all open batches.
alter table fanout.workers add column holds jsonb not null default '{}';
