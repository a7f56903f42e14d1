"""Prints a study as a web page, as Markdown, or as plain text."""

import html
import textwrap
import unicodedata

from examples.documents.studies import HEADINGS, Study

LINE_WIDTH = 78
STYLE = "body { font-family: serif; max-width: 42em; margin: 3em auto } td, th { padding: .2em 1em }"


def print_html(study: Study, language: str, declared: str) -> str:
    """A web page that declares an encoding; whether it is written in that one is up to the caller."""
    sections = "\n".join(
        f"<h2>{html.escape(heading)}</h2>\n<p>{html.escape(body)}</p>"
        for heading, body in zip(HEADINGS[language], study[4:7], strict=True)
    )
    head, *rows = (row.split("|") for row in study.table)
    table = "\n".join([_row("th", head), *(_row("td", row) for row in rows)])
    return (
        f'<!DOCTYPE html>\n<html lang="{language}">\n<head>\n<meta charset="{declared}">\n'
        f"<title>{html.escape(study.title)}</title>\n"
        f'<meta name="author" content="{html.escape(study.authors)}">\n<style>{STYLE}</style>\n'
        "</head>\n<body>\n"
        f"<h1>{html.escape(study.title)}</h1>\n<p><em>{html.escape(study.authors)}</em><br>"
        f"{html.escape(study.published)}</p>\n{sections}\n"
        f"<table>\n<caption>{html.escape(study.caption)}</caption>\n{table}\n</table>\n</body>\n</html>\n"
    )


def print_markdown(study: Study, language: str) -> str:
    """Markdown with a table."""
    sections = "\n\n".join(
        f"## {heading}\n\n{body}" for heading, body in zip(HEADINGS[language], study[4:7], strict=True)
    )
    head, *rows = (row.split("|") for row in study.table)
    table = "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])
    head_lines = f"# {study.title}\n\n*{study.authors}*  \n{study.published}"
    return f"{head_lines}\n\n{sections}\n\n**{study.caption}**\n\n{table}\n"


def print_text(study: Study, language: str) -> str:
    """Plain text in lines of a typewriter's width."""
    sections = [
        f"{heading}\n{'-' * _width(heading)}\n{_wrapped(body)}"
        for heading, body in zip(HEADINGS[language], study[4:7], strict=True)
    ]
    cells = [row.split("|") for row in study.table]
    widths = [max(_width(row[column]) for row in cells) for column in range(len(cells[0]))]
    table = "\n".join(
        "   ".join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
    head = f"{study.title}\n{'=' * _width(study.title)}\n\n{study.authors}\n{study.published}"
    return "\n\n".join([head, *sections, study.caption, table]) + "\n"


def _row(cell: str, values: list[str]) -> str:
    return f"<tr>{''.join(f'<{cell}>{html.escape(value)}</{cell}>' for value in values)}</tr>"


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _wrapped(text: str) -> str:
    half = LINE_WIDTH // 2
    if _width(text) < 1.5 * len(text):
        return textwrap.fill(text, LINE_WIDTH)
    return "\n".join(text[start : start + half] for start in range(0, len(text), half))
