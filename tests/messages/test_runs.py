"""What the commands that train, score, ask and export runs say."""

import pytest

from tests.helpers.messages import assert_says
from tests.messages import prepared
from tests.messages.prepared import Table, rows

PACKED = "labs/lab.tgz is an archive, which is only read: `tar xzf labs/lab.tgz -C labs` unpacks it"

REFUSED: Table = {
    prepared.rope_packed: {
        "train labs/lab.tgz/mini/rope/seed-0": PACKED,
        "score labs/lab.tgz/mini/rope/seed-0 --split carry": PACKED,
        "export labs/lab.tgz/mini/rope/seed-0": PACKED,
        "ask labs/lab.tgz/mini/rope/seed-0 1+1": PACKED,
        "train --pe rope TINY --runs labs/lab.tgz": PACKED,
        "train --pe rope TINY --runs labs --fresh": PACKED,
        "leaderboard --runs labs/lab.tgz --pe gru --preset mini": (
            "no scored run of gru in labs/lab.tgz/mini: an archive is only read: name the folder "
            "or archive that has it with --runs"
        ),
        "list --runs runs/mini/rope/seed-0/run.json": (
            "runs/mini/rope/seed-0/run.json is neither a folder of runs nor an archive of "
            "`tape-arith pack`"
        ),
    },
    prepared.as_trained: {
        "score runs/mini": "runs/mini holds no run: `tape-arith list` shows where runs are",
        "score runs/mini/rope/seed-0 --split hard": (
            "unknown split 'hard': Known: carry, evaluation"
        ),
        "score runs/mini/rope/seed-0 --max-digits 1": (
            "a grid to 1 digits does not cover the 2 trained digits: score to 2 digits or more"
        ),
        "score runs/mini/rope/seed-0 --with yran": (
            "unknown extrapolation 'yran': did you mean 'yarn'? Known: even, logn, ntk, "
            "ntk-dynamic, pi, plain, redraw, yarn"
        ),
        "train runs/mini/rope/seed-0 --steps 3": (
            "runs/mini/rope/seed-0 was trained for 4 steps already"
        ),
        "train runs/mini/rope/seed-0 --init-from runs/mini/rope/seed-0": (
            "RUN continues with the settings in its run.json: leave out --preset, --set, --task, "
            "--seed, --runs and --init-from; to start over, give these and --pe with --fresh, "
            "without RUN"
        ),
        "train --pe rope TINY --set learning_rate=0.002": (
            "runs/mini/rope/seed-0 holds another run (learning_rate: 0.001, not 0.002): train "
            "into another folder with --runs, or start this one over with --fresh"
        ),
        "train --pe rope TINY --set steps=8": (
            "runs/mini/rope/seed-0 holds another run (steps: 4, not 8): `tape-arith train "
            "runs/mini/rope/seed-0 --steps 8` extends it, or train into another folder with "
            "--runs, or start this one over with --fresh"
        ),
        "train --pe nope --init-from runs/mini/rope/seed-0 --only-positional": (
            "nope has no parameters of its own: leave --only-positional out"
        ),
        "train --pe tape@from=rope TINY": (
            "tape@from=rope begins from a finished run: tape-arith train --pe tape --init-from RUN"
        ),
        "train --pe tape@from=fire --init-from runs/mini/rope/seed-0": (
            "tape@from=fire does not begin from a run of rope"
        ),
        "train --pe tape --init-from runs/mini/rope/seed-0 --seed 1": (
            "runs/mini/rope/seed-0 is of seed 0, not 1: each seed begins from a run of its own, "
            "or seeds would not be independent runs"
        ),
        "train --pe tape --init-from runs/mini/rope/seed-0 --set loops=2": (
            "runs/mini/rope/seed-0 has loops=1 and the new run 2: begin from a run of the same "
            "sizes and task"
        ),
        "ask rope 1234+1": (
            "'1234+1' has 4 digits of a, and runs/mini/rope/seed-0 takes up to 3: ask for a "
            "shorter one"
        ),
        "ask rope 012+3": (
            "'012+3' is no problem of addition: write it as in 123+45, with numbers from 1 on, "
            "without leading zeros"
        ),
        "ask rope 12*3": (
            "'12*3' is no problem of addition: write it as in 123+45, with numbers from 1 on, "
            "without leading zeros"
        ),
        "ask rope 12+3=": (
            "'12+3=' is no problem of addition: write it as in 123+45, without = and the answer"
        ),
        "ask nope 1+2 --preset paper-40": (
            "no run of nope, seed 0, in runs: `tape-arith train --pe nope --preset paper-40` "
            "trains one"
        ),
        "ask tape@from=rope 1+2 --seed 1": (
            "no run of tape@from=rope, seed 1, in runs: `tape-arith train --pe tape --init-from "
            "runs/PRESET/rope/seed-1 --seed 1` trains one"
        ),
        "ask runs/mini/rope/seed-0 1+2 --seed 1": (
            "runs/mini/rope/seed-0 is a folder: --preset and --seed go with an encoding's name"
        ),
        "export runs/mini/rope/seed-0 --out data": (
            "data exists and is no export of tape-arith: choose another --out"
        ),
        "export runs/mini/rope/seed-0 --dataset-id addition": (
            "--dataset-id takes OWNER/NAME, as the Hub has it, not 'addition'"
        ),
        "export runs/mini/rope/seed-0 --with yarn --dataset-id lab/addition": (
            "runs/mini/rope/seed-0 has no complete grid+yarn.json, whose means --dataset-id "
            "writes: score it"
        ),
        "study stability runs/mini/rope/seed-0 --problems 28": (
            "the evaluation set has 27 problems, not 28: give --problems 27 or fewer"
        ),
        "study stability runs/mini/rope/seed-0 ./runs/mini/rope/seed-0": (
            "runs/mini/rope/seed-0 is rope, seed 0, twice: name each run once"
        ),
        "study errors runs/mini/rope/seed-0 --figure x.gif": (
            "cannot draw x.gif: a figure's name ends in .png, .svg or .pdf"
        ),
        "study attention runs/mini/rope/seed-0 --double": (
            "study attention takes no double: leave it out"
        ),
        "study error runs/mini/rope/seed-0": (
            "unknown study 'error': did you mean 'errors'? Known: attention, errors, stability"
        ),
        "study attention runs/mini/rope/seed-0 --layer 7": "there is no layer 7: they are 1 to 1",
        "generate TINY --set num_problems=63": (
            "data/addition-bucket-2 holds 64 problems of addition up to 2 digits (seed 0, split "
            "train, version 1), not 63 problems of addition up to 2 digits (seed 0, split train, "
            "version 1): choose another --out, or --fresh to write over it"
        ),
        "run --pe rope --datasets data/addition-bucket-2 TINY": (
            "data/addition-bucket-2 is a dataset, and --datasets takes the folder of datasets: "
            "--datasets data (`train` takes one dataset)"
        ),
    },
    prepared.a_model: {
        "export runs/mini/gru/seed-0": (
            "gru is a model, and an export writes the decoder of this suite: name an encoding"
        ),
        "study attention runs/mini/gru/seed-0": (
            "gru is a model, and a study of attention looks into the decoder of this suite: name "
            "an encoding"
        ),
        "score runs/mini/gru/seed-0 --with yarn": (
            "gru+yarn: nothing can be joined to a model with a plus"
        ),
        "train --pe gru --init-from runs/mini/rope/seed-0": (
            "gru has no place for blocks.0.attention_norm.weight of runs/mini/rope/seed-0 (rope): "
            "begin from an encoding whose parameters it has"
        ),
    },
    prepared.rope_without_weights: {
        "train runs/mini/rope/seed-0": (
            "runs/mini/rope/seed-0 is scored, but its weights are not here: put final.safetensors "
            "into runs/mini/rope/seed-0/weights, or train it again, into another folder with "
            "--runs, or with --fresh, which drops its grids too"
        ),
        "export runs/mini/rope/seed-0": (
            "runs/mini/rope/seed-0 is scored, but its weights are not here: put final.safetensors "
            "into runs/mini/rope/seed-0/weights, or train it again, into another folder with "
            "--runs, or with --fresh, which drops its grids too"
        ),
    },
    prepared.tape_interrupted: {
        "score runs/mini/tape/seed-0": (
            "runs/mini/tape/seed-0 is not trained to its end: `tape-arith train "
            "runs/mini/tape/seed-0`"
        ),
    },
    prepared.rope_on_version_2: {
        "train --pe rope TINY": (
            "runs/mini/rope/seed-0 was trained on version 2 of addition, and this tape-arith "
            "makes version 1: continue with tape-arith ..., or train it again, with --fresh or "
            "into another folder with --runs"
        ),
        "score runs/mini/rope/seed-0": (
            "runs/mini/rope/seed-0 was trained on version 2 of addition, and this tape-arith "
            "makes version 1: continue with tape-arith ..., or train it again, with --fresh or "
            "into another folder with --runs"
        ),
    },
    prepared.rope_on_other_problems: {
        "train runs/mini/rope/seed-0 --steps 8 --data data/addition-bucket-2": (
            "data/addition-bucket-2 is not the dataset that the run began on (1f7ddf4058f5, not "
            "abababababab): give that one, or leave --data out to generate the problems"
        ),
    },
    prepared.rope_exported: {
        "export runs/mini/rope/seed-0 --out there --with yarn": (
            "there exists: --fresh writes it again, or choose another --out"
        ),
    },
    prepared.problems_as_text: {
        "generate --format text --out data/addition-bucket-2.txt TINY --seed 1": (
            "data/addition-bucket-2.txt is damaged or not of 64 problems of addition up to 2 "
            "digits (seed 1, split train, version 1) as text: choose another --out, or --fresh to "
            "write over it"
        ),
        "train runs/mini/rope/seed-0 --steps 8 --data other-seed": (
            "other-seed holds 64 problems of addition up to 2 digits (seed 1, split train, "
            "version 1), and this run trains on 64 problems of addition up to 2 digits (seed 0, "
            "split train, version 1): leave --data out, or give `tape-arith generate` the preset, "
            "settings and seed of this run"
        ),
        "generate --verify data/addition-bucket-2.txt": (
            "data/addition-bucket-2.txt is a file, and a dataset is a folder: tape-arith generate "
            "without --format makes one"
        ),
    },
}

FAILED: Table = {
    prepared.a_linked_folder: {
        "score runs/mini/rope/seed-0 --fresh": (
            "runs/mini/rope/seed-0/weights is a link, and what is written to "
            "runs/mini/rope/seed-0 stays in it: put the folder or file itself there"
        ),
    },
    prepared.a_corrupt_grid: {
        "score runs/mini/fire/seed-0": (
            "runs/mini/fire/seed-0/grid.json is corrupt: not JSON (...); put back an intact copy, "
            "or score the run again with --fresh"
        ),
    },
    prepared.a_corrupt_record: {
        "train runs/mini/tape/seed-1": (
            "runs/mini/tape/seed-1/run.json is corrupt: not JSON (...); put back a whole copy, or "
            "train the run again with --fresh"
        ),
    },
}


@pytest.mark.usefixtures("prepared_runs")
@pytest.mark.parametrize(
    ("prepared_runs", "code", "line", "sentence"),
    rows(refused=REFUSED, failed=FAILED),
    indirect=["prepared_runs"],
)
def test_what_is_said(code: int, line: str, sentence: str) -> None:
    assert_says(line, code, sentence)
