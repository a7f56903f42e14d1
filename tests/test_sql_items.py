"""Items from the rows of a query."""

import asyncio
import subprocess
import sys
from contextlib import aclosing
from typing import Any

import pytest

from fanout.client import Item
from fanout.client.queries import read_query
from fanout.errors import InvalidItem, InvalidRequest, ServerUnreachable
from fanout.store import Query
from tests.support import ROOT, Deployment
from tests.test_cli import lines

KNOWN = "--allow-unknown"


async def items(fanout: Deployment, query: str) -> list[Item]:
    async with aclosing(read_query(Query(fanout.servers.database_url, query, "the test"))) as found:
        return [item async for item in found]


# A query's column as it stands in a payload: as it is, or as the text that PostgreSQL shows.
TYPES: list[tuple[str, Any]] = [
    ("1", 1),
    ("9007199254740993::int8", 9007199254740993),
    ("0.1::float4", 0.1),
    ("0.1::float8", 0.1),
    ("true", True),
    ("null", None),
    ("'é'", "é"),
    ("'y'::char(3)", "y  "),
    ("""'{"b":1,"a":1.0}'::json""", {"b": 1, "a": 1.0}),
    ("""array['{"a":1}'::jsonb, null]""", [{"a": 1}, None]),
    ("2.50::numeric", "2.50"),
    ("'NaN'::numeric", "NaN"),
    ("timestamptz '2026-11-29 20:00:00+02'", "2026-11-29 18:00:00+00"),
    ("timestamp '2026-11-29 20:00:00.5'", "2026-11-29 20:00:00.5"),
    ("date '2026-11-29'", "2026-11-29"),
    ("interval '1 day 2 hours'", "1 day 02:00:00"),
    ("'4ca16c27-3087-4bfa-b2ab-7897a5dc9b09'::uuid", "4ca16c27-3087-4bfa-b2ab-7897a5dc9b09"),
    ("'\\x00ff'::bytea", "\\x00ff"),
    ("'10.0.0.1'::inet", "10.0.0.1"),
    ("point(1, 2)", "(1,2)"),
    ("array[1.5, null]", ["1.5", None]),
    ("array[['a'], ['b']]", [["a"], ["b"]]),
]


@pytest.mark.parametrize(("expression", "value"), TYPES)
async def test_a_column_is_a_value_of_json_or_the_text_that_postgresql_shows(
    fanout: Deployment, expression: str, value: Any
) -> None:
    [item] = await items(fanout, f"select {expression} as found")
    assert item == Item({"found": value})
    assert type(item.payload["found"]) is type(value)


async def test_a_column_key_is_the_key(fanout: Deployment) -> None:
    assert await items(fanout, "select n as key, n * 2 as double from generate_series(1, 2) n") == [
        Item({"double": 2}, "1"),
        Item({"double": 4}, "2"),
    ]
    assert await items(fanout, "select 'a' as key -- no payload") == [Item({}, "a")]
    assert [item.key for item in await items(fanout, "select 1.50::numeric as key")] == ["1.50"]
    for bad in ("null::text", "true", "0.5::float8", "array[1]"):
        with pytest.raises(InvalidItem, match="item 0: its column key must be"):
            await items(fanout, f"select {bad} as key")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("delete from fanout.meta returning 1", "may only read: cannot execute DELETE in a read-only transaction"),
        ("with gone as (delete from fanout.meta returning 1) select * from gone", "the query writes"),
        ("select nextval('numbers')", "the query writes"),
        ("delete from fanout.meta", "it has to read rows"),
        ("set transaction read write", "it has to read rows"),
        ("commit", "it has to read rows"),
        ("", "it has to read rows"),
        ("select 1; select 2", "multiple commands"),
        ("selct 1", "syntax error"),
        ("select $1::int", "parameters"),
        ("select 1 as a, 2 as a", "the name 'a'"),
        ("select int4range(1, 2) as span", "column 'span' has the type int4range"),
        ("select 'x'::\"char\" as letter", "column 'letter' has the type char"),
        ("select array[int4range(1, 5)] as spans", "column 'spans' has the type int4range[]"),
        ("select '1 2'::int2vector as ids", "column 'ids' has the type int2vector"),
        ("select most_common_vals from pg_stats limit 1", "a type that cannot be read"),
        ("select 1 / (5 - n) as n from generate_series(1, 9) n", "division by zero"),
        ("select 'NaN'::float8 as n", "item 0"),
        ("""select '{"a":1,"a":2}'::json as n""", "item 0: its column n: the name 'a' stands twice"),
    ],
)
async def test_a_query_that_writes_or_cannot_be_read_stores_nothing(fanout: Deployment, query: str, said: str) -> None:
    await fanout.pool.execute("create sequence numbers")
    found = read_query(Query(fanout.servers.database_url, query, "the test"))
    async with aclosing(found):
        with pytest.raises(InvalidRequest) as raised:
            await fanout.client.submit("test.echo", found, allow_unknown=True)
    assert said in str(raised.value)
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 0
    assert await fanout.pool.fetchval("select count(*) from fanout.meta") == 1


