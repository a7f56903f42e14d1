"""A real browser and a real server for the dashboard's tests, and what the tests look for on its pages."""

import asyncio
import re
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, async_playwright
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from fanout.devstack.children import tied_to_this_process
from fanout.http.serving import Server, listen, make_server
from tests.support import Deployment

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run")
ADDRESS = re.compile(r"DevTools listening on (\S+)")
START_SECONDS = 60
# For a machine with other things to do.
PATIENCE_MILLISECONDS = 90_000
WIDE = {"width": 1_280, "height": 900}
NARROW = {"width": 380, "height": 800}


@contextmanager
def chromium(folder: Path) -> Iterator[str]:
    """Starts the browser that is installed; answers where it takes orders."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("no chromium is installed (apt-get install chromium)")
    log = folder / "chromium.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, *OPTIONS, "--remote-debugging-port=0", f"--user-data-dir={folder / 'profile'}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=tied_to_this_process(signal.SIGKILL),
        )
    try:
        yield _find_address(process, log)
    finally:
        process.kill()
        process.wait()


def _find_address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    give_up = time.monotonic() + START_SECONDS
    while (found := ADDRESS.search(words := log.read_text(errors="replace"))) is None:
        assert process.poll() is None, words
        assert time.monotonic() < give_up, words
        time.sleep(0.02)
    return found[1]


Serving = Callable[..., Awaitable[str]]


@asynccontextmanager
async def servers(fanout: Deployment) -> AsyncIterator[Serving]:
    """Starts servers in the test's process, and answers their addresses."""
    running: list[tuple[Server, asyncio.Task[None]]] = []

    async def serve(token: str | None = None, prefix: str = "") -> str:
        given = None if token is None else SecretStr(token)
        settings = fanout.settings.with_values({"api_token": given, "grace_seconds": 1})
        [listener] = listen("127.0.0.1", 0, settings)
        server = make_server(fanout.client, "127.0.0.1", settings)
        if prefix:
            server.config.app = Starlette(routes=[Mount(prefix, cast(ASGIApp, server.config.app))])
        # `serve` would take the signals of the test's process.
        running.append((server, asyncio.create_task(server._serve([listener]))))
        return f"http://127.0.0.1:{listener.getsockname()[1]}{prefix}"

    try:
        yield serve
    finally:
        for server, task in running:
            server.should_exit = True
            await task


@dataclass
class Visitor:
    """Somebody with a browser, who finds things as people do: by what they are and what stands on them."""

    browser: Browser
    address: str
    page: Page
    complaints: list[str] = field(default_factory=list)

    async def open(self, place: str = "#/") -> None:
        """Goes to a place."""
        await self.page.goto(f"{self.address}/{place}")

    async def press(self, name: str | re.Pattern[str], within: str = "body") -> None:
        """Presses a button."""
        await self.page.locator(within).get_by_role("button", name=name).click()

    async def state(self, state: str) -> None:
        """Waits until the batch that is shown stands in a state."""
        await self.page.locator(f".heading .badge[data-state={state}]").wait_for()

    async def text(self, selector: str) -> str:
        """What stands there."""
        return (await self.page.locator(selector).first.inner_text()).strip()

    async def until(self, selector: str, text: str | re.Pattern[str]) -> None:
        """Waits until a text stands there."""
        await self.page.locator(selector).filter(has_text=text).first.wait_for()

    async def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        script = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
        found: int = await self.page.evaluate(script)
        return found

    async def check_accessibility(self) -> None:
        """Holds what is shown against axe's rules."""
        results = await Axe().run(self.page)
        found = [f"{rule['id']}: {rule['help']}: {_nodes(rule)}" for rule in results.response["violations"]]
        assert found == []


def _nodes(rule: dict[str, Any]) -> list[str]:
    return [f"{node['html'][:200]} {node.get('failureSummary', '')[:300]}" for node in rule["nodes"][:3]]


Visiting = Callable[..., Awaitable[Visitor]]


@asynccontextmanager
async def visitors(endpoint: str) -> AsyncIterator[Visiting]:
    """Makes visitors, each with cookies of their own. At the end nothing of theirs may have gone wrong unasked."""
    made: list[Visitor] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(endpoint)

        async def visit(address: str, **options: Any) -> Visitor:
            context = await browser.new_context(**{"locale": "en-GB", "viewport": WIDE, **options})
            context.set_default_timeout(PATIENCE_MILLISECONDS)
            visitor = Visitor(browser, address, await context.new_page())
            visitor.page.on("pageerror", lambda error: visitor.complaints.append(f"error: {error}"))
            visitor.page.on(
                "console",
                lambda said: visitor.complaints.append(f"{said.type}: {said.text}") if said.type == "error" else None,
            )
            made.append(visitor)
            return visitor

        try:
            yield visit
        finally:
            for visitor in made:
                await visitor.page.context.close()
    complaints = [complaint for visitor in made for complaint in visitor.complaints]
    assert not complaints, complaints
