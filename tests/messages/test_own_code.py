"""What commands say of a user's encoding, task, preset or sweep that is wrong."""

from pathlib import Path

import pytest

from tests.helpers.messages import assert_says
from tests.helpers.tiny_runs import contents

ENCODING = """from tape_arith.models.encoding import PositionalEncoding


class Mine(PositionalEncoding):
    def __init__(self, setting, *, scale: float = 1.0):
        super().__init__(setting)
        {init}

    def embed(self, x, index, seqs):
        return {embedded}


{end}
"""
TASK = """from tape_arith.arith.tasks.families.strings import OneString


class Copy(OneString):
    version = 1
    example = "304"
    {body}

    def answer(self, string):
        return string

    def answer_digits(self, lengths):
        return lengths[:, 0]
"""
MODEL = """from torch import nn


class {name}({base}):
    def __init__(self, setting):
        super().__init__()
        self.embedding = nn.Embedding(setting.vocabulary_size, setting.vocabulary_size)

    def forward(self, tokens, lengths):
        return self.embedding(tokens){result}
"""
SWEEP = 'preset = "mini"\nencodings = ["rope"]\nseeds = [0]\n'


def encoding(*, init: str = "pass", embedded: str = "x", end: str = "") -> dict[str, str]:
    return {"mine.py": ENCODING.format(init=init, embedded=embedded, end=end)}


def model(name: str = "Mine", base: str = "nn.Module", result: str = "") -> dict[str, str]:
    return {"mine.py": MODEL.format(name=name, base=base, result=result)}


def task(body: str = "") -> dict[str, str]:
    return {"own.py": TASK.format(body=body)}


TRAIN = "train --preset mini --pe rope --task"

REFUSED: list[tuple[dict[str, str], str, str]] = [
    *(
        (
            {"mine.toml": SWEEP},
            f"status {name} --runs m",
            "the sweep mine was not started in m: `tape-arith sweep mine.toml --runs m` starts it",
        )
        for name in ("mine", "mine.toml")
    ),
    (
        encoding(end="raise KeyError('here')"),
        "train --pe mine.py:Mine TINY",
        "mine.py:Mine cannot be imported: KeyError: 'here' (line 13 of mine.py)",
    ),
    (
        encoding(end="import sys; sys.exit(0)"),
        "check mine.py:Mine",
        "mine.py:Mine cannot be imported: SystemExit: 0 (line 13 of mine.py)",
    ),
    (
        encoding(embedded="x.flip(1)"),
        "train --pe mine.py:Mine TINY",
        "mine.py:Mine breaks a promise (causal): another last token, at place 19, changed the "
        "logits of 19 earlier places, from place 0 on; `tape-arith check mine.py:Mine` checks "
        "all promises",
    ),
    (
        encoding(embedded="x[:, 1:]"),
        "train --pe mine.py:Mine TINY",
        "mine.py:Mine breaks a promise (hooks): Mine.embed returned float64 [3, 19, 16]; it "
        "returns float64 [B, T, D] (here B = 3, T = 20, D = 16, H = 2, K = 8); `tape-arith "
        "check mine.py:Mine` checks all promises",
    ),
    (
        model(result="[:, 1:]"),
        "train --model mine.py:Mine TINY",
        "mine.py:Mine breaks a promise (builds): TypeError: forward returned [3, 19, 19], not "
        "logits [B, T, V] = [3, 20, 19]; `tape-arith check mine.py:Mine` checks all promises",
    ),
    (
        model(result=".max(-1)"),
        "train --model mine.py:Mine TINY",
        "mine.py:Mine breaks a promise (builds): TypeError: forward returned max, not logits "
        "[B, T, V] = [3, 20, 19]; `tape-arith check mine.py:Mine` checks all promises",
    ),
    (
        model(result=" / 0"),
        "train --model mine.py:Mine TINY",
        "mine.py:Mine breaks a promise (shape): logits that are not finite; `tape-arith check "
        "mine.py:Mine` checks all promises",
    ),
    (
        model(base="nn.Linear"),
        "train --model mine.py:Mine TINY",
        "mine.py:Mine is no encoding: it must be a subclass of PositionalEncoding, or say that "
        "its kind is 'other model'",
    ),
    (
        model(),
        "check aug-mine.py:Mine",
        "aug-mine.py:Mine: Mine is a model, not an encoding: leave aug- out",
    ),
    (
        model(),
        "train --model mine.py:Mine TINY --set norm=post",
        "norm, loops, input_injection and attention_scale change the decoder, and a model brings "
        "its own: leave them out",
    ),
    (
        task(),
        f"{TRAIN} sort+copy",
        "unknown task 'sort+copy': did you mean 'sort'? Known: ...",
    ),
    (
        task(),
        f"{TRAIN} sort:modulus=3",
        "unknown option of sort 'modulus': Known: order, pad, spaces",
    ),
    (
        task(),
        f"{TRAIN} modular-sum:modulus=1",
        "task modular-sum:modulus=1: modulus=1: give 2 to 10,000",
    ),
    (
        task(),
        f"{TRAIN} addition:hints=maybe",
        "'addition:hints=maybe': hints must be one of true, false, not 'maybe'",
    ),
    (
        task(),
        f"{TRAIN} sort",
        "task sort has 2 to 700 operands, not 0: set trained_operands and tested_operands, or "
        "take a preset of this task (`tape-arith list`)",
    ),
    (
        task(),
        f"{TRAIN} addition:hints=true:markers=2",
        "task addition:hints=true:markers=2 has numbers of up to 4 digits, and 2 markers do not "
        "reach them: give markers=4 or more, or fewer digits",
    ),
    (
        task(),
        f"{TRAIN} gone.py:Task",
        "'gone.py': there is no such file, as seen from this folder",
    ),
    (
        task("symbols = '→'"),
        f"{TRAIN} own.py:Copy",
        "own.py:Copy: task own.py:Copy: ValueError: '→' in `symbols` is not in Latin-1, and a "
        "text file has a byte a token: take another symbol",
    ),
    (
        task("axes = ()"),
        f"{TRAIN} own.py:Copy",
        "task own.py:Copy breaks a promise (builds: axes of nothing); `tape-arith check "
        "own.py:Copy` checks all promises",
    ),
    (
        {"run.toml": SWEEP},
        "sweep run.toml --dry-run",
        "run.toml: the command `run` has its logs under this name: rename the file",
    ),
]

