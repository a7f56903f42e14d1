"""What somebody sees and does on the dashboard, with a real browser, server and worker."""

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from fanout import BatchHandle, Item, Status
from fanout.client.purging import Purging
from fanout.live import feed
from tests.dashboard.browsing import NARROW, Serving, Visiting, Visitor
from tests.faults.proxy import Line
from tests.ledger import closed
from tests.store.support import add_batch
from tests.support import Deployment, eventually

SHOWN = "tests.handlers.shown"
PAGE = 25


async def test_the_list_filters_pages_and_stays_live_under_a_prefix(
    fanout: Deployment, serve: Serving, visit: Visiting
) -> None:
    for number in range(PAGE):
        await add_batch(fanout.client.store, 10, f"old-{number}")
    batch = await fanout.client.submit("test.idle", [1, 2], key="k/1", title="The newest", allow_unknown=True)
    visitor = await visit(await serve(prefix="/jobs/fanout"))
    page = visitor.page
    rows = page.locator(".batches tbody tr")
    await visitor.open()
    await visitor.until(".batches tbody tr", "The newest")
    assert await rows.count() == PAGE
    await visitor.check_accessibility()
    await page.get_by_role("link", name="Older").click()
    await visitor.until(".batches tbody tr", "old-0")
    assert await rows.count() == 1
    await page.get_by_role("link", name="Newest").click()
    await visitor.until(".batches tbody tr", "The newest")
    first = rows.first
    assert await first.get_by_role("progressbar").get_attribute("aria-valuetext") == "0 of 2 settled"
    await batch.pause()
    await first.locator(".badge[data-state=paused]").wait_for()
    await page.get_by_label("State").select_option("paused")
    await page.wait_for_function("() => document.querySelectorAll('.batches tbody tr').length === 1")
    await page.get_by_label("Handler").fill("test.store")
    await page.get_by_label("Handler").press("Enter")
    await visitor.until(".empty", "No batch is like that")
    await page.go_back()
    await visitor.until(".batches tbody tr", "The newest")
    await page.get_by_role("link", name="The newest").click()
    await visitor.state("paused")
    assert await page.title() == "The newest · Fanout"
    assert await visitor.text(".facts") != ""
    await visitor.open("#/batches/test.idle%2Fk%2F1")
    await visitor.until(".card", re.compile("There is no such page.*/batches/test.idle%2Fk%2F1", re.DOTALL))
    assert await page.title() == "Not found · Fanout"
    await visitor.check_accessibility()
    await page.get_by_role("link", name="Show all batches").click()
    await visitor.until(".batches tbody tr", "The newest")


def gate(fanout: Deployment, number: int) -> Path:
    return fanout.folder / f"go-{number}"


