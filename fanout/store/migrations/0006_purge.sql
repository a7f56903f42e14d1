-- What is left of a batch once its rows are purged: the answer to `status`, and the memory of its key.
create table fanout.purged (
    batch_id    uuid primary key,
    handler     text        not null,
    key         text        not null,
    workflow_id text        not null,
    title       text,
    fingerprint bytea       not null check (octet_length(fingerprint) = 32),
    options     jsonb       not null,
    status      text        not null check (status in ('completed', 'completed_with_failures', 'failed', 'cancelled')),
    epoch       integer     not null,
    total       integer     not null,
    reason      text,
    created_at  timestamptz not null,
    started_at  timestamptz,
    progress_at timestamptz,
    deadline_at timestamptz,
    closed_at   timestamptz not null,
    completed   integer     not null,
    failed      integer     not null,
    cancelled   integer     not null,
    purged_at   timestamptz not null default clock_timestamp(),
    -- Starts that joined it, of which the lines in `duplicates` are deleted; the lines that are left come on top.
    duplicates       integer not null default 0,
    duplicate_origin text,
    -- For how long the key is remembered, by the batch's dedup policy; null is for ever.
    keep_until  timestamptz,
    -- The rows before this seq are deleted; null once nothing of the batch is left.
    next_seq    integer default 0,
    check (completed + failed + cancelled = total)
);
create index purged_by_key on fanout.purged (handler, key, created_at desc);
create index purged_half on fanout.purged (batch_id) where next_seq is not null;
create index purged_until on fanout.purged (keep_until) where keep_until is not null;
create index batches_by_close on fanout.batches (closed_at) where closed_at is not null;

-- Every batch that is known, with its rows or without.
create view fanout.known_batches as
select id, handler, key, workflow_id, title, fingerprint, options, status, epoch, total, reason, created_at, started_at, closed_at,
       deadline_at, breaker_type, breaker_until, completed, failed, cancelled, null::timestamptz as progress_at,
       null::timestamptz as purged_at, 0 as duplicates, null::text as duplicate_origin
from fanout.batches
union all
select batch_id, handler, key, workflow_id, title, fingerprint, options, status, epoch, total, reason, created_at, started_at,
       closed_at, deadline_at, null, null, completed, failed, cancelled, progress_at, purged_at,
       duplicates, duplicate_origin
from fanout.purged;
