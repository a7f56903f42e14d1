"""Text and plain facts of one file. Knows nothing of batches: the handlers wrap it."""

from collections.abc import Callable
from pathlib import Path

from examples.documents.encodings import decode
from examples.documents.html_reader import read_html
from examples.documents.kinds import judge
from examples.documents.markdown_reader import read_markdown
from examples.documents.models import Content, Extract, Format
from examples.documents.opening import read_file
from examples.documents.pdf_reader import read_pdf
from examples.documents.refusals import refuse
from examples.documents.tidying import (
    FACTS_LIMIT,
    NOTES_LIMIT,
    clean,
    count_words,
    cut,
    guess_language,
    one_line,
)


def extract_document(path: Path) -> Extract:
    """Reads one file and changes nothing; the same bytes give the same answer.

    Raises PermanentError with one of the codes missing, unreadable, too_large, empty, not_a_document,
    encrypted, truncated and damaged; an OSError of another kind is worth a retry.
    """
    data = read_file(path)
    kind, notes = judge(path, data)
    content = READERS[kind](path, data)
    return _finish(path, kind, content, [*notes, *content.notes])


def _read_text(path: Path, data: bytes) -> Content:
    return decode(data)


READERS: dict[Format, Callable[[Path, bytes], Content]] = {
    "pdf": read_pdf,
    "html": read_html,
    "markdown": read_markdown,
    "text": _read_text,
}


def _finish(path: Path, kind: Format, content: Content, notes: list[str]) -> Extract:
    text = clean(content.text)
    if not text and kind in ("markdown", "text"):
        raise refuse("empty", path, "holds nothing but white space")
    stored = cut(text)
    if not text:
        notes = [*notes, "no text was found; a scan or a page of pictures needs character recognition"]
    if len(stored) < len(text):
        notes = [*notes, f"the text is cut: the first {len(stored):,} of {len(text):,} characters are given"]
    return Extract(
        format=kind,
        title=one_line(content.title or "") or _first_line(text, kind),
        language=guess_language(text),
        pages=content.pages,
        words=count_words(text),
        characters=len(text),
        encoding=content.encoding,
        facts=_short_facts(content.facts),
        notes=[one_line(note) for note in notes[:NOTES_LIMIT]],
        text=stored,
    )


def _first_line(text: str, kind: Format) -> str | None:
    if kind != "text":
        return None
    return one_line(text.partition("\n")[0]) or None


def _short_facts(facts: dict[str, str]) -> dict[str, str]:
    short = {one_line(name): one_line(value) for name, value in list(facts.items())[:FACTS_LIMIT]}
    return {name: value for name, value in short.items() if name and value}
