"""What goes into an extraction and what comes out of it."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, field_validator

Format = Literal["pdf", "html", "markdown", "text"]


class Document(BaseModel):
    """A file to read; the path is absolute, as worker and caller need not share a working folder."""

    path: Path

    @field_validator("path")
    @classmethod
    def _is_absolute(cls, path: Path) -> Path:
        if not path.is_absolute():
            raise ValueError("the path must be absolute")
        return path


class Content(BaseModel):
    """What a reader of one format found, before it is tidied, counted and cut to size."""

    text: str
    title: str | None = None
    pages: int | None = None
    encoding: str | None = None
    facts: dict[str, str] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)


class Extract(BaseModel):
    """The text and the plain facts of one document; holds no character that PostgreSQL cannot store.

    `words` and `characters` count the whole text, even where `text` was cut to fit into a result; a note says
    so then. A Chinese or Japanese character counts as a word. `pages` is for PDFs, `encoding` for all others.
    """

    format: Format
    title: str | None
    language: str | None
    pages: int | None
    words: int
    characters: int
    encoding: str | None
    facts: dict[str, str]
    notes: list[str]
    text: str
