"""Prints the papers of the demo: `python -m examples.documents.make_papers`. Each run gives the same bytes.

Most are whole; those in EXPECTED_FAILURES are spoiled here on purpose, each in its own way.
"""

import sys
from pathlib import Path

from examples.documents.papers import PAPERS
from examples.documents.printing_pdf import lock, print_pdf
from examples.documents.printing_text import print_html, print_markdown, print_text
from examples.documents.studies import Study
from examples.documents.studies_de import STUDIES as GERMAN
from examples.documents.studies_en import STUDIES as ENGLISH
from examples.documents.studies_zh import STUDIES as CHINESE

PASSWORD = "spring"
WHOLE_SHARE = 0.6
YEARBOOK = "yearbook-of-small-studies.pdf"
# Says utf-8 and is windows-1252, as pages do that were saved again by an old editor.
WRONG_ENCODING = {"briefe-an-die-redaktion.html": ("utf-8", "windows-1252")}
OTHER_ENCODING = {"lao-zhaopian.html": ("gb18030", "gb18030")}


def make_papers(folder: Path) -> list[Path]:
    """Writes all papers into the folder, over those of an earlier run, and leaves other files alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for language, studies in (("en", ENGLISH), ("de", GERMAN), ("zh", CHINESE)):
        for study in studies:
            (folder / study.name).write_bytes(_printed(study, language))
    bound = [study for study in ENGLISH if study.name.endswith((".md", ".txt"))]
    (folder / YEARBOOK).write_bytes(print_pdf(bound, "en", "Yearbook of Small Studies"))
    (folder / "field-notes-blank.txt").write_bytes(b"")
    return sorted(folder.iterdir())


def _printed(study: Study, language: str) -> bytes:
    suffix = Path(study.name).suffix
    if study.name == "ferry-timetable-saved.pdf":
        return print_html(study, language, "utf-8").encode()
    if suffix == ".pdf":
        return _spoiled(study.name, print_pdf([study], language, study.title))
    if suffix == ".html":
        encodings = WRONG_ENCODING | OTHER_ENCODING
        declared, used = encodings.get(study.name, ("utf-8", "utf-8"))
        return print_html(study, language, declared).encode(used)
    return (print_markdown if suffix == ".md" else print_text)(study, language).encode()


def _spoiled(name: str, whole: bytes) -> bytes:
    if name == "reading-room-survey-cut.pdf":
        return whole[: int(len(whole) * WHOLE_SHARE)]
    return lock(whole, PASSWORD) if name == "board-minutes-locked.pdf" else whole


def main() -> None:
    """Writes the papers into the folder beside this file, or into the one that is named."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PAPERS
    papers = make_papers(folder)
    print(f"{len(papers)} papers, {sum(paper.stat().st_size for paper in papers) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
