"""Texts of users as Temporal's Web UI shows them: in Markdown, of which a user's text must not become a part."""

import re

from fanout.logs import printable

SUMMARY_BYTES = 300
"""Temporal documents 400 bytes for a summary."""
# An underscore inside a word is one, and so are most signs that stand alone.
_SPECIAL = re.compile(r"[\\`*\[\]<|~]|&(?=[#\w])|(?<!\w)_|_(?!\w)")
# What Markdown makes a link of although nothing marks it as one.
_LINK = re.compile(r"://|\bwww\.|@", re.IGNORECASE)
# What at the beginning of a line would be a heading, a quotation, a list or a rule.
_START = re.compile(r"^(\s*)(?:([#>+=-])|(\d+)([.)]))")


def code(text: str) -> str:
    """The text as a code span, in which nothing is Markdown, a link or HTML; control characters are escaped."""
    shown = printable(text)
    fence = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    pad = " " if shown[:1] in ("`", " ") or shown[-1:] in ("`", " ") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def summary(text: str) -> str:
    """The text as one line that shows as it is written, cut to what a summary may hold."""
    line = printable(text)
    shown = _as_it_is(line)
    for share in (1, 2, 3):
        if len(shown.encode()) <= SUMMARY_BYTES:
            break
        # What is escaped has up to three times its length.
        kept = line.encode()[: SUMMARY_BYTES // share - 4].decode(errors="ignore")
        shown = _as_it_is(f"{kept}…")
    return shown


def _as_it_is(text: str) -> str:
    if _LINK.search(text):
        return code(text)
    escaped = _SPECIAL.sub(r"\\\g<0>", text)
    return _START.sub(
        lambda found: f"{found[1]}\\{found[2]}" if found[2] else f"{found[1]}{found[3]}\\{found[4]}", escaped
    )
