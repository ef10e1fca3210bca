"""What the commands that compare runs say."""

import pytest

from tests.helpers.messages import assert_says
from tests.messages import prepared
from tests.messages.prepared import Table, rows

REFUSED: Table = {
    prepared.as_trained: {
        "heatmap --pe fire,nope,tape,tape+yarn": (
            "no scored run of nope, tape in runs/mini: tape-arith train --pe nope --preset mini; "
            "tape-arith score runs/mini/tape/seed-0"
        ),
        "heatmap --pe rope+yarn": (
            "no scored run of rope+yarn in runs/mini: tape-arith score runs/mini/rope/seed-0 "
            "--with yarn"
        ),
        "heatmap --pe fire --preset paper-20": (
            "no scored run of fire in runs/paper-20: tape-arith train --pe fire --preset paper-20"
        ),
        "heatmap --pe fire,rope --runs runs/mini": (
            "no scored run of fire, rope in runs/mini/mini: runs/mini is the folder of one "
            "preset: name that of all runs, --runs runs"
        ),
        "heatmap --pe fire,rope --runs runs/mini/rope": (
            "no scored run of fire, rope in runs/mini/rope/mini: runs/mini/rope is the folder of "
            "one encoding: name that of all runs, --runs runs"
        ),
        "curves --pe rope,fire,nope --runs runs/mini/rope/seed-0": (
            "no run of rope in runs/mini/rope/seed-0/* with the others: runs/mini/rope/seed-0 is "
            "the folder of a run: name that of all runs, --runs runs"
        ),
        "leaderboard --runs runs/mini": (
            "no scored run in runs/mini: runs/mini is the folder of one preset: name that of all "
            "runs, --runs runs"
        ),
        "curves --pe rope --figure .png": (
            "cannot draw .png: a figure's name ends in .png, .svg or .pdf"
        ),
        "heatmap --pe fire --seed 7": "fire has no seed 7: it has seeds 0, 1",
        "heatmap --pe all --seed 7": "no scored run of seed 7 in runs",
        "heatmap --pe rope,nope,tape+yarn --split carry": (
            "no scored run of rope, nope, tape+yarn in runs/mini on the split carry: tape-arith "
            "score runs/mini/rope/seed-0 --split carry; tape-arith train --pe nope --preset mini; "
            "tape-arith score runs/mini/tape/seed-0 --with yarn --split carry"
        ),
        "heatmap --pe rope,fire --max-digits 4": (
            "no scored run of rope, fire in runs/mini to 4 digits: tape-arith score "
            "runs/mini/rope/seed-0 --max-digits 4; tape-arith score runs/mini/fire/seed-0 "
            "--max-digits 4"
        ),
        "leaderboard --label fox=Fox": (
            "no encoding 'fox' to label, only fire, rope, tape+yarn, tape"
        ),
        "leaderboard --show al_cells": ("unknown column 'al_cells': did you mean 'all_cells'?"),
        "leaderboard --json --show rank": (
            "JSON always has everything: leave --show out, or write --csv"
        ),
        "leaderboard --contrast fire-tape": ("unknown encoding 'fire-tape': did you mean 'tape'?"),
        "leaderboard --contrast 'fire - fire'": (
            "a contrast reads A - B with spaces, as in 'aug-rope - rope', not 'fire - fire'"
        ),
        "curves --pe rope,nope": (
            "no run of nope in runs/* with the others: tape-arith train --pe nope --preset mini "
            "makes one"
        ),
        "curves --pe tape+yarn": "tape+yarn is trained as tape: name that, for its curves",
        "tasks srot": "unknown scored task or preset 'srot': Known: addition, mini",
        "tasks parity": "no run of parity is scored here: mini are",
    },
    prepared.rope_without_weights: {
        "heatmap --pe rope,rope+yarn": (
            "no scored run of rope+yarn in runs/mini: runs/mini/rope/seed-0 is scored, but its "
            "weights are not here: put final.safetensors into runs/mini/rope/seed-0/weights, or "
            "train it again, into another folder with --runs, or with --fresh, which drops its "
            "grids too"
        ),
    },
    prepared.tape_interrupted: {
        "heatmap --pe tape": (
            "no scored run of tape in runs/mini: tape-arith train runs/mini/tape/seed-0"
        ),
    },
    prepared.one_fire_scored_in_part: {
        "heatmap --pe fire": (
            "no scored run of fire in runs/mini: tape-arith score runs/mini/fire/seed-0"
        ),
    },
    prepared.fire_on_version_2: {
        "heatmap --pe rope,fire": (
            "fire and rope cannot be in one figure (fire seeds 0, 1: version 2, not 1): compare "
            "them apart, or train and score them alike"
        ),
    },
    prepared.fire_with_other_settings: {
        "curves --pe rope,fire": (
            "fire and rope cannot be in one figure (fire seed 0: learning_rate: 0.002, not 0.001, "
            "clip: 0.25, not 0.5): compare them apart, or train and score them alike"
        ),
    },
    prepared.two_presets: {
        "heatmap --pe fire,rope": (
            "there are runs of fire, rope in mini, paper-20: choose one with --preset"
        ),
        "leaderboard": "there are runs of all in mini, paper-20: choose one with --preset",
    },
}

