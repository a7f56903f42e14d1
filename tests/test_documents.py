"""Extraction: every format, every refusal, the demo's papers, and files that nobody would call a document."""

import json
import os
import socket
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from pypdf import PdfReader, PdfWriter

from examples.documents import html_reader, pdf_reader
from examples.documents.extract import extract_document
from examples.documents.make_papers import make_papers
from examples.documents.models import Document, Extract
from examples.documents.opening import read_file
from examples.documents.papers import EXPECTED_FAILURES, PAPERS, demo_items
from fanout.errors import PermanentError

SUFFIXES = (".pdf", ".html", ".md", ".txt", ".xhtml", "")
RESULT_LIMIT_BYTES = 1_048_576
PATIENCE_SECONDS = 10.0


def written(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(path: Path) -> PermanentError:
    with pytest.raises(PermanentError) as caught:
        extract_document(path)
    return caught.value


def assert_storable(extract: Extract) -> None:
    text = json.dumps(extract.model_dump(), ensure_ascii=False)
    assert len(text.encode()) < RESULT_LIMIT_BYTES
    assert "\0" not in "".join([extract.text, extract.title or "", *extract.facts.values(), *extract.notes])


@pytest.fixture
def whole_pdf() -> bytes:
    return (PAPERS / "yearbook-of-small-studies.pdf").read_bytes()


def test_a_pdf_gives_text_pages_title_and_facts() -> None:
    found = extract_document(PAPERS / "bees-on-city-roofs.pdf")
    assert (found.format, found.pages, found.language) == ("pdf", 1, "en")
    assert found.title == "Bees on City Roofs: Forage and Honey in a Dense Quarter"
    assert "Lime trees and bramble" in found.text
    assert found.facts["author"] == "Ilse Marrow and Tobin Achterberg"
    assert found.facts["created"].startswith("2000-01-01")
    assert found.words > 150
    assert found.notes == []


def test_a_chinese_pdf_counts_characters_as_words() -> None:
    found = extract_document(PAPERS / "wuding-caiyuan.pdf")
    assert (found.title, found.language) == ("屋顶菜园的收成与邻里关系", "zh")
    assert "小白菜和番茄占了大半" in found.text
    assert found.words > 150


def test_html_gives_what_a_reader_sees(tmp_path: Path) -> None:
    page = (
        "<!doctype html><html><head><title> Two\n words </title><style>p {color: red}</style>"
        "<meta name=author content='A. Writer'><script>var hidden = '<p>no</p>'</script></head><body>"
        "<h1>Head&amp;Tail</h1><p>First<br>line</p><ul><li>one<li>two</ul><pre>a  b</pre></body></html>"
    )
    found = extract_document(written(tmp_path, "page.html", page))
    assert (found.format, found.title, found.facts) == ("html", "Two words", {"author": "A. Writer"})
    assert found.text == "Head&Tail\n\nFirst\nline\n\none\ntwo\n\na  b"


def test_markdown_loses_its_marks(tmp_path: Path) -> None:
    source = (
        "---\ntitle: From the front\nauthor: A. Writer\n---\n# The *Head* #\n\n"
        "> A [link](https://example.org) and **bold** `code`.\n\n"
        "- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```\n# not a heading\n```\n"
    )
    found = extract_document(written(tmp_path, "note.md", source))
    assert (found.format, found.title, found.facts) == ("markdown", "From the front", {"author": "A. Writer"})
    assert found.text == "The Head\n\nA link and bold code.\n\none\ntwo\n\na b\n\n1 2\n\n# not a heading"


def test_markdown_is_named_by_its_first_heading(tmp_path: Path) -> None:
    for heading in ("## Second level", "Second level\n----"):
        found = extract_document(written(tmp_path, "n.md", f"before\n\n{heading}\n\ntext"))
        assert found.title == "Second level"


@pytest.mark.parametrize("name", ["a.txt", "README", "table.csv", "code.py"])
def test_anything_that_reads_as_text_is_text(tmp_path: Path, name: str) -> None:
    found = extract_document(written(tmp_path, name, "First line\r\nSecond, über\r\n"))
    assert (found.format, found.title, found.text) == ("text", "First line", "First line\nSecond, über")
    assert (found.words, found.characters, found.encoding) == (4, 23, "utf-8")


def test_content_decides_before_the_name(tmp_path: Path, whole_pdf: bytes) -> None:
    pdf = extract_document(written(tmp_path, "report.txt", whole_pdf))
    page = extract_document(written(tmp_path, "report.md", "<!-- x -->\n<html><body>seen</body></html>"))
    assert (pdf.format, pdf.notes) == ("pdf", ["the file is named .txt but is a PDF"])
    assert (page.format, page.notes) == ("html", ["the file is named .md but is a web page"])


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "gb18030"])
def test_texts_in_other_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    text = "清晨的公园里聚集着老人" * 3
    assert extract_document(written(tmp_path, "a.txt", text.encode(encoding))).text == text


