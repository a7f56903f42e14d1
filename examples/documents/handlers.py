"""The handler `document.extract`: `fanout submit document.extract --glob '/data/papers/*.pdf'`."""

from datetime import timedelta

from examples.documents.extract import extract_document
from examples.documents.models import Document, Extract
from fanout import Context, handler


@handler("document.extract", timeout=timedelta(minutes=10), run_in="thread")
def extract(document: Document, ctx: Context) -> Extract:
    """Text and plain facts of one file. Changes nothing, so running it twice does no harm."""
    found = extract_document(document.path)
    ctx.logger.info("extracted %d words from a %s file", found.words, found.format)
    return found