NOTED: Table = {
    prepared.as_trained: {
        "list --runs runs/mini/rope": (
            "no run in runs/mini/rope: runs/mini/rope is the folder of one encoding: name that of "
            "all runs, --runs runs"
        ),
    },
    prepared.fire_scored_in_part: {
        "leaderboard": (
            "left out: fire seed 0: 1 of 3 problems a cell are scored: tape-arith score "
            "runs/mini/fire/seed-0"
        ),
    },
    prepared.fire_on_version_2: {
        "leaderboard": "left out: fire seeds 0, 1: version 2, not 1",
    },
    prepared.fire_in_bfloat16: {
        "leaderboard": "left out: fire seed 0: trained in float32, not bfloat16",
    },
    prepared.fire_with_other_settings: {
        "leaderboard": (
            "left out: fire seed 0: other settings (learning_rate 0.002, not the preset's; clip "
            "0.25, not the preset's)"
        ),
        "curves --pe all --json": (
            "left out: fire seed 0: learning_rate: 0.002, not 0.001, clip: 0.25, not 0.5"
        ),
    },
    prepared.rope_with_another_small_grid: {
        "curves --pe rope --json": "left out: rope seed 1: scored on other lengths during training"
    },
    prepared.rope_extended: {
        "leaderboard": "left out: rope seed 0: not scored yet",
        "curves --pe all --json": "left out: rope seed 0: steps: 8, not 4",
    },
    prepared.a_corrupt_record: {
        "curves --pe all --json": (
            "runs/mini/tape/seed-1/run.json is corrupt: not JSON (...); put back a whole copy, or "
            "train the run again with --fresh"
        ),
        "leaderboard": (
            "runs/mini/tape/seed-1/run.json is corrupt: not JSON (...); put back a whole copy, or "
            "train the run again with --fresh"
        ),
    },
    prepared.a_corrupt_grid: {
        "report": (
            "left out: runs/mini/fire/seed-0/grid.json is corrupt: not JSON (...); put back an "
            "intact copy, or score the run again with --fresh"
        ),
    },
    prepared.rope_on_carries: {
        "leaderboard --split carry": (
            "left out: fire seeds 0, 1; rope seed 1; tape seeds 0, 1: not scored on the split "
            "carry yet"
        ),
    },
}


@pytest.mark.usefixtures("prepared_runs")
@pytest.mark.parametrize(
    ("prepared_runs", "code", "line", "sentence"),
    rows(refused=REFUSED, noted=NOTED),
    indirect=["prepared_runs"],
)
def test_what_is_said(code: int, line: str, sentence: str) -> None:
    assert_says(line, code, sentence)
