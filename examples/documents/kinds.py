"""Judges what a file is: by its first bytes, and by its name only where these leave it open."""

import codecs
import re
from pathlib import Path

from examples.documents.models import Format
from examples.documents.refusals import refuse

HEAD_BYTES = 4096
CONTROLS_PER_THOUSAND = 10

SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "a gzip-compressed file"),
    (b"BZh", "a bzip2-compressed file"),
    (b"\xfd7zXZ\x00", "an xz-compressed file"),
    (b"\x28\xb5\x2f\xfd", "a zstd-compressed file"),
    (b"PK\x03\x04", "a ZIP archive (Office documents and e-books are such archives)"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office document"),
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"II*\x00", "a TIFF image"),
    (b"MM\x00*", "a TIFF image"),
    (b"RIFF", "an image, sound or film"),
    (b"OggS", "a sound file"),
    (b"ID3", "a sound file"),
    (b"\x7fELF", "a program"),
    (b"MZ\x90\x00", "a program"),
    (b"\xca\xfe\xba\xbe", "a program"),
    (b"SQLite format 3\x00", "a database"),
)
NAMED: dict[str, Format] = {
    ".pdf": "pdf",
    ".htm": "html",
    ".html": "html",
    ".xhtml": "html",
    ".md": "markdown",
    ".markdown": "markdown",
    ".txt": "text",
}
SPOKEN: dict[Format, str] = {
    "pdf": "a PDF",
    "html": "a web page",
    "markdown": "a Markdown file",
    "text": "plain text",
}
BYTE_ORDER_MARKS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
WEB_PAGE = re.compile(rb"(?:<\?xml|<!doctype\s+html|<html|<head|<body)[\s>]", re.IGNORECASE)
HTML_ROOT = re.compile(rb"<!doctype\s+html|<html[\s>]", re.IGNORECASE)
COMMENT = re.compile(rb"\s*<!--.*?-->", re.DOTALL)
CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b"))


def judge(path: Path, data: bytes) -> tuple[Format, list[str]]:
    """The format of a file's content, and a note if its name says another.

    Raises PermanentError `not_a_document` for anything that holds no text, and for a file that is named .pdf
    but is none.
    """
    named = NAMED.get(path.suffix.lower())
    found = _by_content(path, data, named)
    if named == "pdf" and found != "pdf":
        raise refuse("not_a_document", path, f"is named {path.suffix} but is {SPOKEN[found]}")
    if named is not None and named != found:
        return found, [f"the file is named {path.suffix} but is {SPOKEN[found]}"]
    return found, []


def byte_order_mark(data: bytes) -> tuple[bytes, str] | None:
    """The mark that a file starts with and the encoding that it stands for."""
    return next((mark for mark in BYTE_ORDER_MARKS if data.startswith(mark[0])), None)


def _by_content(path: Path, data: bytes, named: Format | None) -> Format:
    mark = byte_order_mark(data)
    if mark is not None and mark[1] != "utf-8":
        _expect_wide_text(path, data[len(mark[0]) :], mark[1])
        return named if named in ("html", "markdown") else "text"
    head = data[len(mark[0]) if mark else 0 :][:HEAD_BYTES].lstrip()
    if head.startswith(b"%PDF-") or (named == "pdf" and b"%PDF-" in head[:1024]):
        return "pdf"
    _expect_text(path, data)
    if _is_web_page(head):
        return "html"
    return named if named in ("html", "markdown") else "text"


def _expect_text(path: Path, data: bytes) -> None:
    for signature, what in SIGNATURES:
        if data.startswith(signature) and _has_controls(data[:HEAD_BYTES]):
            raise refuse("not_a_document", path, f"is {what}, not a document with a text")
    if _has_controls(data):
        raise refuse("not_a_document", path, "holds binary data, not a text")


def _expect_wide_text(path: Path, data: bytes, encoding: str) -> None:
    # Two bytes are a weak sign: programs and sounds start with them, too.
    text = data[:HEAD_BYTES].decode(encoding, "replace")
    strange = sum(not character.isprintable() and not character.isspace() for character in text)
    if 10 * (strange + text.count("\N{REPLACEMENT CHARACTER}")) > len(text):
        raise refuse("not_a_document", path, "holds binary data, not a text")


def _has_controls(data: bytes) -> bool:
    controls = len(data) - len(data.translate(None, CONTROLS))
    if controls * 1000 <= len(data) * CONTROLS_PER_THOUSAND:
        return False
    return controls * 10 > len(data) or b"\0" in data or not _is_utf8(data)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_web_page(head: bytes) -> bool:
    while comment := COMMENT.match(head):
        head = head[comment.end() :]
    head = head.lstrip()
    start = WEB_PAGE.match(head)
    if start is None:
        return False
    return not start.group().startswith(b"<?xml") or HTML_ROOT.search(head[:1024]) is not None