def test_a_guessed_encoding_is_called_a_guess(tmp_path: Path) -> None:
    found = extract_document(written(tmp_path, "a.txt", "Grüße aus Köln".encode("windows-1252")))
    assert (found.text, found.encoding) == ("Grüße aus Köln", "windows-1252")
    assert "guess" in found.notes[0]


@pytest.mark.parametrize(
    ("declared", "used", "note"),
    [
        ("utf-8", "windows-1252", "declares the encoding utf-8 but is windows-1252"),
        ("iso-8859-1", "utf-8", "declares the encoding iso-8859-1 but is utf-8"),
        ("rot13", "utf-8", "not known"),
        ("unicode_escape", "utf-8", "not known"),
    ],
)
def test_a_wrong_declaration_is_noted(tmp_path: Path, declared: str, used: str, note: str) -> None:
    page = f"<html><head><meta charset={declared}></head><body>schöne Grüße</body></html>"
    found = extract_document(written(tmp_path, "a.html", page.encode(used)))
    assert found.text == "schöne Grüße"
    assert note in found.notes[0]


@pytest.mark.parametrize(
    ("declared", "used"), [("gb2312", "gb18030"), ("iso-2022-jp", "iso-2022-jp"), ("latin1", "latin-1")]
)
def test_a_right_declaration_is_followed_without_a_word(tmp_path: Path, declared: str, used: str) -> None:
    text = "schön" if used == "latin-1" else "公園の日本" if used == "iso-2022-jp" else "清晨公园"
    page = f'<meta http-equiv=Content-Type content="text/html; charset={declared}"><p>{text}'
    found = extract_document(written(tmp_path, "a.html", page.encode(used)))
    assert (found.text, found.notes) == (text, [])


def test_one_damaged_character_does_not_change_the_encoding(tmp_path: Path) -> None:
    found = extract_document(written(tmp_path, "a.txt", "äöü äöü äöü ".encode() + b"\xe4!"))
    assert found.encoding == "utf-8"
    assert "replaced: 1" in found.notes[-1]


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("a.txt", b"", "empty"),
        ("a.pdf", b"", "empty"),
        ("a.md", b" \n\t\r\n", "empty"),
        ("a.txt", "\ufeff \u2003\n".encode(), "empty"),
        ("a.pdf", b"<html><body>log in</body></html>", "not_a_document"),
        ("a.pdf", b"just words", "not_a_document"),
        ("a.txt", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03", "not_a_document"),
        ("a.html", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "not_a_document"),
        ("a.docx", b"PK\x03\x04\x14\x00\x06\x00", "not_a_document"),
        ("a.bin", bytes(range(256)) * 4, "not_a_document"),
        ("a.bin", b"\xff\xfe" + bytes(range(256)) * 4, "not_a_document"),
        ("a.pdf", b"%PDF-1.7\nnothing follows", "truncated"),
        ("a.pdf", b"%PDF-1.7\nno objects\nstartxref\n0\n%%EOF\n", "truncated"),
    ],
)
def test_what_cannot_be_read_is_refused_by_code(tmp_path: Path, name: str, content: bytes, code: str) -> None:
    error = refusal(written(tmp_path, name, content))
    assert error.code == code
    assert str(error).startswith(name)


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-128", "AES-256"])
@pytest.mark.parametrize(("user", "opens"), [("secret", False), ("", True)])
def test_only_a_password_for_opening_locks_a_pdf(tmp_path: Path, algorithm: str, user: str, opens: bool) -> None:
    writer = PdfWriter(clone_from=PdfReader(PAPERS / "bees-on-city-roofs.pdf"))
    writer.encrypt(user, owner_password="owner", algorithm=algorithm)
    path = tmp_path / "locked.pdf"
    writer.write(path)
    if opens:
        assert "Lime trees" in extract_document(path).text
    else:
        assert refusal(path).code == "encrypted"


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9, 0.99])
def test_a_pdf_that_ends_too_early_is_truncated(tmp_path: Path, whole_pdf: bytes, share: float) -> None:
    assert refusal(written(tmp_path, "cut.pdf", whole_pdf[: int(len(whole_pdf) * share)])).code == "truncated"


def test_a_pdf_with_something_after_its_end_is_whole(tmp_path: Path, whole_pdf: bytes) -> None:
    assert extract_document(written(tmp_path, "long.pdf", whole_pdf + b"\x00" * 9000)).pages == 5
    assert extract_document(written(tmp_path, "mail.pdf", whole_pdf + b"-- sent by mail\n" * 900)).pages == 5


