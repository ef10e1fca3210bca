"""What calls from Python say that a command line would refuse earlier, or never makes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

import tape_arith
from tape_arith.arith.data.bucket import CARRY, Bucket
from tape_arith.arith.data.dataset import Dataset
from tape_arith.arith.data.write_dataset import generate
from tape_arith.arith.errors import Corrupt, Failure, UsageError
from tape_arith.arith.files import write_text
from tape_arith.arith.grids.panel import Panel, panels_of
from tape_arith.arith.harness.score import Answers
from tape_arith.arith.runs.options import TrainOptions
from tape_arith.arith.tasks.load import load_task
from tape_arith.models.attention import Needs
from tape_arith.models.backends import choose_backend
from tape_arith.models.hardware import Hardware
from tests.helpers.made_grids import flat
from tests.helpers.messages import is_of
from tests.helpers.small_decoders import build, digits, setting

CPU, GPU = Hardware("cpu", torch.float32), Hardware("cuda", torch.bfloat16)
NUMBER: Any = 5
WORD: Any = "go"
BUCKET = Bucket("addition", 8, 0, "train")


def made() -> Dataset:
    generate(Path("data"), BUCKET, 100)
    return Dataset(Path("data"))


def damage(name: str, place: int) -> None:
    file = Path("data", name)
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def foreign() -> None:
    Path("thesis.tex").touch()
    generate(Path(), BUCKET, 100)


def read_damaged() -> None:
    made()
    damage("lengths.npy", 150)
    Dataset(Path("data")).problems(0, 100)


def answered(text: str, **request: Any) -> None:
    Path("answers.jsonl").write_text(text)
    Answers(Path("answers.jsonl"), request)


def embedded(name: str, text: str) -> None:
    pe, seqs = build(name, setting()).eval(), digits(text)
    pe.embed(torch.zeros(*seqs.tokens.shape, 24), pe.indices(seqs), seqs)


CALLS: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    # Data.
    "a bucket of too many digits": (
        lambda: Bucket("addition", 701, 0, "train"),
        UsageError,
        "operands have 1 to 700 digits, not 701",
    ),
    "a negative index": (
        lambda: BUCKET.problems(-1, 3),
        ValueError,
        "problems are numbered from 0 on: there is no range -1 .. 3",
    ),
    "hard problems of a list": (
        lambda: Bucket("sort", 3, 0, CARRY, 3),
        UsageError,
        "task sort has no split 'carry', only 'evaluation'",
    ),
    "too long to store": (
        lambda: Bucket("multiplication:scratchpad=true", 300, 0, "train").problems(0, 9),
        UsageError,
        "task multiplication:scratchpad=true has problems of up to 271,502 tokens at these "
        "lengths: give lengths with 65,535 at most",
    ),
    "markers that do not reach": (
        lambda: Bucket("addition:hints=true", 150, 0, "train"),
        UsageError,
        "task addition:hints=true has numbers of up to 151 digits, and 64 markers do not reach "
        "them: give fewer digits",
    ),
    "a problem of another task": (
        lambda: load_task("sort").parse("1+2"),
        UsageError,
        "'1+2' is no problem of sort: write it as in 45,7,123, with numbers from 1 on, without "
        "leading zeros",
    ),
    "beyond the last problem": (
        lambda: made().problems(0, 101),
        ValueError,
        "data holds 100 problems from 0 on: there is no range 0 .. 101",
    ),
    "no dataset": (
        lambda: Dataset(Path("none")),
        UsageError,
        "none holds no finished dataset (no manifest.json): tape-arith generate --out none, "
        "with its options (--preset, --set, --task, --count, --seed), writes one",
    ),
    "a folder with other files": (
        foreign,
        UsageError,
        ". holds other files (thesis.tex, ...): choose an empty folder with --out",
    ),
    "no problem": (
        lambda: generate(Path("data"), BUCKET, 0),
        UsageError,
        "0 problems are no dataset: give --count 1 or more",
    ),
    "no worker": (
        lambda: generate(Path("data"), BUCKET, 9, workers=-1),
        UsageError,
        "-1 workers cannot write problems: give --workers 1 or more",
    ),
    "a damaged file": (
        read_damaged,
        Failure,
        "data/lengths.npy: corrupt, the hash is wrong; tape-arith generate --fresh --out data, "
        "with the options of the dataset (--preset, --set, --task, --count, --seed), writes it "
        "again",
    ),
    # Answers of a language model.
    "the answers of another model": (
        lambda: answered('{"model": "one", "shots": 0}\n', model="two", shots=0),
        UsageError,
        "answers.jsonl answers another request (model one, not two): choose another --out, or "
        "--fresh to ask again",
    ),
    "a line that is no answer": (
        lambda: answered('{"shots": 0}\n{"problem": "1+2"}\n', shots=0),
        Corrupt,
        "answers.jsonl is corrupt: a line has no problem or no answer; --fresh asks again",
    ),
    # Grids.
    "a seed that is not there": (
        lambda: Panel.of([flat("fire", 0)]).only(1),
        UsageError,
        "fire has no seed 1: it has seed 0",
    ),
    "two versions of a task": (
        lambda: panels_of([flat("rope"), flat("fire", evaluation={"version": 2})]),
        UsageError,
        "one figure needs one preset, budget and evaluation set, and fire seed 0 differs from "
        "rope seed 0 (version 2, not 1): draw them apart, or train and score them alike",
    ),
    # Figures.
    "a font that is missing": (
        lambda: tape_arith.heatmap([flat("rope"), flat("fire")], font="Seriph"),
        UsageError,
        "no font is called 'Seriph' here: give serif, sans-serif, monospace or the name of an "
        "installed font",
    ),
    "one axes for two": (
        lambda: tape_arith.heatmap([flat("rope"), flat("fire")], axes=Figure().subplots()),
        UsageError,
        "2 panels need 2 axes (a third shows their difference), not 1",
    ),
    "axes for lines": (
        lambda: tape_arith.heatmap([flat("rope")], by_length=True, axes=Figure().subplots()),
        UsageError,
        "axes are for heatmaps: leave them out where lengths are drawn as lines",
    ),
    # Encodings and attention.
    "an odd width": (
        lambda: build("sinusoidal", setting(hidden_size=15)),
        UsageError,
        "sinusoidal needs an even hidden_size, not 15",
    ),
    "past a learned table": (
        lambda: embedded("learned", "1" * 53),
        UsageError,
        "index 52 lies past the end of a learned table of 52 rows (0 to 51); keep sequences "
        "within 52 tokens or train with more rows",
    ),
    "past a table of places": (
        lambda: build("abacus:k=3", setting()).eval().indices(digits("1" * 90)),
        UsageError,
        "a digit has the index 90, and the table of Abacus ends at 55: score fewer digits, or "
        "train with a larger tested_digits",
    ),
    "past random indices": (
        lambda: build("rand-rope:l_max=60", setting()).indices(digits("1" * 61)),
        UsageError,
        "a sequence may grow to 64 tokens but positions are drawn from only l_max=60; choose a "
        "larger l_max",
    ),
    "a backend without a bias of its own for each sequence": (
        lambda: choose_backend("fused", Needs(bias="learned", packed=False), CPU),
        UsageError,
        "attention backend 'fused' adds only a bias that all sequences share; what can do it here: "
        "auto, eager, sdpa",
    ),
    "a backend of GPUs": (
        lambda: choose_backend("varlen", Needs(bias="learned", packed=False), CPU),
        UsageError,
        "attention backend 'varlen' needs a CUDA GPU; what can do it here: auto, eager, sdpa",
    ),
    # The API.
    "a number for a name": (
        lambda: tape_arith.train(NUMBER),
        UsageError,
        "--pe must be text, not 5",
    ),
    "a number for a flag": (
        lambda: tape_arith.train("rope", fresh=NUMBER),
        UsageError,
        "--fresh must be true or false, not 5",
    ),
    "an unknown policy": (
        lambda: TrainOptions(on_nonfinite=WORD),
        UsageError,
        "unknown policy for --on-nonfinite 'go': Known: skip, stop",
    ),
    "no seed": (
        lambda: tape_arith.run("rope", seeds=[], preset="mini"),
        UsageError,
        "there is no seed: give one or more, as in seeds=[0, 1]",
    ),
    "one dataset for several": (
        lambda: tape_arith.run("rope", preset="mini", options=TrainOptions(data=Path("data"))),
        UsageError,
        "a dataset belongs to one training: many runs take a folder of datasets",
    ),
    "no grid": (lambda: tape_arith.load_grids("."), UsageError, "no scored run of all in ."),
    # Files.
    "a folder for a file": (
        lambda: write_text(Path.cwd(), "x"),
        Failure,
        "cannot write .../...: it is a folder",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_is_said(name: str, here: Path) -> None:
    call, kind, sentence = CALLS[name]
    with pytest.raises(kind) as caught:
        call()
    assert is_of(str(caught.value), sentence), str(caught.value)
