"""Encodings on the tasks: which they refuse, how they number digits, how large tables are.

`python -m tests.models.test_tasks` writes the table of models/README.md anew.
"""

import re
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import chain, product
from pathlib import Path

import numpy as np
import pytest
import torch

from tape_arith.arith.contracts import examples
from tape_arith.arith.contracts.examine import examine
from tape_arith.arith.contracts.promises import as_text
from tape_arith.arith.data.rows import pad
from tape_arith.arith.decoders.build import setting_for
from tape_arith.arith.errors import UsageError
from tape_arith.arith.registry.locate import declarations, known_names
from tape_arith.arith.registry.names import parse, parse_task
from tape_arith.arith.runs.config import Config
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.tasks.load import load_task
from tape_arith.models.encoding import Setting
from tape_arith.models.errors import UndefinedEncoding
from tape_arith.models.families.learned_table import PlaceTable
from tape_arith.models.sequences import Sequences
from tests.helpers.oracles import tables
from tests.helpers.small_decoders import build, digits, packed_digits, setting
from tests.helpers.tiny_runs import SETTINGS, refused, settings, untouched

README = Path(__file__).parents[2] / "models" / "README.md"
BEGIN, END = "<!-- begin of the table -->\n", "<!-- end of the table -->\n"
FORMATS = "order=plain", "pad=true", "hints=true", "spaces=2", "scratchpad=true", "b_digits=2"
ENCODINGS = known_names("encoding")


def config_of(task: str) -> Config:
    """Return a tiny config, whose tested lengths are twice the trained ones."""
    sizes = SETTINGS | {"trained_digits": "3", "tested_digits": "6"}
    if any(axis.counts == "operands" for axis in load_task(task).axes):
        sizes |= {"trained_operands": "3", "tested_operands": "4"}
    return load_preset("mini").with_settings({**sizes, "task": task})


@cache
def setting_of(task: str) -> Setting:
    return setting_for(config_of(task))


@cache
def formats() -> list[str]:
    """Return every task, and every task with one option of FORMATS, if it has that option."""
    texts = []
    for task in known_names("task"):
        texts.append(task)
        for option in FORMATS:
            with suppress(UsageError):
                texts.append(str(parse_task(f"{task}:{option}")))
    return texts


@cache
def defined(name: str, task: str) -> bool:
    try:
        build(name, setting_of(task))
    except UndefinedEncoding:
        return False
    return True


# ---- which encoding refuses which task -----------------------------------------------------------


