"""`tape-arith list --cite`: every encoding has a whole entry, and names and entries agree."""

import re
from pathlib import Path

import pytest

from tape_arith.arith.export.citations import all_names, bibtex, entries, papers
from tape_arith.arith.registry.locate import locate, locations
from tape_arith.arith.registry.names import parse
from tape_arith.models import decoder
from tests.helpers.tiny_runs import done

METHODS = [
    (kind, place.name)
    for kind in ("encoding", "extrapolation")
    for place in locations(kind)
    if place.is_builtin
]
FIELD = re.compile(r"^  ([\w-]+) +=\s*{(.*)},$", re.MULTILINE)
CITATION = re.compile(
    r"(?P<surname>\S+)(?P<others> et al\.)? (?P<year>\d{4}), arXiv (?P<number>\d{4}\.\d{5})"
)


def test_papers_of_encodings_agree_with_their_entries() -> None:
    for kind, name in METHODS:
        text = locate(kind, name).declaration().paper
        citations = list(CITATION.finditer(text))
        # A page of the web is named by its address.
        numbers = [paper for paper in papers(text) if "/" not in paper]
        assert [citation["number"] for citation in citations] == numbers, text
        assert papers(text) and entries().keys() >= set(papers(text)), text
        for citation in citations:
            entry = entries()[citation["number"]]
            fields = dict(FIELD.findall(entry))
            surname, *others = fields["author"].split(" and ")
            assert surname.split(",")[0] == citation["surname"]
            assert bool(others) == bool(citation["others"]), text
            key = entry.partition("{")[2].partition(",")[0]
            letters = citation["surname"].lower().replace("-", "")
            assert key.startswith(letters + citation["year"])
            assert "20" + citation["number"][:2] == citation["year"]
            assert 0 <= int(fields["year"]) - int(citation["year"]) <= 3


def test_entries_are_whole_and_used() -> None:
    keys = []
    for number, entry in entries().items():
        fields = dict(FIELD.findall(entry))
        assert {"title", "year", "eprint", "archivePrefix"} <= fields.keys(), entry
        assert fields["eprint"] == number
        # Of a page, of OpenReview or of a blog, that names no authors there is only the title.
        assert (
            "author" in fields if fields["archivePrefix"] == "arXiv" else "howpublished" in fields
        )
        match = re.match(r"@(\w+){(\w+),\n", entry)
        assert match is not None
        venue = {"inproceedings": {"booktitle"}, "article": {"journal"}, "misc": set()}[match[1]]
        assert venue <= fields.keys() and entry.count("{") == entry.count("}"), entry
        assert all("," in author for author in fields.get("author", ",").split(" and ")), entry
        keys.append(match[2])
    assert len(set(keys)) == len(keys)
    text = bibtex(all_names())
    of_methods = {number for number, entry in entries().items() if entry in text}
    of_decoder = set(re.findall(r"\d{4}\.\d{5}", str(decoder.__doc__)))
    assert of_methods | of_decoder == entries().keys() and "(no entry)" not in text


def test_the_suite_is_cited_as_its_own_file_says() -> None:
    text = (Path(__file__).parents[2] / "CITATION.cff").read_text()
    stated = dict(re.findall(r'^ *-? *([\w-]+): "?(.*?)"?$', text, re.MULTILINE))
    fields = dict(FIELD.findall(bibtex([])))
    assert fields["title"] == stated["title"] and fields["author"] == f"{{{stated['name']}}}"
    assert fields["year"] == stated["date-released"][:4]
    assert fields["version"] == stated["version"]


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("abacus+fire", ["mcleish2024transformers", "li2023functional"]),
        ("rope+yarn", ["su2021roformer", "peng2023yarn"]),
        ("rope@from=alibi", ["su2021roformer", "press2021train"]),
    ],
)
def test_parts_extrapolations_and_origins_are_cited(name: str, keys: list[str]) -> None:
    assert re.findall(r"^@\w+{(\w+),", bibtex([parse(name)]), re.MULTILINE) == ["tapearith", *keys]


def test_the_command(here: Path) -> None:
    text = done("list", "--cite", "tape,rand-fire,fire").out
    assert text.startswith("@software{tapearith,") and text.count("@") == 1 + 4
    assert "rand-fire, fire\n@inproceedings{li2023functional" in text
    (here / "mine.py").write_text(
        "from tape_arith.models.encoding import PositionalEncoding\n\n\n"
        "class Mine(PositionalEncoding):\n"
        '    paper = "Somebody et al. 2026, arXiv 2601.99999"\n'
    )
    text = done("list", "--cite", "mine.py:Mine").out
    (comment,) = (line for line in text.splitlines() if "mine.py:Mine" in line)
    assert "2601.99999 (no entry)" in comment
