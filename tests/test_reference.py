"""The reference says what the files declare today, and its index names pages that exist."""

import re

from tape_arith.arith.reference import FOLDER, pages


def test_the_reference_is_current() -> None:
    written = {file.name: file.read_text("utf-8") for file in FOLDER.iterdir()}
    assert written.keys() == pages().keys()
    for name, text in pages().items():
        assert written[name] == text, f"{name} is stale: make docs"


def test_the_index_names_pages_that_exist() -> None:
    links = re.findall(r"\]\((.*?)\)", pages()["llms.txt"])
    assert len(links) > 15
    assert not [link for link in links if not (FOLDER / link).is_file()]