def table() -> str:
    columns = [name for name in ENCODINGS if not all(defined(name, task) for task in formats())]
    lines = [f"| task | {' | '.join(f'`{name}`' for name in columns)} |", "|---" * 3 + "|"]
    for task in known_names("task"):
        cells = []
        for name in columns:
            options = [text for text in formats() if text.startswith(f"{task}:")]
            but = [f"`{t.partition(':')[2]}`" for t in options if not defined(name, t)]
            usual = f"yes, except for {', '.join(but)}" if but else "yes"
            cells.append(usual if defined(name, task) else "no")
        lines.append(f"| {task} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def test_the_table_of_the_readme_is_current() -> None:
    assert README.read_text("utf-8").partition(BEGIN)[2].partition(END)[0] == table()


@pytest.mark.parametrize(
    ("name", "task", "reason"),
    [
        *(("coupling", task, "not those of lists") for task in ("sort", "or", "parity")),
        *(("coupling", task, "scratchpads") for task in ("modular-sum", "sum:scratchpad=true")),
        *(
            (name, "subtraction:order=plain", "least significant")
            for name in ("abacus", "coupling")
        ),
        ("coupling", "copy:hints=true", "no marker or blank"),
        ("abacus", "sort:spaces=2", "no marker or blank"),
    ],
)
def test_an_undefined_encoding_says_why(name: str, task: str, reason: str) -> None:
    with pytest.raises(UndefinedEncoding, match=reason):
        build(name, setting_of(task))


def test_it_is_not_trained(here: Path) -> None:
    with untouched(here):
        line = refused("train", "--pe", "abacus+fire", "--task", "copy:hints=true", *settings())
    assert line.startswith("abacus+fire") and "copy:hints=true" in line


# ---- the contract under the setting of each task -------------------------------------------------


def under(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the contract build decoders for `task`, and write its operator in the examples."""
    own = setting_of(task)
    names = ("separator_ids", "longest_number", "ascending", "unbroken", "coupled")
    changes = {name: getattr(own, name) for name in names}
    monkeypatch.setattr(examples, "SETTING", replace(examples.SETTING, **changes))
    operator, *others = own.separator_ids
    monkeypatch.setattr(examples, "PLUS", operator if others else examples.DIGITS[5])
    monkeypatch.setattr(examples, "VOCABULARY", len(load_task(task).vocabulary))


# To the other encodings a task is nothing but a length.
STRUCTURED = [d.name for d in declarations("encoding") if d.kind == "task-structured"]
PAIRS = list(product(STRUCTURED, known_names("task")))
FAST = (("coupling", "reverse"), ("bipe", "or"))


@pytest.mark.parametrize(
    ("name", "task"),
    [pytest.param(*pair, marks=() if pair in FAST else pytest.mark.slow) for pair in PAIRS],
)
def test_contract(name: str, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not defined(name, task):
        assert name == "coupling"
        return
    under(task, monkeypatch)
    report = examine(parse(name))
    assert report.holds, as_text(report)


# ---- numbers of digits, from the problems as text ------------------------------------------------

WRITTEN = [text for text in formats() if setting_of(text).unbroken and setting_of(text).ascending]


def problems_of(task: str) -> tuple[list[str], Sequences]:
    """Return tested problems as text without the end token, and as rows."""
    bucket = config_of(task).evaluation_bucket()
    problems = bucket.problems(0, 300)
    texts = load_task(task).vocabulary.decode(problems.tokens).split("[EOS]")[:-1]
    rows = pad(problems, bucket.keys(0, 300), np.arange(300))
    tokens, final_lengths, keys = map(
        torch.from_numpy, (rows.inputs, rows.final_lengths, rows.keys)
    )
    return texts, Sequences(tokens, final_lengths, keys)


def runs(text: str) -> list[str]:
    return re.findall("[0-9]+", text)


def abacus(task: str, text: str) -> list[int]:
    """The k-th digit of each number has the number k (arXiv 2405.17399)."""
    numbers = [[*range(1, len(run) + 1), 0] for run in re.split("[^0-9]", text)]
    return list(chain.from_iterable(numbers))[: len(text)]


def coupling(task: str, text: str) -> list[int]:
    """Digits of equal significance have one number, and so do the signs, from 1 on; in a copy or a
    reversed string each digit has the number of the digit it comes from (arXiv 2405.20671)."""
    string = text.partition("=")[0]
    if task == "reverse":
        return tables.mirrored_indices(len(string), len(string), 0, 1)
    return [place + 1 for place in abacus(task, text)]


def bipe(task: str, text: str) -> list[int]:
    """A sign is the last token of its segment (arXiv 2401.16421)."""
    return [len(re.findall("[^0-9]", text[:t])) for t in range(len(text))]


NUMBERINGS = {"abacus": abacus, "coupling": coupling, "bipe": bipe}


@pytest.mark.parametrize("task", WRITTEN)
def test_numbers_of_real_problems(task: str) -> None:
    texts, seqs = problems_of(task)
    for name, numbers in NUMBERINGS.items():
        if defined(name, task):
            index = build(name, setting_of(task)).eval().indices(seqs).tolist()
            for text, row in zip(texts, index, strict=True):
                assert row[: len(text)] == numbers(task, text), (name, text)


@pytest.mark.parametrize("name", NUMBERINGS)
def test_packed_digits_have_the_numbers_that_they_have_alone(name: str) -> None:
    """On both sides of a border they are no number, and a sign closes nothing of the next."""
    texts = ("12+345=753$", "7", "", "12+3", "45", "6=", "+1")
    pe = build(name, setting()).eval()
    together = pe.indices(packed_digits(*texts))[0].split(list(map(len, texts)))
    for packed, text in zip(together, texts, strict=True):
        assert not text or torch.equal(packed, pe.indices(digits(text))[0]), text


def test_a_copied_digit_has_the_number_of_its_origin() -> None:
    """Whatever the shift that a sequence draws in training."""
    for task, answer in (("copy", range(4)), ("reverse", range(3, -1, -1))):
        pe = build("coupling", setting_of(task)).train()
        index = pe.indices(digits(*["3014=0000$"] * 20))
        assert len(set(index[:, 0].tolist())) > 3  # shifts
        assert torch.equal(index[:, 5:9], index[:, list(answer)]) and not index[:, 9].any()


# ---- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", WRITTEN)
def test_every_tested_place_is_trained(task: str) -> None:
    """The longest tested number is as long as said, and training shifts reach its last place."""
    config, own = config_of(task), setting_of(task)
    longest = max(len(run) for text in problems_of(task)[0] for run in runs(text))
    assert own.longest_number - 1 <= longest <= own.longest_number
    trained = load_task(task).places(np.array([config.bucket(0).most]))
    for name in ("abacus", "coupling"):
        if defined(name, task):
            pe = build(name, own)
            assert isinstance(pe, PlaceTable)
            assert pe.high + int(trained[0]) >= pe.low + own.longest_number


def test_shifts_of_the_presets() -> None:
    """Of addition 1.25 x the digits of the longest tested operand, as always."""
    expected = {"mini": 20, "paper-20": 50, "paper-40": 100}
    # The longest numbers: 8 digits times one give 9, 6 numbers of 4 digits 5, and 24 are copied.
    expected |= {"mini-multiplication": 10, "mini-sum": 5, "mini-copy": 28}
    for preset, shift in expected.items():
        pe = build("abacus", setting_for(load_preset(preset)))
        assert isinstance(pe, PlaceTable) and pe.high == shift, preset


if __name__ == "__main__":
    text = README.read_text("utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    README.write_text(f"{before}{BEGIN}{table()}{END}{after}", "utf-8")
