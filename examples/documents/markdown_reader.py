"""Text and title of a Markdown file, its marks taken off line by line."""

import re
from pathlib import Path

from examples.documents.encodings import decode
from examples.documents.models import Content

FRONT_MATTER_LINES = 50
LONGEST_LINE = 20_000

HEADING = re.compile(r" {0,3}#{1,6}(?=[ \t]|$)")
UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
FENCE = re.compile(r" {0,3}(?:```|~~~)")
RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$")
TABLE_RULE = frozenset(" \t:|-")
MARGIN = re.compile(r"(?:[ \t]*(?:>|[-*+][ \t]|\d{1,9}[.)][ \t]))+[ \t]*")
FACT = re.compile(r"([A-Za-z][A-Za-z_-]{0,39}):[ \t]+(.+)")
LINK = re.compile(r"!?\[([^\[\]]{0,500})\](?:\([^()\s]{0,2000}(?:[ \t]+[\"'][^\"']{0,300}[\"'])?\)|\[[^\[\]]{0,200}\])")
EMPHASIS = re.compile(r"(\*\*|__|\*|_|~~|`)(?=\S)([^*_~`]{1,1000}?)(?<=\S)\1")


def read_markdown(path: Path, data: bytes) -> Content:
    """The words of the file without its marks; code blocks are kept. The title is the first heading."""
    decoded = decode(data)
    facts, lines = _split_front_matter(decoded.text.replace("\r\n", "\n").split("\n"))
    text, title = _strip_lines(lines)
    return Content(
        text=text,
        title=facts.pop("title", None) or title,
        encoding=decoded.encoding,
        facts=facts,
        notes=decoded.notes,
    )


def _split_front_matter(lines: list[str]) -> tuple[dict[str, str], list[str]]:
    if lines[0].strip() != "---":
        return {}, lines
    head = [line.strip() for line in lines[1:FRONT_MATTER_LINES]]
    if "---" not in head:
        return {}, lines
    end = head.index("---")
    found = (FACT.fullmatch(line) for line in head[:end])
    return {match[1].lower(): match[2].strip("\"' ") for match in found if match}, lines[end + 2 :]


def _strip_lines(lines: list[str]) -> tuple[str, str | None]:
    kept: list[str] = []
    title: str | None = None
    in_code = False
    for line in lines:
        if FENCE.match(line):
            in_code = not in_code
        elif in_code or len(line) > LONGEST_LINE:
            kept.append(line)
        elif UNDERLINE.match(line) and kept and kept[-1].strip():
            title = title or kept[-1]
        else:
            title = title or _heading(line)
            kept.append(_strip_marks(line))
    return "\n".join(kept), title


def _heading(line: str) -> str | None:
    found = HEADING.match(line)
    return _plain(line[found.end() :].strip().rstrip("#").rstrip()) if found else None


def _strip_marks(line: str) -> str:
    if RULE.match(line) or (TABLE_RULE.issuperset(line) and "|" in line and "-" in line):
        return ""
    heading = _heading(line)
    if heading is not None:
        return heading
    margin = MARGIN.match(line)
    body = line[margin.end() :] if margin else line
    if body.lstrip().startswith("|"):
        body = " ".join(cell.strip() for cell in body.strip().strip("|").split("|"))
    return _plain(body)


def _plain(text: str) -> str:
    return EMPHASIS.sub(r"\2", LINK.sub(r"\1", text))
