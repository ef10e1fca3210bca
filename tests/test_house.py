"""The habits of the house that no other tool checks, and the README held to the command line."""

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import cli
from arith.data.task import tasks
from arith.suite.compare import ALL
from arith.suite.presets import presets
from models import catalog

ROOT = Path(__file__).resolve().parents[1]
COMMANDS: dict[str, Any] = vars(typer.main.get_command(cli.app))["commands"]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def tracked() -> list[Path]:
    """The repository's files, new ones too; in a tarball without git, what is not hidden."""
    command = [
        "git",
        "-C",
        str(ROOT),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    listed = subprocess.run(command, capture_output=True)
    if listed.returncode == 0:
        files = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    else:
        files = [path for path in ROOT.rglob("*") if not any(p[0] == "." for p in path.parts[1:])]
    return [path for path in files if path.is_file()]


def texts() -> Iterator[tuple[Path, str]]:
    """Every text file of the repository."""
    for path in tracked():
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # a picture
            continue


def modules() -> list[Path]:
    """Every Python file."""
    return [path for path in tracked() if path.suffix == ".py"]


def test_it_looks_at_something() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in modules()}
    assert {"cli.py", "arith/files.py", "models/catalog.py", "tests/test_house.py"} <= names


# Written so that this file does not hold what it looks for.
FORBIDDEN = {
    "an address of a package registry": r"py[p]i\.org|python[h]osted|download\.py[t]orch|"
    r"(extra-)?inde[x]-url|find-[l]inks|conda\.anacon[d]a|regist[r]y\.npm",
    "an absolute path of a home or work folder": r"(?<![\w.~])/(hom[e]|roo[t]|wor[k]|User[s])/",
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path, text in texts()
        for match in re.finditer(FORBIDDEN[what], text)
    ]
    assert found == []


def dangerous(node: ast.AST) -> str | None:
    """What a node does that no code of ours may do."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        for name in names:
            if name.split(".")[0] in {"pickle", "dill", "cloudpickle", "shelve", "marshal"}:
                return f"imports {name}"
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        if called in {"eval", "exec", "torch.load", "os.system"}:
            return f"calls {called}"
        for keyword in node.keywords:
            if keyword.arg in {"shell", "allow_pickle"} and ast.unparse(keyword.value) != "False":
                return f"says {keyword.arg}={ast.unparse(keyword.value)}"
    return None


def test_nothing_is_unpickled_or_evaluated() -> None:
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert dangerous(node) is None, f"{path.relative_to(ROOT)}: {dangerous(node)}"


def test_every_file_has_a_subject() -> None:
    nameless = {"utils", "util", "common", "helpers", "helper", "misc", "tools", "shared"}
    assert [path for path in modules() if path.stem in nameless] == []


def undocumented(tree: ast.Module) -> Iterator[str]:
    """Names without a docstring that need one.

    Modules and classes do, but a layer whose encoding stands in the same file. Functions and
    methods of more than five lines do, but those that fill in a method documented elsewhere.
    """
    if tree.body and not ast.get_docstring(tree):
        yield "the module"
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}

    def public(body: list[ast.stmt], within: str) -> Iterator[str]:
        for node in body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name.startswith("_"):
                continue
            if isinstance(node, ast.ClassDef):
                trivial = node.name.removesuffix("Layer") in classes - {node.name}
                yield from public(node.body, f"{node.name}.")
            else:
                lines = (node.end_lineno or 0) - node.body[0].lineno + 1
                trivial = lines <= 5 or (within != "" and node.name in DOCUMENTED)
            if not trivial and not ast.get_docstring(node):
                yield within + node.name

    yield from public(tree.body, "")


def code() -> list[tuple[Path, ast.Module]]:
    """The modules of the benchmark and of the models, and the command line."""
    paths = [*(ROOT / "arith").rglob("*.py"), *(ROOT / "models").rglob("*.py"), ROOT / "cli.py"]
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(paths)]


DOCUMENTED = {
    method.name
    for _, tree in code()
    for node in tree.body
    if isinstance(node, ast.ClassDef)
    for method in node.body
    if isinstance(method, ast.FunctionDef) and ast.get_docstring(method)
}


def test_what_is_public_is_documented() -> None:
    missing = {path.relative_to(ROOT).as_posix(): [*undocumented(tree)] for path, tree in code()}
    assert {path: names for path, names in missing.items() if names} == {}


def command_lines() -> list[str]:
    """The `tape-arith` lines of the README's blocks of shell (```sh)."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    joined = "\n".join(blocks).replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.startswith("tape-arith")]


def test_the_readme_names_what_there_is() -> None:
    for command in COMMANDS:
        assert f"tape-arith {command}" in README
    for name in catalog.names("extrapolation"):
        assert f"`{name}`" in README or f"+{name}`" in README, f"the README does not name {name}"
    for name in [*presets(), *tasks()]:
        assert re.search(rf"\b{name}\b", README), f"the README does not name {name}"
    for name in catalog.names("encoding"):
        assert f"`{name}`" in README, f"the README does not name {name}"


def test_the_readme_opens_with_the_two_commands() -> None:
    made = re.findall(r"^make [\w-]+", README, flags=re.MULTILINE)
    assert made[:2] == ["make demo", "make test"]
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert {line.removeprefix("make ") for line in made} <= set(targets)


def test_the_readme_s_commands_are_those_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where a reader would have written the example
    (example, *_) = re.findall(r"^```python\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    Path("mine.py").write_text(example)
    lines = command_lines()
    assert lines, "the README shows no command in a ```sh block"
    for line in lines:
        words = shlex.split(line.split(" > ")[0], comments=True)[1:]
        if words[:1] == ["--help"]:
            continue
        command = COMMANDS[words[0]]
        # Errors: what the command line would say of an option or argument that is not there.
        given = command.make_context(words[0], words[1:]).params
        for option in ("pe", "compare"):
            if given.get(option) not in (None, "", ALL):
                catalog.parse_list(given[option])
        if given.get("preset"):
            assert given["preset"] in presets(), line


def test_the_readme_maps_the_rooms() -> None:
    rooms = [*(ROOT / "arith").iterdir(), *(ROOT / "models").iterdir()]
    for room in rooms:
        if room.is_dir() and not room.name.startswith("_"):
            assert f"{room.name}/" in README, f"the README's map lacks {room.name}/"
    for name in re.findall(r"\b(?:arith|models|tests)/[\w/-]+\.py\b", README):
        assert (ROOT / name).exists() or "mine" in name, f"the README names {name}"