def test_pages_that_cannot_be_found_are_noticed(tmp_path: Path, whole_pdf: bytes) -> None:
    lost = whole_pdf.replace(b"/Count 5", b"/Count 8")
    none = whole_pdf.replace(b"/Kids [", b"/Kidz [")
    assert "names 8 pages, of which 5" in extract_document(written(tmp_path, "lost.pdf", lost)).notes[0]
    assert refusal(written(tmp_path, "none.pdf", none)).code == "truncated"


def test_a_pdf_without_pages_is_empty_and_one_without_text_gets_a_note(tmp_path: Path) -> None:
    writer = PdfWriter()
    writer.write(tmp_path / "none.pdf")
    assert refusal(tmp_path / "none.pdf").code == "empty"
    writer.add_blank_page(200, 200)
    writer.write(tmp_path / "scan.pdf")
    assert "character recognition" in extract_document(tmp_path / "scan.pdf").notes[0]


def test_missing_and_unreadable_files_say_so(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    written(tmp_path, "a.txt", "text")
    names = ("nothing.pdf", "circle", "a.txt/below", "n" * 300, "a\0b", "\ud800")
    errors = [refusal(tmp_path / name) for name in names]
    assert [error.code for error in errors] == ["missing"] * len(names)
    assert all(str(error).encode() for error in errors)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_forbidden_file_is_unreadable(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", "text")
    path.chmod(0)
    assert refusal(path).code == "unreadable"


def test_folders_pipes_sockets_and_devices_are_no_documents(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pdf")
    with socket.socket(socket.AF_UNIX) as listening:
        # The length of a socket's path is limited, that of the test's folder is not.
        with_short_name = Path(f"/tmp/fanout-{os.getpid()}.sock")
        listening.bind(str(with_short_name))
        try:
            paths = (tmp_path, tmp_path / "pipe.pdf", with_short_name, Path("/dev/zero"))
            assert [refusal(path).code for path in paths] == ["not_a_document"] * 4
        finally:
            with_short_name.unlink()


def test_a_file_over_the_limit_is_refused_with_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "huge.txt"
    with path.open("wb") as file:
        file.truncate(65 * 1024 * 1024)
    error = refusal(path)
    assert (error.code, str(error)) == ("too_large", "huge.txt is larger than the limit of 64 MiB")


def test_a_file_that_lies_about_its_size_is_read_to_the_limit() -> None:
    with pytest.raises(PermanentError) as caught:
        read_file(Path("/proc/self/status"), limit=100)
    assert caught.value.code == "too_large"


def test_a_relative_path_is_an_invalid_payload() -> None:
    with pytest.raises(ValidationError, match="absolute"):
        Document(path=Path("a.txt"))


def test_a_long_text_is_cut_and_says_how_long_it_was(tmp_path: Path) -> None:
    for unit in ("word ", "да ", "字", "😀", '"\\'):
        found = extract_document(written(tmp_path, "long.txt", unit * 400_000))
        assert_storable(found)
        assert len(json.dumps(found.model_dump()).encode()) < RESULT_LIMIT_BYTES
        assert found.characters > len(found.text)
        assert f"of {found.characters:,} characters" in found.notes[-1]


def test_nothing_that_jsonb_refuses_is_left(tmp_path: Path) -> None:
    page = "<html><title>a&#0;b\ud83d</title><body>x&#xD800;y\0z" + "text " * 50
    found = extract_document(written(tmp_path, "a.html", page.encode("utf-8", "surrogatepass")))
    assert_storable(found)
    found.model_dump_json().encode()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("deep.html", "<div>" * 200_000 + "bottom"),
        ("open.html", "<a " * 200_000),
        ("comments.html", "<!--" * 100_000 + "x"),
        ("sections.html", "<html>" + "<![CDATA[" * 50_000),
        ("entities.html", "<p>" + "&" * 500_000),
        ("script.html", "<html><script>" + "</scrip" * 100_000),
        ("line.html", "<p>" + "x" * 3_000_000),
        ("line.md", "*" * 1_000_000),
        ("spaces.txt", " " * 2_000_000 + "x"),
        ("heading.md", ("#" + " " * 19_000 + "x\n") * 20),
        ("links.md", ("[" * 9_000 + "](" * 5_000 + "\n") * 20),
        ("table.md", ("|" * 19_000 + "x\n") * 20),
        ("margins.md", ("> " * 9_000 + "x\n") * 20),
        ("emphasis.md", ("*a" * 9_000 + "\n") * 20),
        ("words.txt", "a-" * 500_000),
    ],
)
def test_malicious_texts_end_soon(tmp_path: Path, name: str, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_reader, "SECONDS_LIMIT", 1.0)
    started = time.thread_time()
    assert_storable(extract_document(written(tmp_path, name, content)))
    assert time.thread_time() - started < PATIENCE_SECONDS


@pytest.mark.parametrize(
    "body",
    [
        b"1 0 obj<</Type/Catalog/Pages 1 0 R/Kids[1 0 R]>>endobj\ntrailer<</Root 1 0 R>>",
        b"1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Count 9/Kids[2 0 R]>>endobj\n"
        b"trailer<</Root 1 0 R/Prev 9>>",
        b"1 0 obj" + b"[" * 100_000 + b"endobj\ntrailer<</Root 1 0 R>>",
        b"1 0 obj" + b"<</A" * 100_000 + b"endobj\ntrailer<</Root 1 0 R>>",
        b"xref\n0 99999999\ntrailer<</Root 1 0 R/Size 99999999>>",
        b"trailer<</Encrypt<</Filter/Own/V 9>>/Root 1 0 R>>",
    ],
)
def test_malicious_pdfs_end_soon(tmp_path: Path, body: bytes) -> None:
    path = written(tmp_path, "bad.pdf", b"%PDF-1.7\n" + body + b"\nstartxref\n9\n%%EOF\n")
    started = time.thread_time()
    assert refusal(path).code in {"truncated", "damaged", "encrypted", "empty"}
    assert time.thread_time() - started < PATIENCE_SECONDS


def test_pages_beyond_the_limits_are_named_in_a_note(whole_pdf: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf_reader, "PAGES_LIMIT", 2)
    content = pdf_reader.read_pdf(Path("/a.pdf"), whole_pdf)
    assert (content.pages, content.notes) == (5, ["only the first 2 of 5 pages were read"])


def bounded(path: Path) -> None:
    started = time.thread_time()
    try:
        assert_storable(extract_document(path))
    except PermanentError as error:
        code = error.code
        str(error).encode()
    else:
        code = "empty"
    assert code in {"empty", "not_a_document", "encrypted", "truncated", "damaged"}
    assert time.thread_time() - started < PATIENCE_SECONDS


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    suffix=st.sampled_from(SUFFIXES),
    head=st.sampled_from([b"", b"%PDF-1.4\n", b"<html>", b"\xff\xfe", b"\xef\xbb\xbf", b"---\n"]),
    body=st.binary(max_size=400) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass")),
    tail=st.sampled_from([b"", b"\nstartxref\n5\n%%EOF"]),
)
def test_no_bytes_at_all_can_break_it(tmp_path: Path, suffix: str, head: bytes, body: bytes, tail: bytes) -> None:
    bounded(written(tmp_path, f"any{suffix}", head + body + tail))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(changes=st.lists(st.tuples(st.floats(0, 0.999), st.binary(min_size=1, max_size=12)), min_size=1, max_size=12))
