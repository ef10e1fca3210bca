"""Record, in a wheel or source archive, the commit that it is built from.

pyproject.toml names these commands of setuptools, which loads this file by its path before
`tape_arith` is installed; so it imports nothing of `tape_arith`.
"""

from pathlib import Path
from runpy import run_path

from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist


class BuildModules(build_py):  # type: ignore[misc]
    """Copies the modules that go into a wheel."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # editable: runs a checkout, whose commit changes
            _note_commit(Path(self.build_lib) / "tape_arith")


class BuildSource(sdist):  # type: ignore[misc]
    """Copies the files that go into a source archive."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        _note_commit(Path(base_dir))


def _note_commit(package: Path) -> None:
    machine = run_path(str(Path(__file__).with_name("machine.py")))
    commit = machine["commit"]()
    if commit is not None:
        (package / "arith" / machine["COMMIT_FILE"].name).write_text(
            f"{commit}\n", encoding="ascii"
        )
