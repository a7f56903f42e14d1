-- A start that is tried again after its answer was lost is recorded once.
alter table fanout.duplicates add column start_id uuid;
create unique index duplicates_once on fanout.duplicates (start_id) where start_id is not null;
