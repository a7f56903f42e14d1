-- name: read_results
-- A page of rows after seq $2, in seq order.
select r.seq, i.item_key, r.status, r.attempts, r.crashes, r.result, r.error,
       case when $4::boolean then i.payload end as payload
from fanout.results r
left join lateral (
    select item_key, payload from fanout.items where batch_id = $1 and seq = r.seq offset 0
) i on true
where r.batch_id = $1 and r.seq > $2 and ($3::text is null or r.status = $3)
order by r.seq
limit $5;

-- name: read_item
select r.seq, i.item_key, r.status, r.attempts, r.crashes, r.result, r.error, i.payload,
       r.due_at, r.claimed_at, r.settled_at, w.identity as worker
from fanout.items i
join fanout.results r on r.batch_id = i.batch_id and r.seq = i.seq
left join fanout.workers w on w.id = r.worker_id
where greatest(i.batch_id) = $1 and i.item_key = $2;

-- name: read_item_events
select id, kind, data, at from fanout.events
where batch_id = $1 and (data ->> 'seq')::integer = $2
order by id;

-- name: read_events
select id, kind, data, at from fanout.events where batch_id = $1 and id > $2 order by id limit $3;
