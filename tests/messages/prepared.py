"""Working folders with trained runs to which something has happened, and rows over them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.helpers.documents import edit, edit_machine, edit_text
from tests.helpers.made_grids import interrupt
from tests.helpers.tiny_runs import done, settings

Table = dict[Callable[[], None], dict[str, str]]
"""By what is done to the folder: command lines, and the sentence that each is answered."""


def rows(**tables: Table) -> list[tuple[Callable[[], None], int, str, str]]:
    """Return (preparation, exit code, command line, sentence) of each row of the three tables."""
    codes = {"noted": 0, "failed": 1, "refused": 2}
    return [
        (prepare, codes[kind], line, sentence)
        for kind, table in tables.items()
        for prepare, sentences in table.items()
        for line, sentence in sentences.items()
    ]


RUNS = Path("runs/mini")
FIRE, ROPE, TAPE = (RUNS / name / "seed-0" for name in ("fire", "rope", "tape"))


def as_trained() -> None:
    """Runs of rope, fire and tape, two seeds each; those of tape are scored with yarn only."""


def rope_packed() -> None:
    done("pack", "runs", "-o", "labs/lab.tgz")


def rope_without_weights() -> None:
    shutil.rmtree(ROPE / "weights")


def tape_interrupted() -> None:
    weights = TAPE / "weights"
    (weights / "final.safetensors").rename(weights / "latest.safetensors")


def fire_scored_in_part() -> None:
    interrupt(FIRE / "grid.json")


def one_fire_scored_in_part() -> None:
    fire_scored_in_part()
    shutil.rmtree(RUNS / "fire/seed-1")


def fire_on_version_2() -> None:
    for file in (RUNS / "fire").rglob("grid.json"):
        edit_text(file, '"version": 1', '"version": 2')


def fire_in_bfloat16() -> None:
    for file in RUNS.glob("*/*/run.json"):
        edit_machine(file, dtype="bfloat16")
    edit_machine(FIRE / "run.json", dtype="float32")
    edit(RUNS / "fire/seed-1/run.json", machines=[])


def fire_with_other_settings() -> None:
    shutil.rmtree(RUNS / "fire")
    done("train", "--pe", "fire", *settings(learning_rate=0.002, clip=0.25))


def rope_extended() -> None:
    done("train", ROPE, "--steps", 8, "--no-score")


def rope_on_version_2() -> None:
    edit_text(ROPE / "run.json", '"task_version": 1', '"task_version": 2')


def rope_on_other_problems() -> None:
    data = '"data": "'
    text = (ROPE / "run.json").read_text()
    digest = text[text.index(data) + len(data) :][:64]
    edit_text(ROPE / "run.json", digest, "ab" * 32)


def rope_with_another_small_grid() -> None:
    """Of versions before 0.11, which have other lengths from 17 digits on."""
    file = RUNS / "rope/seed-1/metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        del line["small_grid"]["by_length"]["3"]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def two_presets() -> None:
    shutil.copytree(RUNS, "runs/paper-20")
    for file in Path("runs/paper-20").glob("*/*/*.json"):
        if '"mini"' in file.read_text():
            edit_text(file, '"mini"', '"paper-20"')


def a_corrupt_record() -> None:
    (RUNS / "tape/seed-1/run.json").write_text("{")


def a_corrupt_grid() -> None:
    (FIRE / "grid.json").write_text("{")


def a_linked_folder() -> None:
    (ROPE / "weights").rename("weights")
    (ROPE / "weights").symlink_to(Path("weights").absolute())


def rope_on_carries() -> None:
    done("score", ROPE, "--split", "carry")


def a_model() -> None:
    done("train", "--model", "gru", *settings(), "--no-score")


def rope_exported() -> None:
    done("export", ROPE, "--out", "there")


def problems_as_text() -> None:
    done("generate", "--format", "text", *settings())
    done("generate", "--out", "other-seed", *settings(), "--seed", 1)
