-- Every row that Fanout keeps. Items are written once; results are the guard; counters and events ride along
-- in the statement that changes the rows. No foreign keys from the two big tables: COPY of a million rows would pay for them.

create schema if not exists fanout;

create table fanout.meta (
    singleton      boolean primary key default true check (singleton),
    schema_version integer not null,
    database_id    uuid    not null default gen_random_uuid()
);

create table fanout.batches (
    id            uuid primary key,
    handler       text        not null check (handler ~ '^[a-z0-9][a-z0-9._-]{0,47}$'),
    key           text        not null check (octet_length(key) between 1 and 150),
    workflow_id   text        not null check (octet_length(workflow_id) <= 255),
    title         text        check (char_length(title) <= 200),
    fingerprint   bytea       not null check (octet_length(fingerprint) = 32),
    options       jsonb       not null default '{}',
    status        text        not null default 'pending' check (status in (
        'pending', 'processing', 'paused', 'cancelling', 'completed', 'completed_with_failures', 'failed', 'cancelled')),
    epoch         integer     not null default 1 check (epoch >= 1),
    total         integer     not null check (total >= 0),
    reason        text,
    created_at    timestamptz not null default clock_timestamp(),
    started_at    timestamptz,
    cancelling_at timestamptz check (cancelling_at is not null or status <> 'cancelling'),
    closed_at     timestamptz,
    -- The final counts, counted from rows by the statement that closes; null while the batch is open.
    completed     integer,
    failed        integer,
    cancelled     integer,
    constraint batches_closed check (case
        when status in ('completed', 'completed_with_failures', 'failed', 'cancelled')
            then closed_at is not null and coalesce(completed + failed + cancelled, -1) = total
        else closed_at is null and completed is null and failed is null and cancelled is null
        end)
);
create unique index batches_one_open_per_key on fanout.batches (handler, key) where closed_at is null;
create index batches_by_key on fanout.batches (handler, key, created_at desc);
create index batches_newest on fanout.batches (created_at desc, id);

-- One batch per key. The row is locked by the first submit, so that the others wait for its outcome.
create table fanout.keys (
    handler  text not null,
    key      text not null,
    batch_id uuid not null,
    primary key (handler, key)
);

create table fanout.items (
    batch_id uuid    not null,
    seq      integer not null check (seq >= 0),
    item_key text    not null collate "C" check (octet_length(item_key) between 1 and 400),
    payload  json    not null,
    primary key (batch_id, seq)
);
-- `greatest` of one value is that value, but no condition on batch_id can use this index. While statistics know other batches only, the
-- planner takes a new batch for one row and this index for as good as the primary key: a claim of 500 rows of 50,000 then took 13 s.
create unique index items_key_once on fanout.items (greatest(batch_id), item_key);

create table fanout.results (
    batch_id   uuid    not null,
    seq        integer not null,
    status     text    not null default 'pending',
    claim_id   uuid,
    worker_id  uuid,
    attempts   integer not null default 0 check (attempts >= 0),
    crashes    integer not null default 0 check (crashes >= 0),
    throttles  integer not null default 0 check (throttles >= 0),
    due_at     timestamptz,
    result     jsonb,
    error      jsonb,
    claimed_at timestamptz,
    settled_at timestamptz,
    primary key (batch_id, seq),
    constraint results_state check (case status
        when 'pending' then claim_id is null and worker_id is null and settled_at is null and result is null
        when 'processing' then claim_id is not null and worker_id is not null and settled_at is null and result is null
        when 'completed' then claim_id is not null and settled_at is not null and result is not null and error is null
        when 'failed' then claim_id is not null and settled_at is not null and result is null and error is not null
        when 'cancelled' then settled_at is not null and result is null and error is not null
        else false end)
-- A claim and a settle of each row fit beside it: measured, 100 % of the updates are HOT; with 40 it was 75 %, and a bigger table.
) with (fillfactor = 25);

create table fanout.workers (
    id          uuid primary key,
    identity    text        not null,
    handlers    jsonb       not null,
    lanes       text[]      not null default '{}',
    build       text        not null,
    concurrency integer     not null check (concurrency > 0),
    started_at  timestamptz not null default clock_timestamp(),
    seen_at     timestamptz not null default clock_timestamp()
) with (fillfactor = 40);

