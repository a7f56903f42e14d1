"""Text, title and meta facts of a web page."""

import re
import time
from html.parser import HTMLParser
from pathlib import Path

from examples.documents.encodings import decode
from examples.documents.models import Content

SECONDS_LIMIT = 60.0
DECLARATION_BYTES = 2048
FACT_NAMES = frozenset({"author", "date", "description", "keywords", "generator"})
HIDDEN = frozenset({"script", "style"})
HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
BLOCKS = HEADINGS | {"address", "article", "aside", "blockquote", "body", "caption", "div", "dl", "fieldset"}
BLOCKS |= {"figcaption", "figure", "footer", "form", "header", "main", "nav", "ol", "p", "pre", "section"}
BLOCKS |= {"table", "ul"}
LINES = frozenset({"br", "dd", "dt", "hr", "li", "option", "tr"})
DECLARED = re.compile(
    rb"""<meta\b[^>]{0,300}?charset\s*=\s*["']?\s*([A-Za-z0-9._:-]+)"""
    rb"""|^\s*<\?xml\b[^>]{0,200}?encoding\s*=\s*["']([A-Za-z0-9._:-]+)""",
    re.IGNORECASE,
)


class OutOfTime(Exception):
    """The page takes too long; what was read so far is kept."""


class PageReader(HTMLParser):
    """Collects what a reader of the page would see."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self.title: list[str] = []
        self.facts: dict[str, str] = {}
        self._hidden = False
        self._in_title = False
        self._title_done = False
        self._preformatted = 0
        self._deadline = time.thread_time() + SECONDS_LIMIT

    def updatepos(self, i: int, j: int) -> int:
        """Called by the parser at each step; line numbers are of no use here, but the time is.

        The parser needs quadratic time for some malformed input.
        """
        if time.thread_time() > self._deadline:
            raise OutOfTime
        return j

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Opens lines and blocks, and takes notice of meta facts."""
        self._hidden = tag in HIDDEN
        self._in_title = tag == "title" and not self._title_done
        if tag == "meta":
            self._note_fact(dict(attrs))
        if tag == "pre":
            self._preformatted += 1
        self._separate(tag)

    def handle_endtag(self, tag: str) -> None:
        """Closes lines and blocks."""
        self._hidden = False
        if tag == "title":
            self._in_title = False
            self._title_done = self._title_done or bool(self.title)
        if tag == "pre":
            self._preformatted = max(0, self._preformatted - 1)
        self._separate(tag)

    def handle_data(self, data: str) -> None:
        """Keeps what is visible; the title is not part of the text."""
        if self._in_title:
            self.title.append(data)
        elif not self._hidden:
            self.pieces.append(data if self._preformatted else _flat(data))

    def _separate(self, tag: str) -> None:
        if tag in BLOCKS:
            self.pieces.append("\n\n")
        elif tag in LINES:
            self.pieces.append("\n")
        elif tag in ("td", "th"):
            self.pieces.append(" ")

    def _note_fact(self, attributes: dict[str, str | None]) -> None:
        name = (attributes.get("name") or "").lower()
        if name in FACT_NAMES:
            self.facts.setdefault(name, attributes.get("content") or "")


def read_html(path: Path, data: bytes) -> Content:
    """The visible text of a page, well formed or not. Scripts and styles are left out."""
    decoded = decode(data, declared_encoding(data))
    reader = PageReader()
    notes = decoded.notes
    try:
        reader.feed(decoded.text)
        reader.close()
    except OutOfTime:
        notes = [*notes, f"reading stopped after {SECONDS_LIMIT:g} s; the rest of the page is missing"]
    # The parser gives up by assertion on some malformed declarations.
    except AssertionError:
        notes = [*notes, "the page is malformed; the rest of it is missing"]
    return Content(
        text=_without_margins("".join(reader.pieces)),
        title="".join(reader.title[:100]),
        encoding=decoded.encoding,
        facts=reader.facts,
        notes=notes,
    )


def declared_encoding(data: bytes) -> str | None:
    """What the page says about its own encoding, true or not."""
    found = DECLARED.search(data[:DECLARATION_BYTES])
    if found is None:
        return None
    return (found.group(1) or found.group(2)).decode("ascii")


def _flat(data: str) -> str:
    return re.sub(r"\s+", " ", data)


def _without_margins(text: str) -> str:
    lines = (line.strip(" ") if line.startswith(" ") else line for line in text.split("\n"))
    return "\n".join(lines)