async def submit_mixed(fanout: Deployment) -> BatchHandle:
    """60 items of which ten fail, with one type of error and two codes; a gate for each quarter of them."""
    codes = {3: "form", 7: "missing"}
    payloads: list[dict[str, Any]] = [
        {"waits_for": str(gate(fanout, n // 15)), "returns": {"page": n}} for n in range(60)
    ]
    for number, payload in enumerate(payloads):
        if number < 50 and number % 10 in codes:
            payload |= {"raises": "Wrong", "code": codes[number % 10], "message": f"nothing in {number}", "until": 1}
    items = [Item(payload, f"paper/{number:02}") for number, payload in enumerate(payloads)]
    return await fanout.client.submit("test.shown", items, key="mixed", title="Papers", max_failures=50)


async def test_a_batch_is_watched_to_its_end_and_retried_by_group(
    fanout: Deployment, serve: Serving, visit: Visiting
) -> None:
    await fanout.start_worker("--concurrency", "5", handlers=SHOWN)
    batch = await submit_mixed(fanout)
    # So that nothing much has happened when the page is there, however long that takes.
    await batch.pause()
    visitor = await visit(await serve())
    page = visitor.page
    await visitor.open(f"#/batches/{batch.batch_id}")
    await visitor.state("paused")
    await page.evaluate(WATCH_COUNTS)
    await visitor.press("Resume")
    for number in range(4):
        gate(fanout, number).touch()
        await page.wait_for_function("(least) => window.counts.length > least", arg=number)
    await visitor.state("completed_with_failures")
    counts = await page.evaluate("() => window.counts")
    assert counts == sorted(counts)
    assert (counts[-1], len(counts) > 3) == (60, True), counts
    await visitor.until("#announcer", "Completed with failures: 60 of 60 settled, 10 failed")
    await visitor.until("#connection", "Up to date")
    groups = page.locator(".failures tbody tr")
    await groups.nth(1).wait_for()
    await page.wait_for_function(GROUP_COUNTS, arg=["5", "5"])
    await visitor.check_accessibility()
    await look_for_items(visitor)
    await groups.filter(has_text="missing").get_by_role("link", name="Wrong").click()
    await page.wait_for_function("() => document.querySelectorAll('.items tbody tr').length === 5")
    await groups.filter(has_text="missing").get_by_role("button").click()
    await visitor.until(".facts", re.compile(r"Run\s*2"))
    await visitor.state("completed_with_failures")
    await page.wait_for_function(GROUP_COUNTS, arg=["5"])
    # Somebody else's retry, of which this page learns by itself.
    await batch.retry()
    await visitor.state("completed")
    assert await visitor.text(".figures .big") == "100 %"
    assert await page.get_by_role("button", name=re.compile("Retry")).count() == 0
    assert (await closed(batch)).failed == 0
    await Purging(fanout.client.store, timedelta(0)).purge_one(batch.batch_id)
    await visitor.until(".notice", re.compile(r"^Its items and results were purged .+\.$"))
    for part in ("items", "Throughput"):
        await page.get_by_role("heading", name=part).wait_for(state="hidden")
    await page.reload()
    await visitor.until(".notice", "Its items and results were purged")
    # What it asked for before it knew was refused, as the browser notes.
    visitor.complaints = [each for each in visitor.complaints if "status of 422" not in each]


WATCH_COUNTS = """() => {
  window.counts = [];
  const count = () => Number(document.querySelector(".batch [role=progressbar]").ariaValueText.split(" ")[0]);
  new MutationObserver(() => window.counts.push(count())).observe(
    document.querySelector(".batch [role=progressbar]"), { attributes: true, attributeFilter: ["aria-valuetext"] });
}"""
GROUP_COUNTS = """(wanted) => JSON.stringify(wanted) === JSON.stringify(
  [...document.querySelectorAll(".failures tbody .number")].map((node) => node.textContent))"""


async def look_for_items(visitor: Visitor) -> None:
    """Pages through the items of the mixed batch, searches them, and opens one."""
    page = visitor.page
    rows = page.locator(".items tbody tr")
    await page.wait_for_function("() => document.querySelectorAll('.items tbody tr').length === 50")
    await page.get_by_role("link", name="Next", exact=True).click()
    await page.wait_for_function("() => document.querySelectorAll('.items tbody tr').length === 10")
    await page.get_by_role("link", name="First", exact=True).click()
    await page.wait_for_function("() => document.querySelectorAll('.items tbody tr').length === 50")
    await page.get_by_label("Key begins with").fill("paper/1")
    await page.get_by_label("Key begins with").press("Enter")
    await page.wait_for_function("() => document.querySelectorAll('.items tbody tr').length === 10")
    await page.get_by_label("Error type").fill("Wrong")
    await page.get_by_label("Error code").fill("missing")
    await page.get_by_label("Error code").press("Enter")
    await page.wait_for_function("() => document.querySelectorAll('.items tbody tr').length === 1")
    await rows.get_by_role("link").click()
    dialog = page.get_by_role("dialog", name="paper/17")
    await dialog.get_by_text("nothing in 17").first.wait_for()
    assert '"code": "missing"' in await dialog.inner_text()
    await visitor.check_accessibility()
    await page.keyboard.press("Escape")
    await dialog.wait_for(state="hidden")
    assert await rows.count() == 1
    assert await page.evaluate("() => location.hash.includes('item=')") is False


async def test_a_keyboard_alone_pauses_resumes_and_cancels(fanout: Deployment, serve: Serving, visit: Visiting) -> None:
    await fanout.start_worker("--concurrency", "2", handlers=SHOWN)
    batch = await fanout.client.submit("test.shown", [{"seconds": 1.0}] * 500, key="long", title="Long")
    visitor = await visit(await serve(), reduced_motion="reduce")
    page = visitor.page
    await visitor.open()
    await visitor.until(".batches tbody tr", "Long")
    await page.keyboard.press("Tab")
    assert await focused(visitor) == "Skip to content"
    await page.keyboard.press("Enter")
    await walk_to(visitor, "Long")
    await page.keyboard.press("Enter")
    await visitor.state("processing")
    await walk_to(visitor, "Pause")
    await page.keyboard.press("Space")
    await visitor.state("paused")
    await visitor.until("#announcer", "Paused")
    assert await focused(visitor) == "Resume"
    await page.keyboard.press("Enter")
    await visitor.state("processing")
    await walk_to(visitor, "Cancel…")
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Cancel this batch?")
    await dialog.wait_for()
    await visitor.check_accessibility()
    await page.keyboard.press("Escape")
    await dialog.wait_for(state="hidden")
    assert await focused(visitor) == "Cancel…"
    await page.keyboard.press("Enter")
    await page.keyboard.type("the wrong input")
    await page.keyboard.press("Enter")
    await visitor.state("cancelled")
    await visitor.until(".notice", "the wrong input")
    status = await closed(batch)
    assert status.reason == "the wrong input"
    await visitor.until(".actions button", re.compile(r"Retry \d+ cancelled"))
    await check_that_cancelled_items_are_no_work(visitor, status)


async def check_that_cancelled_items_are_no_work(visitor: Visitor, status: Status) -> None:
    await visitor.until("#timeline-text", re.compile(r"^500 settled \(\d+ cancelled\) in .*on average"))
    speed = re.fullmatch(r"([\d.]+)/(s|min)", await visitor.text(".speed"))
    assert speed is not None
    assert status.started_at is not None
    assert status.closed_at is not None
    taken = (status.closed_at - status.started_at).total_seconds() / (1 if speed[2] == "s" else 60)
    assert float(speed[1]) * taken == pytest.approx(status.completed, rel=0.05)


async def focused(visitor: Visitor) -> str:
    found: str = await visitor.page.evaluate("() => document.activeElement.innerText.trim()")
    return found


async def walk_to(visitor: Visitor, name: str) -> None:
    """Goes on with the Tab key until something is reached, which is seen to have the focus."""
    for _ in range(40):
        await visitor.page.keyboard.press("Tab")
        if await focused(visitor) == name:
            outline = await visitor.page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
            assert outline == "solid"
            return
    raise AssertionError(f"the Tab key does not reach {name}")


ATTACK = '<img src=x onerror="window.__pwned=1"><script>window.__pwned=1</script></script>'
TURNED = "invoice\u202efdp.exe\u200b"
LONG_KEY = "ÿ" * 200


async def test_hostile_texts_are_shown_and_never_run(fanout: Deployment, serve: Serving, visit: Visiting) -> None:
    await fanout.start_worker(handlers=SHOWN)
    fails = {"raises": ATTACK[:60], "message": f"{ATTACK}\n\u202e line two \x07"}
    others = [Item({"raises": f"Other{number}"}, f"other/{number}") for number in range(9)]
    items = [Item(fails, ATTACK), Item({"returns": {ATTACK: 12345678901234567890}}, TURNED), Item(fails, LONG_KEY)]
    batch = await fanout.client.submit(
        "test.shown", [*items, *others], key=f"{ATTACK} {TURNED}", title=f"{ATTACK} {TURNED}"
    )
    await closed(batch)
    for options in ({"viewport": NARROW, "color_scheme": "dark"}, {}):
        visitor = await visit(await serve(), **options)
        page = visitor.page
        await page.add_init_script("addEventListener('securitypolicyviolation', () => { window.__refused = true; })")
        await visitor.open()
        await visitor.until(".batches tbody tr", ATTACK)
        assert await visitor.overflow() == 0
        bar = page.locator(".batches").get_by_role("progressbar")
        assert await bar.get_attribute("aria-label") == f"Progress of {ATTACK} invoiceU+202Efdp.exeU+200B"
        await page.locator(".batches .name").click()
        await visitor.state("completed_with_failures")
        await visitor.press("Show all 10")
        assert await page.locator(".failures tbody tr").count() == 10
        await page.locator(".items tbody tr").nth(2).wait_for()
        assert ATTACK in await visitor.text("h1")
        assert "U+202E" in await visitor.text("h1")
        assert await page.title() == f"{ATTACK} invoiceU+202Efdp.exeU+200B · Fanout"
        assert await visitor.overflow() == 0
        if options:
            await visitor.check_accessibility()
        await page.locator(".items").get_by_role("link", name="invoice").click()
        await visitor.until("dialog pre", "12345678901234567890")
        assert await visitor.text("dialog h2") == "invoiceU+202Efdp.exeU+200B"
        await page.get_by_role("button", name="Close").click()
        await page.locator(".items .name").nth(0).click()
        await visitor.until("dialog pre", "line two U+0007")
        assert ATTACK in await visitor.text("dialog h2")
        assert await visitor.overflow() == 0
        assert await page.evaluate("() => [window.__pwned, window.__refused]") == [None, None]
        assert await page.locator("img[src=x], main script").count() == 0


async def test_a_token_is_asked_for_and_ends_with_the_session(
    fanout: Deployment, serve: Serving, visit: Visiting
) -> None:
    batch_id = await add_batch(fanout.client.store, 3, "guarded")
    visitor = await visit(await serve(token="correct-horse"))
    page = visitor.page
    await visitor.open(f"#/batches/{batch_id}")
    token = page.get_by_label("Token")
    await token.fill("wrong")
    await token.press("Enter")
    await visitor.until("#token-fault", "That is not this server's token.")
    await visitor.check_accessibility()
    assert visitor.complaints.pop().startswith(
        "error: Failed to load resource: the server responded with a status of 401"
    )
    await token.fill("correct-horse")
    await visitor.press("Sign in")
    await visitor.state("processing")
    await visitor.until("#connection", "Live")
    await page.route("**/session", lambda route: route.abort())
    await visitor.press("Sign out")
    await visitor.until(".notice", "You are still signed in. The server cannot be reached.")
    assert "ERR_FAILED" in visitor.complaints.pop()
    await page.unroute("**/session")
    await visitor.press("Sign out")
    await token.wait_for()
    await eventually(lambda: nobody_reads(fanout))


async def nobody_reads(fanout: Deployment) -> bool:
    return fanout.client.hub.readers == 0


async def test_a_hidden_page_holds_no_connection_and_what_cuts_it_off_is_told(
    fanout: Deployment, serve: Serving, visit: Visiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "STALE_SECONDS", 0.3)
    batch_id = await add_batch(fanout.client.store, 3, "quiet")
    address = await serve()
    async with Line("127.0.0.1", int(address.rpartition(":")[2])) as line:
        visitor = await visit(f"http://{line.address}")
        page = visitor.page
        await visitor.open(f"#/batches/{batch_id}")
        await visitor.until("#connection", "Live")
        await page.evaluate(HIDE, True)
        await eventually(lambda: nobody_reads(fanout))
        await fanout.client.store.pause_batch(batch_id)
        await page.evaluate(HIDE, False)
        await visitor.state("paused")
        await fanout.pool.execute("alter table fanout.batches rename to not_to_be_read")
        await visitor.until("#connection", "The figures are old: the database does not answer")
        await fanout.pool.execute("alter table fanout.not_to_be_read rename to batches")
        await visitor.until("#connection", "Live")
        line.cut()
        await visitor.until("#connection", "Reconnecting…")
        line.restore()
        await visitor.until("#connection", "Live")
        await fanout.client.store.cancel_batch(batch_id, None)
        await visitor.until(".items tbody tr .message", re.compile("^Cancelled$"))
        await visitor.open(f"#/batches/{uuid4()}")
        await visitor.until(".notice", "no batch")
        visitor.complaints.clear()


HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""

READ = """(url) => {
  window.heard = [];
  window.opened = 0;
  const source = new EventSource(url);
  source.onopen = () => { window.opened += 1; };
  for (const kind of ["event", "closed", "reset"]) {
    source.addEventListener(kind, (message) => window.heard.push(
      { kind, id: message.lastEventId, of: JSON.parse(message.data).kind }));
  }
  source.onerror = () => { window.ended = source.readyState === EventSource.CLOSED; };
}"""


async def test_an_event_source_hears_every_failure_once_across_cut_lines(
    fanout: Deployment, serve: Serving, visit: Visiting
) -> None:
    await fanout.start_worker("--concurrency", "5", handlers=SHOWN)
    payloads = [{"seconds": 0.3, **({"raises": "Wrong"} if number % 5 == 0 else {})} for number in range(200)]
    for payload in payloads[180:]:
        payload["waits_for"] = str(gate(fanout, 0))
    batch = await fanout.client.submit("test.shown", payloads, key="heard")
    address = await serve()
    async with Line("127.0.0.1", int(address.rpartition(":")[2])) as line:
        visitor = await visit(f"http://{line.address}")
        page = visitor.page
        await visitor.open("health")
        await page.evaluate(READ, f"/batches/{batch.batch_id}/events")
        for opened in (1, 2, 3):
            await page.wait_for_function("(count) => window.opened >= count", arg=opened)
            await page.wait_for_function("(count) => window.heard.length >= count", arg=10 * opened)
            line.reset_all()
        gate(fanout, 0).touch()
        await page.wait_for_function("() => window.ended === true")
        heard = await page.evaluate("() => window.heard")
        assert await page.evaluate("() => window.opened") >= 4
        visitor.complaints.clear()
    assert [each["of"] for each in heard].count("failed") == 40
    assert [each["kind"] for each in heard].count("closed") == 1
    assert heard[-1]["kind"] == "closed"
    ids = [int(each["id"]) for each in heard]
    assert ids == list(range(1, len(ids) + 1))
    await asyncio.wait_for(batch.wait(), 60)
