"""Nothing that is read is run: no code of ours unpickles or evaluates, no file that it writes could
be unpickled, a run brings no code along, and names stay text in pages and on terminals."""

import ast
import json
import pickletools
import shutil
import struct
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from arith.suite.folders import RunFolder
from tests.figures.pages import HOSTILE, Page
from tests.robustness.kinds import ENCODING, RUN, SWEEP
from tests.sealing import changed
from tests.suite.tiny import call, done, settings

ROOT = Path(__file__).parents[2]
CODE = [*(ROOT / "arith").rglob("*.py"), *(ROOT / "models").rglob("*.py"), ROOT / "cli.py"]
MODULES = {
    *("pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"),
    *("yaml", "jsonpickle", "runpy", "code", "imp", "dbm", "xml", "commands", "pty"),
}
CALLS = {
    *("eval", "exec", "compile", "__import__", "execfile", "input", "breakpoint"),
    *("torch.load", "torch.hub.load", "torch.jit.load", "torch.package.PackageImporter"),
    *("np.load", "numpy.load", "np.fromregex", "np.loadtxt", "np.genfromtxt"),
    *("pd.read_pickle", "pandas.read_pickle", "os.system", "os.popen", "os.execv", "os.execvp"),
    *("subprocess.getoutput", "subprocess.getstatusoutput"),
}
RUNS_CODE = {("models/registry.py", "loader.exec_module")}
"""The one place that runs a file of the user's own: `--pe file.py:Class`."""


def told(node: ast.AST) -> Iterator[str]:
    """What a node does that only RUNS_CODE may do."""
    if isinstance(node, ast.Import):
        yield from (a.name for a in node.names if a.name.split(".")[0] in MODULES)
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
        yield str(node.module)
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        if called in CALLS or called.endswith((".exec_module", ".load_module", ".run_path")):
            yield called
        for keyword in node.keywords:
            value = ast.unparse(keyword.value)
            if keyword.arg in ("shell", "allow_pickle", "trust_remote_code") and value != "False":
                yield f"{keyword.arg}={value}"


def test_no_code_of_ours_runs_what_it_reads() -> None:
    found = {
        (file.relative_to(ROOT).as_posix(), what)
        for file in CODE
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        for what in told(node)
    }
    assert found == RUNS_CODE


@pytest.mark.parametrize(
    "line",
    [
        *("import pickle", "from pickle import loads", "import yaml", "import marshal as m"),
        *("torch.load(p)", "np.load(p, allow_pickle=True)", "eval(x)", "exec(x)", "os.system(x)"),
        *("subprocess.run(x, shell=True)", "f(allow_pickle=flag)", "spec.loader.exec_module(m)"),
    ],
)
def test_the_search_finds(line: str) -> None:
    assert [what for node in ast.walk(ast.parse(line)) for what in told(node)]


def is_pickle(content: bytes) -> bool:
    try:
        codes = [code.name for code, _, _ in pickletools.genops(BytesIO(content))]
    except Exception:  # whatever its parser says of what is none
        return False
    return len(codes) > 1 and codes[-1] == "STOP"


def test_no_file_that_is_written_is_a_pickle(world: Path) -> None:
    done("report")
    done("table", "--format", "csv")
    files = [file for file in world.rglob("*") if file.is_file() and file.suffix != ".py"]
    endings = {file.suffix for file in files}
    assert {".json", ".jsonl", ".npy", ".safetensors", ".html", ".toml", ".txt"} <= endings
    for file in files:
        content = file.read_bytes()
        assert not is_pickle(content) and not zipfile.is_zipfile(file), file
        assert b"\x80\x04\x95" not in content[:64], file
        if file.suffix == ".npy":
            assert np.load(file, allow_pickle=False).dtype in (np.uint8, np.uint16)
        if file.suffix == ".safetensors":
            (length,) = struct.unpack("<Q", content[:8])
            assert json.loads(content[8 : 8 + length])


def test_the_search_finds_a_pickle() -> None:
    # A pickle of the number 1, protocol 2: written here, for no code may import what makes one.
    assert is_pickle(b"\x80\x02K\x01.") and not is_pickle(b"{}") and not is_pickle(b"")


TRAP = ENCODING + '\nopen("sprung", "w").close()\n'


def evil(where: str, **more: object) -> None:
    """A run that says it is of an encoding in a file that came with it."""
    file = RUN / "run.json"
    file.write_bytes(changed(file.read_bytes(), encoding=f"{where}:Mine", **more))


