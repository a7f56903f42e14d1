"""Prints studies as a PDF, and locks one with a password."""

import hashlib
import io
from typing import Any
from xml.sax.saxutils import escape

from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, ByteStringObject
from reportlab.lib import colors
from reportlab.lib.enums import TA_CENTER, TA_JUSTIFY
from reportlab.lib.pagesizes import A5
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.platypus import PageBreak, Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

from examples.documents.studies import HEADINGS, Study

# A font that PDF viewers bring along, so that none needs to be shipped.
CHINESE_FONT = "STSong-Light"
MARGIN = 18 * mm
INK = colors.HexColor("#22313f")


class _NumberedPages(SimpleDocTemplate):  # type: ignore[misc]
    def afterPage(self) -> None:
        self.canv.setFont("Times-Roman", 8)
        self.canv.drawCentredString(A5[0] / 2, 10 * mm, str(self.page))


def print_pdf(studies: list[Study], language: str, title: str) -> bytes:
    """One PDF with all the studies, each on a page of its own; the same bytes each time."""
    target = io.BytesIO()
    document = _NumberedPages(
        target,
        pagesize=A5,
        leftMargin=MARGIN,
        rightMargin=MARGIN,
        topMargin=MARGIN,
        bottomMargin=MARGIN,
        title=title,
        author="; ".join(study.authors for study in studies),
        subject=studies[0].published if len(studies) == 1 else f"{len(studies)} reports",
        invariant=1,
    )
    styles = _styles(language)
    story = [part for study in studies for part in (*_story(study, language, styles), PageBreak())]
    document.build(story[:-1])
    return target.getvalue()


def lock(whole: bytes, password: str) -> bytes:
    """The same PDF, which needs the password to be opened.

    By the old RC4 cipher, as newer ones never give the same bytes twice.
    """
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(whole)))
    digest = hashlib.md5(whole, usedforsecurity=False).digest()
    identifiers = ArrayObject([ByteStringObject(digest), ByteStringObject(digest)])
    # Encrypting uses the first and replaces the second by a random one.
    writer._ID = identifiers
    writer.encrypt(password, algorithm="RC4-128")
    writer._ID = identifiers
    target = io.BytesIO()
    writer.write(target)
    return target.getvalue()


def _styles(language: str) -> dict[str, ParagraphStyle]:
    plain, bold, italic = "Times-Roman", "Times-Bold", "Times-Italic"
    if language == "zh":
        pdfmetrics.registerFont(UnicodeCIDFont(CHINESE_FONT))
        plain = bold = italic = CHINESE_FONT
    shared: dict[str, Any] = {"wordWrap": "CJK"} if language == "zh" else {}
    body = ParagraphStyle("body", fontName=plain, fontSize=9.5, leading=13.5, alignment=TA_JUSTIFY, **shared)
    return {
        "title": ParagraphStyle(
            "title", body, fontName=bold, fontSize=15, leading=19, alignment=TA_CENTER, textColor=INK
        ),
        "authors": ParagraphStyle("authors", body, fontName=italic, alignment=TA_CENTER),
        "published": ParagraphStyle("published", body, fontSize=8.5, alignment=TA_CENTER, textColor=colors.grey),
        "heading": ParagraphStyle(
            "heading", body, fontName=bold, fontSize=11, spaceBefore=9, spaceAfter=3, textColor=INK
        ),
        "body": body,
        "caption": ParagraphStyle("caption", body, fontName=italic, fontSize=8.5, spaceBefore=10, spaceAfter=4),
    }


def _story(study: Study, language: str, styles: dict[str, ParagraphStyle]) -> list[Any]:
    head = [
        Paragraph(escape(study.title), styles["title"]),
        Spacer(1, 3 * mm),
        Paragraph(escape(study.authors), styles["authors"]),
        Paragraph(escape(study.published), styles["published"]),
        Spacer(1, 2 * mm),
    ]
    sections = [
        Paragraph(escape(text), styles[style])
        for pair in zip(HEADINGS[language], study[4:7], strict=True)
        for style, text in zip(("heading", "body"), pair, strict=True)
    ]
    return [
        *head,
        *sections,
        Paragraph(escape(study.caption), styles["caption"]),
        _table(study, styles["body"].fontName),
    ]


def _table(study: Study, font: str) -> Table:
    table = Table([row.split("|") for row in study.table], hAlign="LEFT")
    table.setStyle(
        TableStyle(
            [
                ("FONT", (0, 0), (-1, -1), font, 8.5),
                ("LINEABOVE", (0, 0), (-1, 0), 0.8, INK),
                ("LINEBELOW", (0, 0), (-1, 0), 0.4, INK),
                ("LINEBELOW", (0, -1), (-1, -1), 0.8, INK),
                ("TOPPADDING", (0, 0), (-1, -1), 1.5),
                ("BOTTOMPADDING", (0, 0), (-1, -1), 2.5),
            ]
        )
    )
    return table