create table fanout.progress (
    batch_id    uuid        not null,
    slot        smallint    not null check (slot between 0 and 15),
    completed   integer     not null default 0,
    failed      integer     not null default 0,
    cancelled   integer     not null default 0,
    progress_at timestamptz not null default clock_timestamp(),
    primary key (batch_id, slot)
) with (fillfactor = 40);

create table fanout.events (
    batch_id uuid        not null,
    id       bigint      not null check (id > 0),
    kind     text        not null,
    data     jsonb       not null,
    at       timestamptz not null default clock_timestamp(),
    primary key (batch_id, id)
);

-- The counter that hands out event ids: it is locked until commit, so a reader never skips an event that commits late.
create table fanout.event_heads (
    batch_id uuid primary key,
    last_id  bigint not null default 0
) with (fillfactor = 40);

-- How often each class of event came, beyond the first 1,000 that are kept.
create table fanout.event_counts (
    batch_id uuid   not null,
    class    text   not null,
    seen     bigint not null,
    primary key (batch_id, class)
) with (fillfactor = 40);

create table fanout.duplicates (
    batch_id uuid        not null,
    at       timestamptz not null default clock_timestamp(),
    origin   text        not null,
    outcome  text        not null check (outcome in ('joined', 'already_done'))
);
create index duplicates_by_batch on fanout.duplicates (batch_id, at);

create table fanout.slots (
    lane      text    not null,
    slot      integer not null check (slot >= 0),
    claim_id  uuid,
    worker_id uuid,
    primary key (lane, slot),
    check ((claim_id is null) = (worker_id is null))
);

-- The live workers: the lease of everything that they claimed. Volatile, so that it looks anew each time: a statement that waited
-- for a lock has an old snapshot, in which whoever lives would seem to have been silent since, or not to be there yet.
create function fanout.is_live(of_worker uuid, stale_after interval) returns boolean
    language sql volatile
return exists (
    select from fanout.workers w where w.id = of_worker and w.seen_at > clock_timestamp() - stale_after
);

-- Appends events [{"kind", "class", "data"}] to a batch's stream; of each class but 'batch' the first 1,000, the rest counted.
create function fanout.emit(of_batch uuid, news jsonb) returns integer
    language plpgsql as
$$
declare
    head bigint;
    kept integer;
begin
    if news is null or news = '[]' then
        return 0;
    end if;
    -- First the lock, which orders all emitters of this batch; then the counts, which it protects.
    select last_id into strict head from fanout.event_heads where batch_id = of_batch for update;
    with arriving as (
        select n.number, n.event,
               n.event ->> 'class' as class,
               row_number() over (partition by n.event ->> 'class' order by n.number) as nth
        from jsonb_array_elements(news) with ordinality as n(event, number)
    ), accepted as (
        select a.event, row_number() over (order by a.number) as offset_
        from arriving a
        left join fanout.event_counts c on c.batch_id = of_batch and c.class = a.class
        where a.class = 'batch' or coalesce(c.seen, 0) + a.nth <= 1000
    ), written as (
        insert into fanout.events (batch_id, id, kind, data)
        select of_batch, head + offset_, event ->> 'kind', event -> 'data' from accepted
        returning id
    ), counted as (
        insert into fanout.event_counts as c (batch_id, class, seen)
        select of_batch, class, count(*) from arriving group by class order by class
        on conflict (batch_id, class) do update set seen = c.seen + excluded.seen
    )
    select count(*) into kept from written;
    update fanout.event_heads set last_id = head + kept where batch_id = of_batch;
    return kept;
end
$$;

-- The error object of a row that its batch's cancel settled.
create function fanout.cancelled_error(reason text, attempts integer) returns jsonb
    language sql stable
return jsonb_build_object(
    'code', 'cancelled', 'type', 'Cancelled', 'message', coalesce(reason, ''), 'traceback', null,
    'attempt', attempts, 'at', clock_timestamp(), 'truncated', false, 'length', char_length(coalesce(reason, '')));
