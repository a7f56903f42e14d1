"""The form of the made-up studies that the demo's papers are printed from."""

from typing import NamedTuple


class Study(NamedTuple):
    """One short report. All people, places and figures are invented.

    `table` is a head and rows, their cells split by `|`.
    """

    name: str
    title: str
    authors: str
    published: str
    question: str
    method: str
    findings: str
    caption: str
    table: tuple[str, ...]


HEADINGS = {
    "en": ("Question", "What we did", "What we found"),
    "de": ("Frage", "Vorgehen", "Ergebnis"),
    "zh": ("问题", "方法", "结果"),
}
