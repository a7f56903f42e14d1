"""A real browser for the benchmarks that look at the dashboard."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Page, async_playwright

from benchmarks.rig import BenchmarkFailed


@asynccontextmanager
async def browsing() -> AsyncIterator[Page]:
    """A page of the browser that is installed."""
    program = shutil.which("chromium")
    if program is None:
        raise BenchmarkFailed("Debian's package chromium is missing")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield await browser.new_page(locale="en-GB")
        finally:
            await browser.close()
