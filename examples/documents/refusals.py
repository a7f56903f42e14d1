"""The reasons why a file can never be extracted, in words for the person who has to look at it."""

from pathlib import Path

from fanout.errors import PermanentError

NAME_CHARACTERS = 120


def refuse(code: str, path: Path, reason: str) -> PermanentError:
    """The error for a file that no retry will ever make readable."""
    return PermanentError(f"{shown(path)} {reason}", code=code)


def shown(path: Path) -> str:
    """The file's name as text that can be printed and stored, whatever bytes it is made of."""
    name = str(path.name or path).encode("utf-8", "replace").decode()
    return "".join(character if character.isprintable() else "?" for character in name)[:NAME_CHARACTERS]
