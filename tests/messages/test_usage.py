"""What a command line that makes no sense is answered, where there is nothing yet."""

from pathlib import Path

import pytest

from tests.helpers.messages import assert_says
from tests.helpers.tiny_runs import contents

SENTENCES = {
    # Words that are no command and no option, and what the line wants instead.
    "trian": "No such command 'trian'. Did you mean 'train'?",
    "generate extra": "Got unexpected extra argument(s) (extra)",
    "eval x": "there is no command eval: write tape-arith score",
    "resume x": "there is no command resume: write tape-arith train RUN",
    "heatmap rope tape": "heatmap takes encodings as an option: --pe rope,tape",
    "curves --json rope,tape": "curves takes encodings as an option: --pe rope,tape",
    "train rope": "RUN is the folder of a run: write --pe rope to train an encoding",
    "train": "name an encoding (--pe tape) or the folder of a run to continue",
    "train --lr 1": "train has no --lr: write --set learning_rate=VALUE",
    "train --learning_rate=1": "train has no --learning_rate: write --set learning_rate=VALUE",
    "score x --lr 1": (
        "score has no --lr: a run is trained with this setting: `train --set "
        "learning_rate=VALUE`, or [set] in a sweep file"
    ),
    "sweep mini-all --set steps=3": (
        "sweep has no --set: write KEY = VALUE under [set] in the sweep file"
    ),
    "leaderboard --preset tiny --set steps=400": (
        "leaderboard has no --set: the settings are those of the runs, whose folder --runs names"
    ),
    "score x --set steps=400": (
        "score has no --set: a run keeps its settings; `train --set KEY=VALUE` makes one with "
        "others"
    ),
    "sweep mini-all --seeds 0": "sweep has no --seeds: write seeds = [0, 1, 2] in the sweep file",
    "tasks --seeds 0": (
        "tasks has no --seeds: all seeds are read of the runs in the folder that --runs names"
    ),
    "heatmap --pe rope --seeds 0": "heatmap has no --seeds: write --seed",
    "pack --runs runs --out x.tgz": (
        "pack has no --runs: name the folders of runs, without an option"
    ),
    "score --runs runs": "score has no --runs: name the folder of the run, without an option",
    "doctor --runs runs": "No such option: --runs",
    "score --model-api hf --model-args x": (
        "score has no --model-api: an existing language model is scored by `tape-arith harness`"
    ),
    "harness --model hf": "harness has no --model: write --model-api",
    "harness --model-api hf --model-args x --template {answer}": (
        "--template '{answer}' needs {problem}, and {answer} nowhere but at its end"
    ),
    "train --output_dir x": "train has no --output_dir: write --runs",
    "heatmap --output_dir x": "heatmap has no --output_dir: write --figure",
    "curves --encoding rope": "curves has no --encoding: write --pe",
    "run --data x": "run has no --data: write --datasets",
    "report --max_digits 3": "report has no --max_digits: write --max-digits",
    "study errors x --num-samples 3": "study has no --num-samples: write --problems",
    "train --resume": "train has no --resume: repeat the command, which continues where it stopped",
    "train --device cpu": (
        "train has no --device: put CUDA_VISIBLE_DEVICES= before the command for the CPU, "
        "CUDA_VISIBLE_DEVICES=0 for one GPU"
    ),
    "train --ckpt x": "train has no --ckpt: write --init-from",
    "score x --ckpt x": "score has no --ckpt: name the folder of a run, without an option",
    "heatmap --format pdf": "heatmap has no --format: the ending of the file in --figure says it",
    # Options that exclude or need one another.
    "train runs/x --pe rope": "RUN continues with its own encoding: leave out --pe or RUN",
    "train --pe tape,rope": (
        "train takes one encoding: `tape-arith run --pe tape,rope` takes several"
    ),
    "train runs/x --set steps=8": (
        "RUN continues with the settings in its run.json: leave out --preset, --set, --task, "
        "--seed, --runs and --init-from; to start over, give these and --pe with --fresh, without "
        "RUN"
    ),
    "train --pe tape --only-positional": (
        "--only-positional needs --init-from RUN, whose weights stay as they are"
    ),
    "list --runs a --runs b": "--runs takes one value and is given twice",
    "generate --verify x --count 3": "--verify DIR only checks a dataset: leave out other options",
    "leaderboard --preset mini@sort --task copy": (
        "--preset mini@sort and --task copy name two tasks: leave one of them out"
    ),
    "train --pe rope TINY --task copy --set task=reverse": (
        "--task is copy and --set task=reverse: leave one out"
    ),
    "leaderboard --csv --format json": "choose one of --format, --csv and --json",
    "leaderboard --csv --wide": (
        "--wide is for the terminal: leave out --wide, or --out and the format"
    ),
    "leaderboard --csv --no-caption": (
        "--no-caption changes a figure or a table for a paper: add --figure or --out table.tex"
    ),
    "leaderboard --format latex --width 3": "--width changes a figure: add --figure",
    "leaderboard --format latex --no-caption": (
        "no scored run in runs: tape-arith train --pe rope makes one"
    ),
    "leaderboard --csv --label tape=Ours": (
        "--label changes a figure or a table for a paper: add --figure or --out table.tex"
    ),
    "run --pe rope --on h200": (
        "--on only estimates: add --dry-run, or leave out --on to run here"
    ),
    # Values.
    "run --pe rope TINY --dry-run --on a100": "unknown measured GPU 'a100': Known: ...",
    "train --pe rope --time-limit soon": (
        "--time-limit takes 90s, 25m, 1h30m or 1:30:00, not 'soon'"
    ),
    "run --pe rope --seeds 4-0": "--seeds: 4-0 counts down: write 0-4",
    "run --pe rope --seeds 0-99999999": (
        "--seeds takes numbers up to 9223372036854775807, not 0-99999999"
    ),
    "run --pe rope --seeds a,b": (
        "--seeds takes whole numbers with commas, as in 0,1,2 or 0-2, not 'a,b'"
    ),
    "train --pe rope --threads 100000": "--threads must be at most 1024, not '100000'",
    "score runs/x --max-digits 0": "--max-digits must be at least 1, not '0'",
    "generate --count 99999999999999999999999": (
        "--count must be at most 1000000000000, not '99999999999999999999999'"
    ),
    "train --pe rope --seed 1.5": "--seed must be a whole number, not '1.5'",
    f"train --pe rope --seed {'9' * 5000}": "--seed has too many digits",
    "heatmap --pe rope --width wide": "--width must be a number, not 'wide'",
    "heatmap --compare rope,tape --numbers --no-legend": (
        "--numbers must be 'none', 'out' or 'all', not '--no-legend'"
    ),
    "train --preset mini --pe rope --set lr=1": (
        "unknown setting 'lr': did you mean 'learning_rate'?"
    ),
    "train --preset mini --pe rope --set steps=2.5e0": (
        "'steps' must be a whole number, not '2.5e0'"
    ),
    "train --preset mini --pe rope --set steps=1e99": (
        "'steps' must be at most 1000000000000, not '1..."
    ),
    "run --pe rope,rand-rope:l_max=3 TINY": (
        "l_max=3 is less than the longest tested sequence, 13 tokens; choose l_max >= 13"
    ),
    "run --pe rope,nope+yarn TINY": (
        "'yarn' changes the frequencies of a rotary encoding; NoPE has none"
    ),
    "train --pe abacus+fire --task copy:hints=true TINY": (
        "abacus+fire is not defined for copy:hints=true: no marker or blank may stand between the "
        "digits of a number; take another encoding or another format (models/README.md)"
    ),
    "heatmap --compare ,": "nothing to compare: name encodings, as in --compare fire,tape",
    "heatmap --pe rope --width 1": "--width must be at least 2, not '1'",
    "curves --pe rope": (
        "no run of rope in runs/*: tape-arith train --pe rope --preset mini makes one"
    ),
    "report --out report.pdf": "cannot write report.pdf: a report's name ends in .html",
    "leaderboard --out board.md.gz": (
        "board.md.gz has none of the endings .md, .txt, .csv, .tex, .json: give it one, or add "
        "--format"
    ),
    "leaderboard --out board.md --figure board.jpg": (
        "cannot draw board.jpg: a figure's name ends in .png, .svg or .pdf"
    ),
    "heatmap --pe rope --label rope": (
        "--label reads NAME=TEXT, as in --label tape=Ours, not 'rope'"
    ),
    # Settings, which are refused before a problem is made.
    "run --pe rope TINY --set stps=3": "unknown setting 'stps': did you mean 'steps'?",
    "run --pe rope TINY --set steps": "--set takes key=value, not 'steps'",
    "run --pe rope TINY --set steps=0": "'steps' must be at least 1, not '0'",
    "run --pe rope TINY --set tested_digits=1": (
        "a grid to 1 digits does not cover the 2 trained digits: score to 2 digits or more"
    ),
    "run --pe rope TINY --set tested_digits=701": "'tested_digits' must be at most 700, not '701'",
    "run --pe rope TINY --set tested_digits=700 --set problems_per_cell=1048576": (
        "1,048,576 problems a cell to 700 digits: give 1 to 136"
    ),
    "run --pe rope TINY --set learning_rate=nan": (
        "'learning_rate' must be a finite number, not 'nan'"
    ),
    "run --pe rope TINY --set norm=layer": (
        "'norm' must be 'pre', 'post' or 'deepnorm', not 'layer'"
    ),
    "run --pe rope TINY --set loops=0": "'loops' must be at least 1, not '0'",
    "run --pe rope TINY --set input_injection=true": (
        "input_injection adds the embedded input at the start of each further loop: set loops=2 "
        "or more, or leave it out"
    ),
    "run --pe rope TINY --set input_injection=maybe --set loops=2": (
        "'input_injection' must be true or false, not 'maybe'"
    ),
    "run --pe rope TINY --set attention_scale=sqrt": (
        "'attention_scale' must be 'plain' or 'log', not 'sqrt'"
    ),
    "run --pe stick-breaking TINY --set attention_scale=log": (
        "attention_scale=log multiplies the scores of a softmax, and StickBreaking takes none: "
        "leave attention_scale out"
    ),
    "run --pe rope TINY --set warmup=1": "'warmup' must be less than 1, not '1'",
    "run --pe rope TINY --set num_heads=3": (
        "num_heads x head_dim = 24 is not hidden_size=16: set num_heads=2"
    ),
    "run --pe rope TINY --set head_dim=7 --set hidden_size=14": (
        "a rotary encoding needs an even head_dim, not 7"
    ),
    # Names.
    "train --pe rotary": (
        "unknown encoding 'rotary': did you mean 'hybrid' or 'p-rope' or 'pope' or 'rope' or "
        "'rope-partial' or 'xpos'?"
    ),
    "train --pe fier": "unknown encoding 'fier': did you mean 'fire'?",
    "train --preset mini --pe rope --task sotr": (
        "unknown task 'sotr': did you mean 'sort'? Known: ..."
    ),
    "heatmap --preset minni@sort": "unknown preset 'minni': did you mean 'mini'?",
    "curves --pe fire --preset mini@sotr": "unknown task 'sotr': did you mean 'sort'? Known: ...",
    "list minni": "unknown name 'minni': did you mean 'mini'?",
    "sweep mini-al": "unknown sweep 'mini-al': did you mean 'mini-all'?",
    "score runs/x --backend flash": (
        "unknown attention backend 'flash': did you mean 'flash-attn'? Known: auto, eager, "
        "flash-attn, fused, sdpa, varlen"
    ),
    "train --pe rope TINY --track wandbb": (
        "unknown tracker 'wandbb': did you mean 'wandb'? Known: tensorboard, wandb"
    ),
    "generate --format jsonl TINY": "unknown format 'jsonl': Known: parquet, text, tokens",
    "leaderboard --format xml": "unknown format 'xml': Known: csv, json, latex, markdown",
    # Folders and what is in none yet.
    "train runs/x": "runs/x holds no run: `tape-arith list` shows where runs are",
    "status mini-all --runs m": (
        "the sweep mini-all was not started in m: `tape-arith sweep mini-all --runs m` starts it"
    ),
    "status nothing": "nothing holds neither a sweep nor runs: `tape-arith list` shows runs",
    "leaderboard": "no scored run in runs: tape-arith train --pe rope makes one",
    "leaderboard --runs m --preset paper-20": (
        "no scored run of paper-20 in m: tape-arith train --pe rope --preset paper-20 --runs m "
        "makes one"
    ),
    "leaderboard --runs m --preset mini --task sort:pad=false": (
        "no scored run of mini@sort in m: tape-arith train --pe rope --preset mini@sort --runs m "
        "makes one"
    ),
    "leaderboard --split carry": (
        "no scored run in runs on the split carry: tape-arith score RUN --split carry makes one"
    ),
    "heatmap --pe fire --runs no": (
        "no scored run of fire in no/mini: tape-arith train --pe fire --preset mini --runs no"
    ),
    "ask rope 1+2": "no run of rope, seed 0, in runs: `tape-arith train --pe rope` trains one",
}


@pytest.mark.parametrize("line", SENTENCES)
def test_usage_that_is_refused(line: str, here: Path) -> None:
    assert_says(line, 2, SENTENCES[line])
    assert contents(here) == {}
