"""What is added without touching this suite: encodings and tasks of installed packages, and an
encoding in a file on disk. Their code runs when a decoder is built, and never before."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

import arith.data.task
import models
from arith.commands.options import complete_encoding
from arith.suite.folders import RunFolder
from models.errors import UsageError
from models.names.declarations import defines_attention
from models.names.locate import Location, installed, locate, source_file
from models.names.parse import parse, parse_list
from tests.models.test_contract import HEAD, SLIPS
from tests.suite.tiny import SETTINGS, done, refused, settings
from tests.test_catalog import TASK as REPEAT

ENCODING = '''"""Theirs."""

from pathlib import Path

import torch
from torch import Tensor, nn

from models.encoding import PositionalEncoding, Setting
from models.sequences import Sequences

Path("imported").touch()


class Theirs(PositionalEncoding):
    """A learned vector for each index, scaled."""

    kind = "absolute"
    paper = "Nobody 2026, arXiv 0000.00000"

    def __init__(self, setting: Setting, *, scale: float = 1.0) -> None:
        super().__init__(setting)
        self.scale = scale
        self.table = nn.Parameter(torch.zeros(setting.max_length, setting.hidden_size))

    def embed(self, x: Tensor, index: Tensor, seqs: Sequences) -> Tensor:
        return x + self.scale * self.table[index]
'''
TASK = f'{REPEAT}\n\nopen("imported", "w").close()\n'
ROOT = Path(models.__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    forget()
    before = set(sys.modules)
    yield site
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("theirs", "others"):
            del sys.modules[name]
    forget()


def forget() -> None:
    installed.cache_clear()
    arith.data.task.load_task.cache_clear()


def install(site: Path, package: str, points: str, **files: str) -> None:
    """As an installer would: the files of a package, its name and its entry points."""
    inner = site / package / "inner"
    inner.mkdir(parents=True)
    for outer in (inner.parent, inner):
        (outer / "__init__.py").write_text("from pathlib import Path\n\nPath('imported').touch()\n")
    for name, text in files.items():
        (inner / f"{name}.py").write_text(text)
    info = site / f"{package}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(points)
    assert PathDistribution(info).version == "1.2"
    forget()


POINTS = """[tape_arith.encodings]
their_own = theirs.inner.mine:Theirs
their-last = theirs.inner.mine

