"""Record the commit of a wheel or source archive, and make the links of its README absolute.

pyproject.toml names these commands of setuptools. setuptools loads this file by its path before
`tape_arith` is installed, so this file imports nothing from `tape_arith`.
"""

import re
from pathlib import Path
from runpy import run_path

from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info
from setuptools.command.sdist import sdist


class BuildModules(build_py):  # type: ignore[misc]
    """Copies the modules of a wheel."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # an editable installation runs a checkout, whose commit changes
            _note_commit(Path(self.build_lib) / "tape_arith")


class BuildSource(sdist):  # type: ignore[misc]
    """Copies the files of a source archive."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        _note_commit(Path(base_dir))


class Metadata(egg_info):  # type: ignore[misc]
    """Writes the metadata, which holds the README for a package index."""

    def run(self) -> None:
        metadata = self.distribution.metadata
        if address := (metadata.project_urls or {}).get("Repository"):
            metadata.long_description = absolute_links(metadata.long_description, address)
        super().run()


def absolute_links(text: str, address: str) -> str:
    """Prefix the links to files of the repository, in Markdown, with its `address`.

    >>> absolute_links("![a](b.png), [c](d.md), [e](https://f.org)", "https://g.org/h")
    '![a](https://g.org/h/raw/HEAD/b.png), [c](https://g.org/h/blob/HEAD/d.md), [e](https://f.org)'
    """

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link[1] else "blob"
        return f"{link[1]}{link[2]}({address.rstrip('/')}/{kind}/HEAD/{link[3]})"

    return re.sub(r"(!?)(\[[^\]]*\])\((?!\w+:|#)([^)\s]+)\)", absolute, text)


def _note_commit(package: Path) -> None:
    machine = run_path(str(Path(__file__).with_name("machine.py")))
    commit = machine["commit"]()
    if commit is not None:
        (package / "arith" / machine["COMMIT_FILE"].name).write_text(
            f"{commit}\n", encoding="ascii"
        )
