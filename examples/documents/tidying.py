"""Makes a text fit for storage, counts it, and guesses its language."""

import re

# Written as JSON, no character takes more than three times its UTF-8 bytes: well below a result's 1 MiB.
TEXT_LIMIT_BYTES = 300_000
SHORT_LIMIT = 500
FACTS_LIMIT = 30
NOTES_LIMIT = 30

_BREAKS = {13: "\n", 12: "\n", 11: "\n"}
_REMOVED = dict.fromkeys((*range(9), *range(14, 32), 127))
_TABLE: dict[int, str | None] = {**_REMOVED, **_BREAKS}
_SURROGATE = re.compile("[\ud800-\udfff]")
_EMPTY_LINES = re.compile(r"\n{3,}")

CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(f"[{CJK}\u3040-\u30ff]|[^\\W{CJK}\u3040-\u30ff]+(?:['’-][^\\W{CJK}\u3040-\u30ff]+)*")
_LANGUAGE_SAMPLE = 20_000
_COMMON_WORDS = {
    "en": frozenset(("the", "of", "and", "to", "in", "is", "that", "for", "with", "was", "are", "not", "this", "from")),
    "de": frozenset(
        ("der", "die", "das", "und", "ist", "nicht", "mit", "ein", "eine", "zu", "von", "den", "auf", "für")
    ),
}


def clean(text: str) -> str:
    """The text with line ends made alike and gaps closed, without what a jsonb value cannot hold."""
    text = _SURROGATE.sub("", text.replace("\r\n", "\n")).translate(_TABLE)
    lines = (line.rstrip(" \t\u00a0") for line in text.split("\n"))
    return _EMPTY_LINES.sub("\n\n", "\n".join(lines)).strip()


def one_line(text: str) -> str:
    """A short clean text on one line, for titles, facts and notes."""
    return " ".join(clean(text[: 4 * SHORT_LIMIT]).split())[:SHORT_LIMIT]


def cut(text: str) -> str:
    """The start of the text that may be stored."""
    if 4 * len(text) <= TEXT_LIMIT_BYTES:
        return text
    return text.encode()[:TEXT_LIMIT_BYTES].decode("utf-8", "ignore")


def count_words(text: str) -> int:
    """The number of words; each Chinese or Japanese character is one."""
    return sum(1 for _ in _WORD.finditer(text))


def guess_language(text: str) -> str | None:
    """`zh`, `ja`, `en` or `de` if the start of the text makes it plain, else None."""
    sample = text[:_LANGUAGE_SAMPLE].lower()
    asian = _asian(sample)
    if asian is not None:
        return asian
    words = [word.group() for word in _WORD.finditer(sample)]
    shares = {name: sum(word in common for word in words) for name, common in _COMMON_WORDS.items()}
    best = max(shares, key=shares.__getitem__)
    return best if shares[best] * 14 > len(words) > 0 else None


def _asian(sample: str) -> str | None:
    letters = sum(character.isalpha() for character in sample)
    kana = sum("\u3040" <= character <= "\u30ff" for character in sample)
    han = sum("\u4e00" <= character <= "\u9fff" for character in sample)
    if 5 * (kana + han) <= letters or letters == 0:
        return None
    return "ja" if 10 * kana > han else "zh"