def test_no_damage_to_a_pdf_can_break_it(tmp_path: Path, whole_pdf: bytes, changes: list[tuple[float, bytes]]) -> None:
    damaged = bytearray(whole_pdf)
    for place, piece in changes:
        start = int(place * len(damaged))
        damaged[start : start + len(piece)] = piece
    bounded(written(tmp_path, "damaged.pdf", bytes(damaged)))


def test_exactly_the_expected_papers_fail_and_one_declares_a_wrong_encoding() -> None:
    failures, notes = {}, {}
    for item in demo_items():
        try:
            found = extract_document(Path(str(item.payload["path"])))
        except PermanentError as error:
            failures[item.key] = error.code
        else:
            assert_storable(found)
            notes[item.key] = found.notes
    assert failures == EXPECTED_FAILURES
    assert {key: found for key, found in notes.items() if found} == {
        "briefe-an-die-redaktion.html": ["declares the encoding utf-8 but is windows-1252; read as windows-1252"]
    }


def test_papers_are_refused_in_words_that_say_what_to_do() -> None:
    assert str(refusal(PAPERS / "ferry-timetable-saved.pdf")).endswith("is named .pdf but is a web page")
    assert str(refusal(PAPERS / "board-minutes-locked.pdf")).endswith("it needs a password to be opened")


def test_one_paper_fails_twice_before_it_works() -> None:
    flaky = {item.key: item.payload["fail_first"] for item in demo_items() if "fail_first" in item.payload}
    assert flaky == {"flaky-tram-delays.pdf": 2}


def test_the_papers_are_few_and_small_and_the_same_each_time(tmp_path: Path) -> None:
    first, second = make_papers(tmp_path / "first"), make_papers(tmp_path / "second")
    assert [paper.name for paper in first] == [item.key for item in demo_items()]
    assert [paper.read_bytes() for paper in first] == [paper.read_bytes() for paper in second]
    assert sum(paper.stat().st_size for paper in PAPERS.iterdir()) < 500_000
