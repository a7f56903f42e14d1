"""What Temporal's Web UI is given to show: texts that no user's words can turn into something else."""

import re
from functools import partial
from typing import Any

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowHandle

from fanout import InvalidRequest
from fanout.markdown import SUMMARY_BYTES, code, summary
from tests.support import Deployment, eventually

HOSTILE = "**big** <img src=x> [click](http://evil.example) `x` | &lt; ~~no~~"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Three naps", "Three naps"),
        ("review.paper 2026-11, my_file.pdf (v2) 100 % + x!", "review.paper 2026-11, my_file.pdf (v2) 100 % + x!"),
        ("*a* _b_ [c] <d> `e`", r"\*a\* \_b\_ \[c\] \<d> \`e\`"),
        ("# title", r"\# title"),
        ("- 1", r"\- 1"),
        ("1. first", r"1\. first"),
        ("a & b &amp; c", r"a & b \&amp; c"),
        ("see https://evil.example", "`see https://evil.example`"),
        ("me@evil.example", "`me@evil.example`"),
        ("two\nlines\u2028\x1b[2J", r"two\\u000alines\\u2028\\u001b\[2J"),
    ],
)
def test_a_summary_shows_what_was_written(text: str, shown: str) -> None:
    assert summary(text) == shown


@pytest.mark.parametrize(
    "text", ["x" * 200, "新" * 200, "\U0001f600" * 200, "*" * 200, "@" + "`" * 199, "@`" * 100, "\0" * 200]
)
def test_a_summary_fits_in_what_temporal_takes(text: str) -> None:
    assert len(summary(text).encode()) <= SUMMARY_BYTES


@pytest.mark.parametrize("text", [HOSTILE, "`", "``a", " a ", "a`", "\n", "a``b`c"])
def test_a_code_span_holds_its_text_whole(text: str) -> None:
    shown = code(text)
    [fence] = re.findall(r"^`+", shown)
    assert shown.endswith(fence)
    inner = shown[len(fence) : -len(fence)]
    assert fence not in re.findall("`+", inner)
    assert inner.isprintable()


async def test_temporal_takes_the_longest_titles_and_shows_them_as_text(fanout: Deployment) -> None:
    for number, title in enumerate(("新" * 200, "\U0001f600" * 200, "*" * 200, HOSTILE)):
        batch = await fanout.client.submit("test.noop", [1], title=title, key=f"{HOSTILE} {number}", allow_unknown=True)
        handle = fanout.temporal.get_workflow_handle((await batch.read()).workflow_id)
        description = await handle.describe()
        assert await description.static_summary() == summary(title)
        details = await description.static_details() or ""
        assert f"- title: {code(title)}" in details
        assert f"- key: {code(f'{HOSTILE} {number}')}" in details


@pytest.mark.parametrize("title", ["two\nlines", "\x1b[2J", "\x85", "a\u2028b", "\0", ""])
async def test_a_title_that_is_more_than_one_line_is_refused(fanout: Deployment, title: str) -> None:
    with pytest.raises(InvalidRequest, match="a title"):
        await fanout.client.submit("test.noop", [1], title=title, allow_unknown=True)


async def metadata(handle: WorkflowHandle[Any, Any]) -> WorkflowMetadata:
    found: WorkflowMetadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    return found


async def test_what_a_look_has_counted_is_not_counted_again_when_its_range_ends(fanout: Deployment) -> None:
    await fanout.start_worker("--concurrency", "20", handlers="tests.handlers.shown")
    gates = [fanout.folder / "go-0", fanout.folder / "go-1"]
    items: list[dict[str, str]] = [{}] * 9 + [{"waits_for": str(gates[0])}] + [{"waits_for": str(gates[1])}] * 10
    batch = await fanout.client.submit("test.shown", items, range_size=10)
    handle = fanout.temporal.get_workflow_handle((await batch.read()).workflow_id)

    async def told(number: int) -> bool:
        await handle.signal("changed")
        return bool((await handle.query("progress"))["completed"] == number)

    async def ended() -> int:
        found: int = (await handle.query("progress"))["completed"]
        return found if found != 9 else 0

    await eventually(partial(told, 9))
    gates[0].touch()
    assert await eventually(ended) == 10
    gates[1].touch()
    assert (await batch.wait()).completed == 20


async def test_the_live_details_tell_state_reason_and_counts(fanout: Deployment) -> None:
    # At most four are at work, and unwritten, when the budget stops them.
    await fanout.start_worker("--concurrency", "4")
    batch = await fanout.client.submit(
        "test.fail", [{"n": n} for n in range(40)], max_failures=3, range_size=1, key="live"
    )
    handle = fanout.temporal.get_workflow_handle((await batch.read()).workflow_id)

    async def paused() -> bool:
        details, status = (await metadata(handle)).current_details, await batch.progress()
        told = (
            *("**paused**", "reason: `failure_budget`", f"{status.settled} of 40 items settled"),
            f"| 0 | {status.failed} | 0 | {40 - status.settled} | 40 |",
        )
        return all(words in details for words in told)

    await eventually(paused)
    definition = (await metadata(handle)).definition
    named = [*definition.query_definitions, *definition.signal_definitions, *definition.update_definitions]
    assert {"changed", "pause", "resume", "retry", "cancel", "progress"} <= {each.name for each in named}
    assert [each.name for each in named if not each.name.startswith("__") and not each.description] == []
    await batch.cancel("*done*")

    async def cancelled() -> bool:
        return "reason: `*done*`" in (await metadata(handle)).current_details

    await eventually(cancelled)