[tape_arith.tasks]
their_task = theirs.inner.task:Repeat
"""


@pytest.fixture
def package(folder: Path, site: Path) -> Path:
    install(site, "theirs", POINTS, mine=ENCODING, task=TASK)
    return site


@pytest.mark.usefixtures("package")
def test_a_package_is_listed_without_running_it() -> None:
    listed = done("list").out
    line = next(line for line in listed.splitlines() if line.split()[:1] == ["their-own"])
    assert line == (
        "  their-own       A learned vector for each index, scaled. Nobody 2026, "
        "arXiv 0000.00000. (package theirs 1.2) Options: scale=1.0."
    )
    assert "  their-task (package theirs 1.2)" in listed.splitlines()
    content = json.loads(done("list", "--json").out)
    entry = next(entry for entry in content["encodings"] if entry["name"] == "their-last")
    assert entry["package"] == "theirs 1.2" and entry["problem"] == ""
    assert entry["options"] == {"scale": {"type": "float", "default": 1.0}}
    assert content["tasks"] == ["addition", "their-task"]
    assert content["task_packages"] == {"their-task": "theirs 1.2"}
    assert {e["package"] for e in content["encodings"]} == {"", "theirs 1.2"}
    assert "their-own" in complete_encoding("their")
    assert str(parse("Their_Own:scale=1+rope")) == "their-own+rope"
    assert "unknown option of their-own 'slope'" in refused("check", "their-own:slope=2")
    assert not Path("imported").exists()
    assert not any(name.startswith("theirs") for name in sys.modules)


@pytest.mark.usefixtures("package")
def test_a_package_s_encoding_and_task_are_trained_and_scored() -> None:
    done("run", "--pe", "their-own:scale=2+rope,rope", "--task", "their-task", *settings(steps=2))
    assert Path("imported").exists()
    folder = RunFolder(Path("runs/mini/their-own@scale=2+rope/seed-0"))
    record = folder.record()
    assert record.encoding == "their-own:scale=2+rope" and record.config.task == "their-task"
    place = locate("encoding", "their-own")
    assert record.sources == {"their-own": place.sha256()} and place.package == "theirs 1.2"
    assert '"version": 3' in folder.grid_file().read_text()
    assert RunFolder(Path("runs/mini/rope/seed-0")).record().sources == {}
    assert done("check", "their-own").out.endswith("10 of 10 checks hold\n")
    text = next(Path("data").rglob("manifest.json")).read_text()
    assert '"task": "their-task"' in text
    assert arith.data.task.load_task("their-task").name == "their-task"


def test_without_its_package_a_run_is_still_shown(package: Path) -> None:
    done("train", "--pe", "their-own", *settings(steps=2))
    (package / "theirs-1.2.dist-info" / "entry_points.txt").unlink()
    forget()
    run = "runs/mini/their-own/seed-0"
    assert f"  {run}: trained; grid" in done("list").out.splitlines()
    assert "| their-own |" in done("table").out
    assert f"{run} was trained with their-own: unknown encoding 'their-own'" in refused(
        "score", run
    )


def test_a_name_of_ours_cannot_be_taken(folder: Path, site: Path) -> None:
    points = "[tape_arith.encodings]\nrope = theirs.inner.mine\nrandpe = theirs.inner.mine\n"
    points += "[tape_arith.tasks]\naddition = theirs.inner.task\n"
    install(site, "theirs", points, mine=ENCODING, task=TASK)
    both = "is of models/encodings/rope.py and of package theirs 1.2 (theirs.inner.mine)"
    for command in (("check", "abacus+rope"), ("heatmap", "--compare", "fire,rope")):
        assert f"the encoding 'rope' {both}" in refused(*command)
    assert "'randpe' is of package theirs 1.2" in refused("check", "randpe")
    task = "the task 'addition' is of arith/data/tasks/addition.py and of package theirs 1.2"
    assert task in refused("train", "--pe", "fire", *settings())
    # The list shows which, and what has its name to itself is not touched.
    assert [line for line in done("list").out.splitlines() if both in line]
    assert str(parse("fire")) == "fire"
    assert not Path("imported").exists()


def test_two_packages_of_one_name(folder: Path, site: Path) -> None:
    for package in ("theirs", "others"):
        points = f"[tape_arith.encodings]\nmine = {package}.inner.mine\n"
        install(site, package, points, mine=ENCODING)
    told = refused("check", "mine")
    assert "package theirs 1.2" in told and "package others 1.2" in told


@pytest.mark.parametrize(
    ("point", "told"),
    [
        ("theirs.inner.gone", "no file of Python source is found for theirs.inner.gone"),
        ("gone.inner", "no file of Python source is found for gone.inner"),
        ("json.decoder.gone", "no file of Python source"),
        ("math", "no file of Python source is found for math"),
        ("theirs.inner.mine:Other", "defines no public class 'Other', only Theirs"),
        ("theirs.inner:Theirs", "defines no class for 'mine'"),
        ("theirs.inner.broken", "broken.py is not Python"),
    ],
)
def test_a_package_that_cannot_be_read_hides_nothing_else(
    point: str, told: str, folder: Path, site: Path
) -> None:
    points = f"[tape_arith.encodings]\nmine = {point}\nzz = theirs.inner.mine\n"
    install(site, "theirs", points, mine=ENCODING, broken="class Mine(:\n")
    (line,) = (line for line in done("list").out.splitlines() if line.split()[:1] == ["mine"])
    assert told in line and line.endswith("(package theirs 1.2)")
    assert told in refused("check", "mine")
    assert str(parse("zz")) == "zz" and str(parse("randpe")) == "rand-rope"
    assert not Path("imported").exists()


def test_what_a_package_gives_must_be_what_it_says(folder: Path, site: Path) -> None:
    points = "[tape_arith.encodings]\nmine = theirs.inner.task\nraises = theirs.inner.raises\n"
    points += "[tape_arith.tasks]\nnot-one = theirs.inner.mine\n"
    files = {"raises": f"import no_such_module\n{ENCODING}", "task": TASK, "mine": ENCODING}
    install(site, "theirs", points, **files)
    told = "package theirs 1.2 (theirs.inner.task) is no encoding: it must be a subclass"
    assert told in refused("train", "--pe", "mine", *settings())
    told = "(theirs.inner.raises) cannot be imported: ModuleNotFoundError: No module named "
    assert told in refused("train", "--pe", "raises", *settings())
    told = "package theirs 1.2 (theirs.inner.mine) must define exactly one task, not 0"
    assert told in refused("train", "--pe", "rope", "--task", "not-one", *settings())


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('symbol = "%%"', "(theirs.inner.mine): the symbol of task mine: no token for '%%'"),
        ("version = 3", "task mine gives an answer of 2 digits to operands of up to 2"),
    ],
)
def test_a_task_that_is_wrong(line: str, told: str, folder: Path, site: Path) -> None:
    old = line.split(" = ")[0]
    text = re.sub(rf"{old} = .*", line, REPEAT)
    text = text if "symbol" in line else text.replace("return max_digits", "return 1")
    install(site, "theirs", "[tape_arith.tasks]\nmine = theirs.inner.mine\n", mine=text)
    assert told in refused("generate", "--task", "mine", *settings(), "--workers", 1)
    assert not Path("data").exists() or not list(Path("data").rglob("*.json"))


def test_the_readme_s_task(folder: Path, site: Path) -> None:
    (text,) = re.findall(r'```python\n("""Addition that forgets.*?)```', README, re.DOTALL)
    install(site, "theirs", "[tape_arith.tasks]\nno-carry = theirs.inner.mine\n", mine=text)
    done("generate", "--task", "no-carry", *settings(), "--format", "text", "--out", "a.txt")
    for line in Path("a.txt").read_text().split():
        a, b, c = re.split("[x=]", line)
        width = max(len(a), len(b))
        places = zip(a.ljust(width, "0"), b.ljust(width, "0"), strict=True)
        assert c == "".join(str((int(x) + int(y)) % 10) for x, y in places)


def test_another_process_finds_the_package(package: Path) -> None:
    """The real thing: an interpreter of its own, with the package on its path."""
    path = os.pathsep.join(map(str, (package, ROOT)))
    listed = subprocess.run(
        [sys.executable, "-c", "import cli; cli.main()", "list"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "(package theirs 1.2)" in listed.stdout and not Path("imported").exists()


def test_a_file_on_disk(folder: Path) -> None:
    Path("mine.py").write_text(ENCODING)
    for spelling in ("mine.py:Theirs", "./mine.py:Theirs:scale=1.0", f"{folder}/mine.py:Theirs"):
        assert str(parse(spelling)) == "mine.py:Theirs"
    assert not Path("imported").exists() and not Path("__pycache__").exists()
    done("run", "--pe", "./mine.py:Theirs:scale=2,mine.py:Theirs+rope,rope", *settings(steps=2))
    assert not Path("__pycache__").exists()
    for slug in ("mine.py@Theirs@scale=2", "mine.py@Theirs+rope"):
        record = RunFolder(Path(f"runs/mini/{slug}/seed-0")).record()
        assert record.sources == {"mine.py:Theirs": locate("encoding", "mine.py:Theirs").sha256()}
    assert Path("runs/mini/mine.py@Theirs@scale=2-mine.py@Theirs+rope-rope.png").exists()
    done("heatmap", "--compare", "mine.py:Theirs:scale=2,rope", "--out", "a.png")
    for command in ("table", "leaderboard"):
        assert "| mine.py:Theirs:scale=2 |" in done(command).out
    # By a sweep as well, its file in another folder than the encoding's.
    lines = "\n".join(f"{key} = {value}" for key, value in (SETTINGS | {"steps": 2}).items())
    names = 'encodings = ["mine.py:Theirs:scale=2", "rope"]\nseeds = [0]\n'
    Path("sweeps").mkdir()
    Path("sweeps/mine.toml").write_text(f'preset = "mini"\n{names}[set]\n{lines}\n')
    done("sweep", "sweeps/mine.toml")
    ranked = done("leaderboard", "--runs", "runs/mine").out
    assert "| mine.py:Theirs:scale=2 |" in ranked and "| rope |" in ranked
    told = refused("check", "mine.py:Theirs:slope=2")
    assert "unknown option of mine.py:Theirs 'slope'" in told
    assert "Theirs has none" in refused("train", "--pe", "mine.py:Theirs+yarn", *settings())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("gone.py:Mine", "'gone.py': there is no such file"),
        ("abacus+gone.py:Mine", "'gone.py': there is no such file"),
        ("rope,gone.py:Mine", "'gone.py': there is no such file"),
        ("mine.py", "say which class of the file it is, as in mine.py:Mine"),
        ("mine.py:", "say which class of the file it is, as in mine.py:Mine"),
        ("mine.py:Other", "mine.py defines no public class 'Other', only Theirs"),
        ("mine.py:scale=2", "defines no public class 'scale=2'"),
        ("mine.py:Theirs:scale", "an option reads key=value"),
        ("mine.py:Theirs:scale=x", "scale must be a number"),
        ("rope+yarn+mine.py:Theirs", "yarn is for test time and comes last"),
        ("mine.py:Theirs+./mine.py:Theirs", "names mine.py:Theirs twice"),
        ("folder.py:Mine", "'folder.py': there is no such file"),
        ("broken.py:Mine", "broken.py is not Python: line 1: invalid syntax"),
        ("null.py:Mine", "null.py is not Python"),
    ],
)
def test_files_that_are_wrong(text: str, told: str, folder: Path) -> None:
    Path("mine.py").write_text(ENCODING)
    Path("folder.py").mkdir()
    Path("broken.py").write_text("class Mine(:\n")
    Path("null.py").write_bytes(b"class Mine: pass\0\n")
    with pytest.raises(UsageError) as caught:
        parse_list(text)
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_a_changed_file_is_not_the_one_that_was_trained(folder: Path) -> None:
    file, run = Path("mine.py"), "runs/mini/mine.py@Theirs/seed-0"
    file.write_text(ENCODING)
    trained = ("train", "--pe", "mine.py:Theirs", *settings(steps=2))
    done(*trained)
    weights = Path(run, "weights/final.safetensors").read_bytes()
    done(*trained)
    file.write_text(ENCODING.replace("self.scale *", "self.scale +"))  # as long as before
    told = f"{run} was trained with another mine.py:Theirs (SHA-256 "
    for command in (trained, ("train", run), ("train", run, "--steps", 4), ("score", run)):
        assert told in refused(*command)
    assert Path(run, "weights/final.safetensors").read_bytes() == weights
    # Seeds of two versions are no comparison.
    done(*trained, "--seed", 1)
    for command in (("table",), ("heatmap", "--compare", "mine.py:Theirs")):
        assert "were trained with different versions of mine.py:Theirs" in refused(*command)
    done(*trained, "--fresh")
    assert Path(run, "weights/final.safetensors").read_bytes() != weights
    assert "| mine.py:Theirs |" in done("table").out
    file.unlink()
    assert "'mine.py': there is no such file" in refused("score", run)
    assert f"  {run}: trained; grid" in done("list").out.splitlines()
    assert "| mine.py:Theirs |" in done("table").out


DEAD = """
class Mine(PositionalEncoding):
    def __init__(self, setting):
        super().__init__(setting)
        self.unused = nn.Parameter(torch.zeros(3))
"""


@pytest.mark.parametrize(
    ("source", "told"),
    [(SLIPS["causal"][0], "(causal): another last token"), (DEAD, "(no dead parameter): ")],
)
def test_what_would_give_no_score_is_not_trained(source: str, told: str, folder: Path) -> None:
    """A leak scores well by one teacher-forced pass; a dead parameter ends in a long traceback."""
    Path("mine.py").write_text(HEAD + source)
    Path("a.toml").write_text('preset = "mini"\nencodings = ["rope", "mine.py:Mine"]\nseeds = [0]')
    for command in (
        ("train", "--pe", "mine.py:Mine", *settings()),
        ("run", "--pe", "rope,mine.py:Mine", *settings()),
        ("sweep", "a.toml"),
    ):
        line = refused(*command)
        assert "mine.py:Mine" in line and told in line and "`tape-arith check mine.py:Mine" in line
    assert not Path("runs").exists()