async def test_the_command_line_submits_the_rows_of_either_database(fanout: Deployment) -> None:
    query = "select n as key, n * 1.5 as amount from generate_series(1, 3) n"
    submit = ("submit", "test.echo", "--sql", query, KNOWN, "--json")
    assert lines(fanout.run(*submit, "--dry-run"))[0]["total"] == 3
    [answer] = lines(fanout.run(*submit, "--key", "k"))
    assert [answer["outcome"], answer["total"]] == ["started", 3]
    rows = lines(fanout.run("results", answer["batch_id"], "--with-payload"))
    assert [(row["item_key"], row["payload"]) for row in rows] == [
        ("1", {"amount": "1.5"}),
        ("2", {"amount": "3.0"}),
        ("3", {"amount": "4.5"}),
    ]
    other = fanout.environment["FANOUT_DATABASE_URL"].rpartition("/")[0] + "/template1"
    command = ("submit", "test.echo", "--sql", "select current_database() as name", KNOWN, "--json", "--sql-url")
    [elsewhere] = lines(fanout.run(*command, other))
    assert lines(fanout.run("results", elsewhere["batch_id"], "--with-payload"))[0]["payload"] == {"name": "template1"}
    refused = fanout.run("submit", "test.echo", "--sql", "drop table fanout.meta", KNOWN)
    assert (refused.returncode, "may only read" in refused.stderr) == (2, True)
    unreachable = fanout.run(*command, "postgresql://u:secret@127.0.0.1:1/x")
    assert (unreachable.returncode, "chosen by --sql-url" in unreachable.stderr) == (3, True)
    assert "secret" not in unreachable.stderr
    malformed = fanout.run(*command, "postgresql://u:secret@h:port/x")
    assert (malformed.returncode, "secret" in malformed.stderr) == (2, False)
    stopped = fanout.run(
        "submit", "test.echo", "--sql", "select pg_sleep(60)", KNOWN, "--sql-url", f"{other}?statement_timeout=50"
    )
    assert (stopped.returncode, "statement timeout" in stopped.stderr) == (2, True)


async def run(url: str, text: str = "select 1") -> None:
    async with aclosing(Query(url, text, "the option").rows()) as rows:
        [row async for row in rows]


async def test_a_database_that_does_not_answer_is_named(fanout: Deployment) -> None:
    with pytest.raises(ServerUnreachable, match="chosen by the option"):
        await run("postgresql://127.0.0.1:1/x")
    with pytest.raises(ServerUnreachable, match="chosen by the option"):
        await run(fanout.servers.database_url, "select pg_terminate_backend(pg_backend_pid())")


async def test_a_time_limit_of_the_database_stops_a_query_for_good(fanout: Deployment) -> None:
    url = f"{fanout.servers.database_url}?statement_timeout=50"
    with pytest.raises(InvalidRequest, match="statement timeout"):
        await run(url, "select pg_sleep(60)")


@pytest.mark.parametrize(
    "url",
    [
        "host=h password=secret",
        "mysql://u:secret@h/x",
        "postgresql://u:secret/word@h/x",
        "postgresql://u:secret@h:port/x",
        "postgresql://u:secret@[::1/x",
        "postgresql://u:secret@127.0.0.1:99999/x",
    ],
)
async def test_a_url_that_is_none_is_a_wrong_call_and_its_password_is_not_told(url: str) -> None:
    with pytest.raises(InvalidRequest, match="chosen by the option is not postgresql://") as raised:
        await run(url)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("rows", [50_000, pytest.param(1_000_000, marks=pytest.mark.chaos, id="a million")])
async def test_many_rows_are_submitted_in_constant_memory(fanout: Deployment, rows: int) -> None:
    query = f"select n as key, repeat('x', 500) as filling from generate_series(1, {rows}) n"
    code = (
        "import resource, sys; from fanout.cli.app import run\n"
        "code = run(sys.argv[1:])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)\n"
        "sys.exit(code)"
    )

    async def peak(sql: str) -> int:
        command = (sys.executable, "-c", code, "submit", "test.echo", "--sql", sql, KNOWN, "--json")
        process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, env=fanout.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        _, said = await process.communicate()
        assert process.returncode == 0, said
        return int(said.split()[-1]) // 1024

    few, many = await peak("select 1 as key"), await peak(query)
    assert await fanout.pool.fetchval("select max(total) from fanout.batches") == rows
    assert many - few < 80
