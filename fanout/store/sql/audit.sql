-- name: install_audit
-- Records every move of a result row into a terminal state, whatever statement made it: evidence that is not the guard's own.
create schema if not exists fanout_audit;
create table if not exists fanout_audit.settles (
    batch_id uuid not null, seq integer not null, status text not null, was text not null, epoch integer,
    at timestamptz not null default clock_timestamp());
create or replace function fanout_audit.record() returns trigger language plpgsql as $$
begin
    insert into fanout_audit.settles (batch_id, seq, status, was, epoch)
    select new.batch_id, new.seq, new.status, old.status,
           (select epoch from fanout.batches where id = new.batch_id);
    return null;
end $$;
drop trigger if exists audit on fanout.results;
create trigger audit after update on fanout.results for each row
    when (new.settled_at is not null) execute function fanout_audit.record();

-- name: count_recorded_twice
-- Rows of a batch that were settled more than once in one epoch.
select count(*) from (
    select from fanout_audit.settles where batch_id = $1 group by seq, epoch having count(*) > 1
) twice;

-- name: count_settles
select count(*) from fanout_audit.settles where batch_id = $1;
