"""A fuzzer that is guided by what of our readers its inputs reach, for those who have the time:

    python -m tests.robustness.fuzzing grid --seconds 600
    python -m tests.robustness.fuzzing all --seconds 60

It begins from what 0.3.0 wrote (`fixtures`), which no checksum guards, and from what it kept in
`--corpus` the last time. A finding ends it: the error, and the file that brings it about, in the
current folder. It needs atheris (Linux, or a Mac with a compiler of its own).
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parent / "fixtures" / "0.3.0"
MOST_BYTES = 20_000
SECONDS_A_FILE, MEGABYTES = 10, 2048


def slug(name: str) -> str:
    """ "grid's part" as on the command line: grids-part."""
    return name.replace("'", "").replace(" ", "-")


def lay(folder: Path) -> None:
    """A good file of every kind, as an older version wrote it."""
    from arith.suite import presets
    from tests.robustness.kinds import ENCODING, KINDS, PLAN, RUN, SWEEP

    for name in ("set", "half", "problems.txt", "problems.txt.json"):
        there = FIXTURES / name
        (shutil.copytree if there.is_dir() else shutil.copy)(there, folder / name)
    shutil.copytree(FIXTURES / "run", folder / RUN)
    shutil.copytree(FIXTURES / "sweep", folder / SWEEP)
    shutil.copytree(presets.FOLDER, folder / "presets")
    part = folder / KINDS["grid's part"].file
    part.parent.mkdir(parents=True)
    shutil.copy(FIXTURES / "run/grid.json", part)
    for kind, text in (
        ("sweep", PLAN),
        ("encoding", ENCODING),
        ("log", "$ tape-arith train\nno space\n"),
        ("lock", '{"host": "x", "pid": 3, "token": "a", "work": "train"}'),
        ("exported run", '{"schema": 1, "kind": "exported run"}'),
    ):
        file = folder / KINDS[kind].file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def fuzz(name: str, seconds: int, corpus: Path | None) -> None:
    """Never returns: the process ends with 0 where nothing was found."""
    atheris = import_module("atheris")
    with atheris.instrument_imports(include=["arith", "models"]):
        from arith.errors import Failure, UsageError
        from tests.robustness.kinds import KINDS

    kind = next(kind for key, kind in KINDS.items() if slug(key) == name)
    home = Path.cwd()
    kept = (corpus or Path(tempfile.mkdtemp())).absolute()
    kept.mkdir(parents=True, exist_ok=True)
    world = Path(tempfile.mkdtemp())
    lay(world)
    os.chdir(world)
    shutil.copy(kind.file, kept / "good")

    def one(content: bytes) -> None:
        kind.file.write_bytes(content)
        try:
            kind.read(kind.file)
        except (Failure, UsageError) as error:
            message = str(error)
            assert kind.file.stem in message or kind.file.parent.name in message, message
            assert "\n" not in message, message

    limits = {
        "max_total_time": seconds,
        "max_len": MOST_BYTES,
        "timeout": SECONDS_A_FILE,
        "rss_limit_mb": MEGABYTES,
        "artifact_prefix": f"{home}/{name}-",
        "verbosity": 0,
        "print_final_stats": 1,
    }
    options = [f"-{key}={value}" for key, value in limits.items()]
    atheris.Setup([sys.argv[0], *options, str(kept)], one)
    atheris.Fuzz()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.fuzzing")
    parser.add_argument("kind", help="a kind of file, or all of them one after the other")
    parser.add_argument("--seconds", type=int, default=60, help="for each kind")
    parser.add_argument("--corpus", type=Path, help="a folder of inputs, which grows")
    given: Any = parser.parse_args()
    try:
        import_module("atheris")
    except ImportError:
        sys.exit("the fuzzer needs atheris: pip install atheris")
    if given.kind != "all":
        fuzz(given.kind, given.seconds, given.corpus)
    from tests.robustness.kinds import KINDS

    found = []
    for name in map(slug, KINDS):
        command = [sys.executable, "-m", "tests.robustness.fuzzing", name]
        command += ["--seconds", str(given.seconds)]
        command += ["--corpus", str(given.corpus / name)] if given.corpus else []
        print(f"== {name}", flush=True)
        if subprocess.run(command, check=False).returncode:
            found.append(name)
    sys.exit(f"found something: {', '.join(found)}" if found else 0)


if __name__ == "__main__":
    main()