def test_what_fails_in_mid_training_is_blamed(folder: Path) -> None:
    """At a width that no check has met."""
    Path("mine.py").write_text(
        HEAD + "\n\nclass Mine(PositionalEncoding):\n"
        "    def embed(self, x, index, seqs):\n"
        "        if x.shape[-1] == 24:\n            raise KeyError('far')\n        return x\n"
    )
    line = refused(
        "train",
        "--pe",
        "mine.py:Mine+rope",
        *settings(hidden_size=24, head_dim=12),
        code=1,
        after=True,
    )
    assert "mine.py:Mine+rope failed: KeyError: 'far' (line 13 of mine.py)" in line
    assert "`tape-arith check mine.py:Mine+rope`" in line


def test_the_code_that_runs_is_what_was_hashed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two edits within a second, of one size: bytecode kept beside the file would be stale."""
    file = Path("mine.py")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for value in ("1", "2", "1"):
        file.write_text(f"VALUE = {value}\n")
        os.utime(file, (1, 1))
        module = locate("encoding", "mine.py:Mine").load()
        assert vars(module)["VALUE"] == int(value)
        assert locate("encoding", "mine.py:Mine").load() is module
    assert not Path("__pycache__").exists()


def test_a_file_that_raises_is_not_half_imported(folder: Path) -> None:
    Path("mine.py").write_text("x = 1\nraise KeyError('here')\n")
    place = locate("encoding", "mine.py:Mine")
    for _ in range(2):
        with pytest.raises(UsageError, match=r"KeyError: 'here' \(line 2 of mine\.py\)"):
            place.load()


def test_what_is_found_without_importing(site: Path) -> None:
    """Modules in packages, in packages without __init__, and none that is not plain source."""
    (site / "theirs" / "space").mkdir(parents=True)
    (site / "theirs" / "space" / "mine.py").write_text("raise RuntimeError\n")
    found = source_file("theirs.space.mine")
    assert found == site / "theirs" / "space" / "mine.py"
    assert source_file("models.decoder") == ROOT / "models/decoder.py"
    assert source_file("theirs.space") is None
    assert source_file("sys") is None


def test_what_a_class_without_a_readable_base_does(folder: Path) -> None:
    """It counts as attention, which is right of most; a base in a file that can be read tells."""
    lines = "from models.encodings.rope import RoPE\nfrom models.encodings.abacus import Abacus\n"
    lines += "import models.encodings.abacus as a\n"
    bases = {"Turns": ("RoPE", True), "Adds": ("Abacus", False), "Unknown": ("a.Abacus", True)}
    Path("mine.py").write_text(
        lines + "".join(f"class {name}({base}):\n    pass\n" for name, (base, _) in bases.items())
    )
    for name, (_, attends) in bases.items():
        assert defines_attention(locate("encoding", f"mine.py:{name}")) is attends
    assert str(parse("rope+mine.py:Adds")) == "mine.py:Adds+rope"
    assert str(parse("mine.py:Turns+coupling")) == "coupling+mine.py:Turns"


def test_bases_of_the_same_name_and_in_a_circle(folder: Path) -> None:
    lines = (
        "from models.encodings.abacus import Abacus\nfrom models.encodings.rope import RoPE\n\n\n"
    )
    for name, attends in (("Abacus", False), ("RoPE", True)):
        Path("mine.py").write_text(f"{lines}class {name}({name}):\n    pass\n")
        assert defines_attention(locate("encoding", f"mine.py:{name}")) is attends
    Path("mine.py").write_text("class A(B):\n    pass\n\n\nclass B(A):\n    pass\n")
    assert defines_attention(locate("encoding", "mine.py:A")) is True


def test_places_for_people() -> None:
    assert str(locate("encoding", "rope")) == "models/encodings/rope.py"
    assert str(Location("x", None, "a.b", package="p 1")) == "package p 1 (a.b)"


def test_the_readme_s_example(folder: Path) -> None:
    """The encoding that the README shows keeps the contract, and what else it shows runs."""
    example, *scripts = re.findall(r"^```python\n(.*?)^```$", README, flags=re.M | re.S)
    Path("mine.py").write_text(example)
    found = json.loads(done("check", "mine.py:Mine", "--json").out)
    assert found["holds"] and len(found["warnings"]) == 1, "all is said but whether it is right"
    assert found["name"] == "mine.py:Mine"
    done("train", "--pe", "mine.py:Mine:slope=0.5", *settings(steps=2))
    for script in scripts:
        Path("twin.py").write_text(script)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        run = subprocess.run([sys.executable, "twin.py"], env=environment, capture_output=True)
        assert run.returncode == 0, run.stderr.decode()
