"""A user's table beside Fanout's, for handlers that book into it, and the proof that it balances."""

CREATE = "create table if not exists bookings (batch_id uuid, seq integer, amount integer, worker text)"
BOOK = "insert into bookings (batch_id, seq, amount, worker) values ($1, $2, $3, $4)"
BALANCE = """
select count(*) filter (where x.booked is distinct from (x.status = 'completed')::integer) as differ,
       sum(x.booked)::integer as booked
from (
    select r.status, (select count(*) from bookings b where b.batch_id = r.batch_id and b.seq = r.seq) as booked
    from fanout.results r where r.batch_id = $1
) x
"""
END_SESSIONS = """
select count(pg_terminate_backend(pid)) from (
    select pid from pg_stat_activity
    where datname = current_database() and application_name = 'fanout effects' order by random() limit 1
) x
"""
