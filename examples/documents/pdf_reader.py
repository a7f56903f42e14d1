"""Text and facts of a PDF, by pypdf, with limits that a malicious file cannot get past."""

import io
import logging
import re
import time
from pathlib import Path

from pypdf import PdfReader
from pypdf.errors import DependencyError
from pypdf.generic import DictionaryObject

from examples.documents.models import Content
from examples.documents.refusals import refuse

PAGES_LIMIT = 2_000
SECONDS_LIMIT = 60.0
TAIL_BYTES = 2_048
FACTS = {
    "/Author": "author",
    "/Subject": "subject",
    "/Keywords": "keywords",
    "/Creator": "creator",
    "/Producer": "producer",
    "/CreationDate": "created",
    "/ModDate": "modified",
}
DATE = re.compile(r"D:(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?")
START_OF_TABLE = re.compile(rb"startxref\s+(\d{1,12})")

# It logs each flaw that it works around, thousands of lines for one bad file.
logging.getLogger("pypdf").setLevel(logging.CRITICAL)


def read_pdf(path: Path, data: bytes) -> Content:
    """The text of all pages up to a limit of pages and time; a page that cannot be read is named in a note.

    Raises PermanentError with the code encrypted, truncated, damaged or empty.
    """
    if not _has_end(data):
        raise refuse("truncated", path, "ends too early: the last part of this PDF is missing")
    reader = _open(path, data)
    count, promised = _count_pages(path, reader)
    texts, notes = _read_pages(reader, count)
    if promised > count:
        notes.insert(0, f"the file is damaged: it names {promised:,} pages, of which {count:,} can be found")
    if not texts:
        raise refuse("damaged", path, f"is a damaged PDF: none of its {count} pages can be read")
    facts = _facts(reader)
    title = facts.pop("title", None)
    return Content(text="\n\n".join(texts), title=title, pages=count, facts=facts, notes=notes)


def _has_end(data: bytes) -> bool:
    if b"%%EOF" in data.rstrip(b"\x00\t\n\r ")[-TAIL_BYTES:]:
        return True
    # Something may have been appended to a whole file. The first part of one made for the web says 0 here.
    starts = [int(found.group(1)) for found in START_OF_TABLE.finditer(data)]
    return bool(starts) and 0 < starts[-1] < len(data)


def _open(path: Path, data: bytes) -> PdfReader:
    try:
        reader = PdfReader(io.BytesIO(data))
        locked = reader.is_encrypted and not reader.decrypt("")
    except (MemoryError, DependencyError):
        raise
    except NotImplementedError:
        raise refuse("encrypted", path, "is encrypted in a way that only its maker's programs can open") from None
    # Beside its own errors pypdf raises nearly all that Python knows: RecursionError, KeyError, TypeError …
    except Exception as error:
        raise refuse("truncated", path, _no_structure(error)) from error
    if locked:
        raise refuse("encrypted", path, "is protected: it needs a password to be opened")
    return reader


def _count_pages(path: Path, reader: PdfReader) -> tuple[int, int]:
    """How many pages there are, and how many there should be."""
    try:
        count = len(reader.pages)
        tree = reader.root_object["/Pages"].get_object()
        found = tree.get("/Count") if isinstance(tree, DictionaryObject) else None
    except (MemoryError, DependencyError):
        raise
    except Exception as error:
        raise refuse("truncated", path, _no_structure(error)) from error
    if count == 0 and found == 0:
        raise refuse("empty", path, "is a PDF without a single page")
    if count == 0:
        raise refuse("truncated", path, "is cut off or broken: none of its pages can be found")
    return count, found if isinstance(found, int) else count


def _no_structure(error: Exception) -> str:
    return f"is cut off or broken: its pages cannot be found ({type(error).__name__})"


def _read_pages(reader: PdfReader, count: int) -> tuple[list[str], list[str]]:
    texts: list[str] = []
    notes: list[str] = []
    deadline = time.thread_time() + SECONDS_LIMIT
    for number in range(min(count, PAGES_LIMIT)):
        if time.thread_time() > deadline:
            notes.append(f"reading stopped after {SECONDS_LIMIT:g} s; only {number} of {count} pages were read")
            break
        try:
            texts.append(reader.pages[number].extract_text())
        except (MemoryError, DependencyError):
            raise
        except Exception as error:
            notes.append(f"page {number + 1} could not be read ({type(error).__name__})")
    if count > PAGES_LIMIT:
        notes.insert(0, f"only the first {PAGES_LIMIT:,} of {count:,} pages were read")
    return texts, notes


def _facts(reader: PdfReader) -> dict[str, str]:
    try:
        stored = {str(name): str(value) for name, value in (reader.metadata or {}).items()}
    except MemoryError:
        raise
    except Exception:
        return {}
    facts = {name: _date(stored[key]) for key, name in FACTS.items() if stored.get(key, "").strip()}
    return facts | ({"title": stored["/Title"]} if stored.get("/Title", "").strip() else {})


def _date(value: str) -> str:
    found = DATE.match(value)
    if found is None:
        return value
    parts = [part for part in found.groups() if part]
    day, clock = "-".join(parts[:3]), ":".join(parts[3:])
    return f"{day}T{clock}" if clock else day
