-- name: page_batches
-- The newest batches first, behind the one that was created at $3 and is $4. Conditions with coalesce, for the index to end the page.
select id, created_at from fanout.batches
where created_at <= coalesce($3::timestamptz, 'infinity')
  and (created_at < coalesce($3::timestamptz, 'infinity') or id > $4::uuid)
  and ($1::text is null or status = $1) and ($2::text is null or handler = $2)
order by created_at desc, id
limit $5;

-- name: page_rows
-- Rows from seq $2 on that fit, in seq order; rows from $3 on are not looked at, however few fit. Big results stay where they are.
select r.seq, i.item_key, r.status, r.attempts, r.crashes, r.error, null as payload,
       case when not l.left_out then r.result end as result, l.left_out
from fanout.results r
left join lateral (select item_key from fanout.items where batch_id = $1 and seq = r.seq offset 0) i on true
cross join lateral (
    select coalesce(octet_length(r.result::text) > 32768, false) as left_out
) l
where r.batch_id = $1 and r.seq >= $2 and r.seq < $3
  and ($4::text is null or r.status = $4)
  and ($5::text is null or r.error ->> 'type' = $5) and ($6::text is null or r.error ->> 'code' = $6)
order by r.seq
limit $7;

-- name: find_item_keys
-- Item keys of [$2, $3) behind $4, in their own order, which is that of their bytes.
select item_key, seq from fanout.items
where greatest(batch_id) = $1 and item_key >= $2 and item_key < $3 and item_key > $4
order by item_key
limit $5;

-- name: read_rows_at
-- Of the rows at these seqs those that fit.
select r.seq, i.item_key, r.status, r.attempts, r.crashes, r.error, null as payload,
       case when not l.left_out then r.result end as result, l.left_out
from fanout.results r
left join lateral (select item_key from fanout.items where batch_id = $1 and seq = r.seq offset 0) i on true
cross join lateral (
    select coalesce(octet_length(r.result::text) > 32768, false) as left_out
) l
where r.batch_id = $1 and r.seq = any($2::integer[])
  and ($3::text is null or r.status = $3)
  and ($4::text is null or r.error ->> 'type' = $4) and ($5::text is null or r.error ->> 'code' = $5)
order by i.item_key;

-- name: group_told_failures
-- The failed rows that the batch's events name, which are the first 1,000 of each type of error: all of them, where few failed.
with told as materialized (
    select distinct (e.data ->> 'seq')::integer as seq
    from (select data from fanout.events where batch_id = $1 and kind = 'failed' order by id limit $2) e
)
select r.error ->> 'code' as code, r.error ->> 'type' as type, count(*) as found, min(r.seq) as first
from fanout.results r
where r.batch_id = $1 and r.seq = any(array(select seq from told)) and r.status = 'failed'
group by 1, 2;

-- name: group_sampled_failures
-- One row of every $3 seqs, at a place of its own in each: what fails every tenth time must not be missed or met each time.
select r.error ->> 'code' as code, r.error ->> 'type' as type, count(*) as found, min(r.seq) as first
from fanout.results r
where r.batch_id = $1 and r.status = 'failed' and r.seq = any(array(
    select (n * $3::bigint + n * 2654435761 % $3)::integer from generate_series(0, ($2::bigint - 1) / $3) n))
group by 1, 2;

-- name: read_failures
-- Some failed rows with the beginning of their error's text.
select r.seq, i.item_key, r.attempts, left(r.error ->> 'message', 300) as message
from fanout.results r
left join lateral (select item_key from fanout.items where batch_id = $1 and seq = r.seq offset 0) i on true
where r.batch_id = $1 and r.seq = any($2::integer[]);

-- name: sample_settles
-- How many rows, of those that group_sampled_failures would look at, settled in each of $6 equal spans between $4 and $5.
select width_bucket(extract(epoch from r.settled_at)::float8, $4::float8, $5::float8, $6::integer) as bucket,
       count(*) filter (where r.status = 'completed') as completed,
       count(*) filter (where r.status = 'failed') as failed,
       count(*) filter (where r.status = 'cancelled') as cancelled
from fanout.results r
where r.batch_id = $1 and r.settled_at is not null and r.seq = any(array(
    select (n * $3::bigint + n * 2654435761 % $3)::integer from generate_series(0, ($2::bigint - 1) / $3) n))
group by 1
order by 1;
