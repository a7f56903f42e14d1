"""The handler `demo.extract`: `document.extract`, but slow enough to watch and failing on demand."""

import asyncio
from datetime import timedelta

from pydantic import Field
from temporalio.common import RetryPolicy

from examples.documents.extract import extract_document
from examples.documents.models import Document, Extract
from fanout import Context, handler


class DemoDocument(Document):
    """A paper of the demo; its first `fail_first` attempts fail."""

    pause_seconds: float = Field(0.4, ge=0, le=60)
    fail_first: int = Field(0, ge=0, le=4)


@handler(
    "demo.extract",
    timeout=timedelta(minutes=2),
    retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=5),
)
async def extract(document: DemoDocument, ctx: Context) -> Extract:
    """Text and plain facts of one paper.

    Attempts are counted on the item's row, so the failures are not forgotten when the worker is killed.
    """
    await asyncio.sleep(document.pause_seconds)
    if ctx.attempt <= document.fail_first:
        raise ConnectionError("the file server did not answer")
    return await asyncio.to_thread(extract_document, document.path)
