-- What each live worker holds, by handler: {"items": rows claimed and not written yet, "oldest_seconds": age of the oldest claim,
-- "batches": {batch id: rows}}. It is renewed with the lease, so that nobody has to count the rows of big or many open batches.
alter table fanout.workers add column holds jsonb not null default '{}';