def test_a_run_brings_no_code(world: Path) -> None:
    inside = RUN / "mine.py"
    inside.write_text(TRAP)
    done("train", "--pe", "mine.py:Mine", "--no-score", *settings())  # a good one, its own file
    sources = RunFolder(Path("runs/mini/mine.py@Mine/seed-0")).record().sources
    sha256 = __import__("hashlib").sha256(TRAP.encode()).hexdigest()
    assert list(sources) == ["mine.py:Mine"]
    for where, hashes in (
        (str(inside), {f"{inside}:Mine": sha256}),
        (str(inside.absolute()), {f"{inside}:Mine": sha256}),
        (str(inside), {}),
        ("mine.py", {}),
    ):
        evil(where, sources=hashes)
        for command in (
            ("score", RUN, "--fresh"),
            ("train", RUN),
            ("train", RUN, "--steps", "99"),
            ("list",),
            ("status", "runs"),
            ("report",),
            ("stability", RUN),
            ("attention", RUN),
            ("errors", RUN),
        ):
            result = call(*command)
            assert not Path("sprung").exists(), (where, command)
            assert "Traceback" not in result.err, result.err
        assert "nothing of it is run" in call("score", RUN, "--fresh").err


def test_costs_are_of_no_code_that_came_along(world: Path) -> None:
    """Sizes are computed by building the encoding: not that of a run which may not be scored."""
    (RUN / "mine.py").write_text(TRAP)
    for seed in (0, 1):
        shutil.rmtree(RUN.with_name(f"seed-{seed}"), ignore_errors=True) if seed else None
    evil(str(RUN / "mine.py"), sources={f"{RUN / 'mine.py'}:Mine": "0" * 64})
    grid = RUN / "grid.json"
    grid.write_bytes(changed(grid.read_bytes(), encoding=f"{RUN / 'mine.py'}:Mine"))
    result = call("leaderboard", "--costs")
    assert not Path("sprung").exists() and result.code == 0
    assert "nothing of it is run" in result.err


def test_a_file_of_one_s_own_is_run_where_it_is_named(world: Path) -> None:
    """The control: the trap does spring."""
    Path("mine.py").write_text(TRAP)
    done("train", "--pe", "mine.py:Mine", "--no-score", *settings())
    assert Path("sprung").exists()


def test_hostile_names_stay_text_in_the_report(world: Path) -> None:
    folder = Path("runs/mini/<img src=x onerror=hacked>/seed-0")
    shutil.copytree(RUN, folder)
    (folder / "grid.json").unlink()
    (folder / "run.json").write_bytes(
        changed((folder / "run.json").read_bytes(), encoding="rope", version=HOSTILE)
    )
    for name in ("environment.json", "grid.json"):
        file = Path("runs/mini/rope/seed-1", name)
        what = {"commit": HOSTILE} if name[0] == "e" else {"encoding": HOSTILE, "preset": "mini"}
        file.write_bytes(changed(file.read_bytes(), **what))
    done("report")
    text = Path("runs/mini/report.html").read_text()
    page = Page(text)
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 2 and "img" not in tags and "<img" not in text
    assert any(HOSTILE in piece for piece in page.texts)


ESCAPE = "\x1b[31mred\x1b]0;title\x07\u202e\x9b2J"


def test_no_escape_reaches_the_terminal(world: Path) -> None:
    folder = Path(f"runs/mini/{ESCAPE}/seed-0")
    shutil.copytree(RUN, folder)
    with open(SWEEP / "ends.jsonl", "a") as file:
        job = "score/mini/rope/seed-0/grid+yarn"
        file.write(json.dumps({"id": job, "exit": 1, "reason": ESCAPE, "log": ESCAPE}) + "\n")
    grid = Path("runs/mini/rope/seed-1/grid.json")
    before = grid.read_bytes()
    for content in (before, changed(before, encoding=ESCAPE), changed(before, **{ESCAPE: 1})):
        grid.write_bytes(content)
        for command in (
            ("list",),
            ("status", "runs"),
            ("status", "mine"),
            ("table",),
            ("leaderboard",),
            ("score", folder),
            ("score", ESCAPE),
            ("train", "--pe", ESCAPE),
            ("sweep", f"{ESCAPE}.toml"),
            ("heatmap", "--compare", "rope", "--runs", ESCAPE),
            ("errors", folder, RUN),
        ):
            result = call(*command)
            for text in (result.out, result.err):
                assert not set(text) & set("\x1b\x07\x9b\u202e\r"), (command, text)
                assert "Traceback" not in text


def test_names_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal the bar is drawn by rich, which would take brackets for styles and links."""
    import io
    import sys

    from arith.suite.progress import bar

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with bar("[link=http://x]train[/link] [red]a", 2) as update:
        update(1, "[bold]note[/]")
    assert "[link=http://x]" in terminal.getvalue() and "[bold]note[/]" in terminal.getvalue()
