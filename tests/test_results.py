"""The committed tables are those of the committed grids, and the pages quote the tables."""

import re
import shlex
from pathlib import Path

import pytest

from tests.helpers.tiny_runs import done

ROOT = Path(__file__).parent.parent
COMMANDS_PAGE = ROOT / "results/provenance.md"
TABLE = re.compile(r"^tape-arith (?:leaderboard|tasks) .*--out (\S+\.(?:md|csv))", re.MULTILINE)
ORIGIN = re.compile(r"(?s)\n<!-- tape-arith \S+, commit \w{12}\+?: .*-->\n$")
TEXTS = {path: path.read_text("utf-8") for path in (ROOT / "results").rglob("*.md")}
TABLES = [path for path, text in TEXTS.items() if ORIGIN.search(text)]
PAGES = [ROOT / "README.md", *(path for path in TEXTS if path not in TABLES)]
COMMANDS = {match[1]: match[0] for match in TABLE.finditer(COMMANDS_PAGE.read_text("utf-8"))}


@pytest.mark.slow
@pytest.mark.parametrize("table", COMMANDS)
def test_its_command_writes_the_table(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    made = tmp_path / Path(table).name
    _, *words = shlex.split(COMMANDS[table])
    words[words.index("--out") + 1] = str(made)
    if "--figure" in words:
        place = words.index("--figure")
        del words[place : place + 2]
    done(*words)
    texts = (path.read_text("utf-8") for path in (made, ROOT / table))
    ours, theirs = (ORIGIN.split(text, maxsplit=1) for text in texts)
    assert ours[0] == theirs[0] and len(ours) == len(theirs) == 1 + (made.suffix == ".md")


def test_every_committed_leaderboard_has_its_command() -> None:
    committed = {
        str(path.relative_to(ROOT))
        for ending in ("md", "csv")
        for path in (ROOT / "results").rglob(f"leaderboard*.{ending}")
    }
    assert committed and committed <= set(COMMANDS)


def test_the_means_that_pages_quote_stand_in_a_table() -> None:
    """A mean with its interval, as "19.7 ± 2.5"; a page may leave out the percent sign."""
    quoted = {
        (str(page.relative_to(ROOT)), number)
        for page in PAGES
        for number in re.findall(r"\d+\.\d ± <?\d+\.\d", page.read_text("utf-8"))
    }
    text = "\n".join(TEXTS[table] for table in TABLES)
    assert len({page for page, _ in quoted}) > 5
    assert not [(page, number) for page, number in sorted(quoted) if number not in text]


def test_every_link_of_a_page_leads_to_a_file() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)", page.read_text("utf-8")):
            assert link.startswith("http") or (page.parent / link).exists(), (page, link)