SWEEPS = {
    SWEEP + "[grid]\nlearning_rate = [0.5]\n[tune]\nlearning_rate = [0.1, 0.2]": (
        ": learning_rate is in [grid] and in [tune]: leave it out of one"
    ),
    "encodngs = []": ": unknown key 'encodngs': did you mean 'encodings'? Known: ...",
    'encodings = ["rope"]\nseeds = [0]': ": 'preset' is missing: give one, or several as presets",
    SWEEP.replace("mini", "minni"): ": unknown preset 'minni': did you mean 'mini'?",
    'presets = ["mini"]\n' + SWEEP: ": give preset or presets, not both",
    SWEEP.replace("rope", "rpoe"): ": unknown encoding 'rpoe': did you mean 'rope'?",
    SWEEP.replace('"rope"', '"rope", "rope"'): ": rope is named twice",
    SWEEP.replace('"rope"', '"rope", "nope@from=rope"'): (
        ": rope and nope@from=rope do not start alike, so they are never in one table: give each "
        "a sweep of its own (a sweep also trains the runs that others start from)"
    ),
    SWEEP.replace('["rope"]', "[]"): ": 'encodings' must have at least 1 item, not 0",
    SWEEP.replace("[0]", "[-1]"): ": 'seeds.0' must be at least 0, not -1",
    'preset = "mini"': ": give encodings and seeds, or [[groups]] that have them",
    'preset = "mini"\n[[groups]]\nseeds = [0]': ": [groups]: 'encodings' is missing",
    'preset = "mini"\n[[groups]]\nseed = [0]': (
        ": [groups]: unknown key 'seed': did you mean 'seeds'? Known: encodings, presets, seeds"
    ),
    SWEEP + 'splits = ["hard"]': ": unknown split 'hard': Known: carry, evaluation",
    SWEEP + 'contrasts = ["rope - tape"]': ": unknown encoding of this sweep 'tape': Known: rope",
    SWEEP + 'contrasts = ["rope"]': (
        ": a contrast reads A - B with spaces, as in 'aug-rope - rope', not 'rope'"
    ),
    SWEEP + 'contrasts = ["fire - rope"]\n[grid]\nsteps = [2, 3]': (
        ": contrasts need one preset without [grid] or [tune]: others are no table"
    ),
    SWEEP + "[set]\nstep = 3": ": unknown key 'step': did you mean 'steps'?",
    SWEEP + "[tune]\nlearning_rate = [1e-3, 1e-3]": ": learning_rate=0.001 is named twice",
    SWEEP + "[tune]\nlearning_rate = [1e-3, -1.0]": (
        ": 'learning_rate' must be greater than 0, not -1.0"
    ),
    SWEEP + "[tune]\nsteps = [1, 2]": ": [tune]: unknown key 'steps': Known: learning_rate",
    SWEEP + "[grid]\nhiden_size = [8]": (": unknown key 'hiden_size': did you mean 'hidden_size'?"),
    SWEEP + "[grid]\nhidden_size = 8": ": 'grid.0.hidden_size' must be a list, not 8",
    SWEEP + "[grid]\nsteps = [0, 1]": ": 'steps' must be at least 1, not 0",
    SWEEP + "[grid]\nsteps = [2, 3, 2]": ": steps=2 is named twice",
    "preset = ": " is not TOML: ...",
}


@pytest.mark.parametrize("text", SWEEPS)
def test_what_is_wrong_in_a_sweep_is_said(text: str, here: Path) -> None:
    Path("mine.toml").write_text(text)
    assert_says("sweep mine.toml --dry-run", 2, f"mine.toml{SWEEPS[text]}")
    assert contents(here).keys() == {"mine.toml"}


@pytest.mark.parametrize(("files", "line", "sentence"), REFUSED)
def test_what_is_wrong_is_said(files: dict[str, str], line: str, sentence: str, here: Path) -> None:
    for name, text in files.items():
        Path(name).write_text(text)
    assert_says(line, 2, sentence)
    assert contents(here).keys() == files.keys()
