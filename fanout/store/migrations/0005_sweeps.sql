-- What two passes of the sweeper need to agree on, and the last pass that was finished.

-- One row an open batch that a pass has looked at: its facts, and what Temporal's answer came to, each with the time since when.
create table fanout.sweeps (
    batch_id    uuid primary key,
    status      text        not null,
    epoch       integer     not null,
    settled     integer     not null,
    progress_at timestamptz,
    since       timestamptz not null default clock_timestamp(),
    verdict     text        not null,
    found_at    timestamptz not null default clock_timestamp(),
    -- The run that was seen to be this batch's: it need not be asked again.
    run_id      text,
    -- What the batch's events have told of this standstill.
    told        text[]      not null default '{}',
    revivals    integer     not null default 0 check (revivals >= 0),
    -- The row was changed so that a run must start, and it has not been seen to start yet.
    owes_start  boolean     not null default false
) with (fillfactor = 40);

create table fanout.last_sweep (
    singleton    boolean primary key default true check (singleton),
    began_at     timestamptz not null,
    ended_at     timestamptz not null default clock_timestamp(),
    examined     integer     not null,
    healed       integer     not null,
    failed       integer     not null,
    -- Where a pass that ran out of time stopped: the next one begins behind it.
    resume_after uuid
);

create index batches_open on fanout.batches (id) where closed_at is null;

-- When an item of the batch settled last, or was reopened. Volatile, so that it looks anew each time, as is_live does.
create function fanout.last_progress_at(of_batch uuid) returns timestamptz
    language sql volatile
return (select max(progress_at) from fanout.progress where batch_id = of_batch);
