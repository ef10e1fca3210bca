"""`tape-arith cite`: every encoding has a whole entry, and the ids agree."""

import json
import re
from pathlib import Path

import pytest

from tape_arith.arith.export.citations import bibtex, cited, entries, everything, papers, suite
from tape_arith.models.names.declarations import declaration
from tape_arith.models.names.locate import locations
from tape_arith.models.names.parse import parse
from tests.helpers.tiny_runs import done

OURS = [
    (kind, place.name)
    for kind in ("encoding", "extrapolation")
    for place in locations(kind)
    if place.is_builtin
]
FIELD = re.compile(r"^  (\w+) +=\s*{(.*)},$", re.MULTILINE)
SAID = re.compile(r"(?P<surname>\S+) et al\. (?P<year>\d{4}), arXiv (?P<number>\d{4}\.\d{5})")


@pytest.mark.parametrize(("kind", "name"), OURS)
def test_what_an_encoding_says_agrees_with_its_entries(kind: str, name: str) -> None:
    said = declaration(kind, name).paper
    found = list(SAID.finditer(said))
    assert [match["number"] for match in found] == papers(said) != [], said
    for match in found:
        entry = entries()[match["number"]]
        fields = dict(FIELD.findall(entry))
        assert fields["author"].split(",")[0] == match["surname"]
        key = entry.partition("{")[2].partition(",")[0]
        assert key.startswith(match["surname"].lower() + match["year"])
        assert "20" + match["number"][:2] == match["year"]
        assert 0 <= int(fields["year"]) - int(match["year"]) <= 3


def test_entries_are_whole() -> None:
    keys = []
    for number, entry in entries().items():
        fields = dict(FIELD.findall(entry))
        assert {"title", "author", "year", "eprint", "archivePrefix"} <= fields.keys(), entry
        assert fields["eprint"] == number and fields["archivePrefix"] == "arXiv"
        kind = re.match(r"@(\w+){(\w+),\n", entry)
        assert kind is not None
        needed = {"inproceedings": {"booktitle"}, "article": {"journal"}, "misc": set()}[kind[1]]
        assert needed <= fields.keys(), entry
        assert entry.count("{") == entry.count("}")
        assert all("," in author for author in fields["author"].split(" and ")), entry
        keys.append(kind[2])
    assert len(set(keys)) == len(keys)


def test_no_entry_is_left_over() -> None:
    used = {one.paper for one in cited(everything())}
    assert used == entries().keys()


def test_this_suite_is_cited_as_its_own_file_says() -> None:
    cff = (Path(__file__).parents[2] / "CITATION.cff").read_text()
    told = dict(re.findall(r'^ *-? *([\w-]+): "?(.*?)"?$', cff, re.MULTILINE))
    fields = dict(FIELD.findall(suite()))
    assert fields["title"] == told["title"]
    assert fields["author"] == f"{{{told['name']}}}"
    assert fields["year"] == told["date-released"][:4]
    assert fields["version"] == told["version"]


def test_parts_options_and_origins_count() -> None:
    def keys(text: str) -> list[str]:
        return [one.key for one in cited([parse(text)])]

    assert keys("abacus+fire") == ["mcleish2024transformers", "li2023functional"]
    assert "peng2023yarn" in keys("rope+yarn") and "li2023functional" in keys("dape:base=fire")
    assert keys("tape@from=rope").count("su2021roformer") == 1
    assert "press2021train" in keys("rope@from=alibi")


def test_the_command(tmp_path: Path) -> None:
    text = done("cite", "--pe", "tape,rand-fire,fire").out
    assert text.startswith("@software{tapearith,") and text.count("@") == 1 + 4
    assert "% rand-fire, fire\n@inproceedings{li2023functional" in text
    content = json.loads(done("cite", "--json").out)
    assert content["schema"] == 1 and len(content["papers"]) == len(entries())
    assert bibtex(cited(everything())) == done("cite").out


def test_an_encoding_without_an_entry_is_named(here: Path) -> None:
    (here / "mine.py").write_text(
        '"""Mine."""\n\nfrom tape_arith.models.encoding import PositionalEncoding\n\n\n'
        'class Mine(PositionalEncoding):\n    """Mine."""\n\n'
        '    paper = "Somebody et al. 2026, arXiv 2601.99999"\n'
    )
    result = done("cite", "--pe", "mine.py:Mine")
    assert "\n% mine.py:Mine: Somebody et al. 2026, arXiv 2601.99999\n" in result.out
    assert "note: no entry for mine.py:Mine: Somebody" in result.err
