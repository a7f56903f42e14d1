"""Turns bytes into text, whatever encoding they claim to be in."""

import codecs
import re

from examples.documents.kinds import byte_order_mark
from examples.documents.models import Content

# Python knows codecs that are no encodings of texts, or are slow on purpose-made input: only these are
# believed. A browser reads the narrow names as their wider relatives, and so do we.
BELIEVED = {
    "utf-8": "utf-8",
    "ascii": "windows-1252",
    "iso8859-1": "windows-1252",
    "iso8859-2": "iso8859-2",
    "iso8859-5": "iso8859-5",
    "iso8859-7": "iso8859-7",
    "iso8859-9": "windows-1254",
    "iso8859-15": "iso8859-15",
    "cp1250": "windows-1250",
    "cp1251": "windows-1251",
    "cp1252": "windows-1252",
    "cp1253": "windows-1253",
    "cp1254": "windows-1254",
    "koi8-r": "koi8-r",
    "koi8-u": "koi8-u",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "gb18030": "gb18030",
    "big5": "big5",
    "euc_jp": "euc-jp",
    "euc_kr": "euc-kr",
    "shift_jis": "shift-jis",
    "iso2022_jp": "iso-2022-jp",
}
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,39}")
HIGH_RUN = re.compile(rb"[\x80-\xff]+")
SAMPLE_BYTES = 256 * 1024


def decode(data: bytes, declared: str | None = None) -> Content:
    """The text, its encoding, and a note where the declared one was wrong or a guess was needed.

    Never raises. Tried in order: byte order mark, declared 7-bit encodings, valid UTF-8, the declared
    encoding, a guess.
    """
    mark = byte_order_mark(data)
    if mark is not None:
        return _decode_loosely(data[len(mark[0]) :], mark[1], [])
    believed = _believed(declared)
    for encoding in _attempts(data, believed):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        return Content(text=text, encoding=encoding, notes=_complaint(data, declared, believed, encoding))
    guess = _guess(data)
    notes = [_admission(guess)] if declared is None else _complaint(data, declared, believed, guess)
    return _decode_loosely(data, guess, notes)


def _attempts(data: bytes, believed: str | None) -> list[str]:
    if believed is None:
        return ["utf-8"]
    if believed == "iso-2022-jp":
        return [believed, "utf-8"]
    return ["utf-8", believed]


def _believed(declared: str | None) -> str | None:
    if declared is None or not LABEL.fullmatch(declared):
        return None
    try:
        return BELIEVED.get(codecs.lookup(declared).name)
    except LookupError:
        return None


def _complaint(data: bytes, declared: str | None, believed: str | None, found: str) -> list[str]:
    if declared is None or believed == found or data.isascii():
        return []
    if believed is None:
        return [f"declares an encoding that is not known here; read as {found}"]
    return [f"declares the encoding {declared} but is {found}; read as {found}"]


def _admission(guess: str) -> str:
    return f"names no encoding and is not valid UTF-8; read as {guess}, which is a guess"


def _decode_loosely(data: bytes, encoding: str, notes: list[str]) -> Content:
    text = data.decode(encoding, "replace")
    damaged = text.count("\N{REPLACEMENT CHARACTER}")
    if damaged:
        notes = [*notes, f"characters that could not be read and were replaced: {damaged}"]
    return Content(text=text, encoding=encoding, notes=notes)


def _guess(data: bytes) -> str:
    sample = data[:SAMPLE_BYTES]
    if _is_damaged_utf8(sample):
        return "utf-8"
    return "gb18030" if _looks_chinese(sample) else "windows-1252"


def _is_damaged_utf8(sample: bytes) -> bool:
    text = sample.decode("utf-8", "replace")
    damaged = text.count("\N{REPLACEMENT CHARACTER}")
    whole = sum(character > "\x7f" for character in text) - damaged
    return whole > 3 * damaged


def _looks_chinese(sample: bytes) -> bool:
    # In Western texts a high byte stands alone between ASCII letters; in Chinese ones they come in even runs.
    runs = [len(run.group()) for run in HIGH_RUN.finditer(sample)]
    paired = sum(length for length in runs if length % 2 == 0)
    if paired < 0.8 * sum(runs):
        return False
    # The sample may end within a character.
    return sample.decode("gb18030", "replace").count("\N{REPLACEMENT CHARACTER}") <= 1
