"""Suggest our option or command for one that other tools have or that earlier versions had."""

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tape_arith.arith.runs.config import Config

_SPELLINGS = {
    "--pe": "--encoding --encodings --model --models --model-name --model-type --compare --names "
    "--model-name-or-path --position-embedding-type --position-encoding --positional-encoding",
    "--runs": "--out --run-dir --runs-dir --results --folder --root --log-dir --logdir --name "
    "--run-name --exp-name",
    "--out": "--output --output-dir --out-dir --output-file --output-path --save-dir --save --json "
    "-o --export-dir",
    "--figure": "--plot --fig --image --save --out --output --output-dir --output-file",
    "--width": "--figsize",
    "--init-from": "--checkpoint --ckpt --weights --pretrained",
    "--data": "--dataset --dataset-name --data-dir --data-path --train-file --datasets",
    "--datasets": "--data --dataset --data-dir --data-path --datasets-dir",
    "--preset": "--config --config-name --recipe --size",
    "--seed": "--random-seed --rng-seed --seeds",
    "--seeds": "--random-seed --rng-seed --num-seeds",
    "--backend": "--attention --attn --attention-backend --attn-implementation --flash "
    "--flash-attn",
    "--fresh": "--force --overwrite --overwrite-output-dir --restart --no-resume",
    "--count": "--num-samples --num-examples --problems --n -n",
    "--problems": "--count --num-samples --limit",
    "--workers": "--num-workers --threads --jobs -j",
    "--slots": "--num-workers --workers --jobs -j --parallel --gpus",
    "--threads": "--num-threads --workers --num-workers --cpus",
    "--track": "--report-to --wandb --wandb-log --wandb-project --wandb-entity --wandb-run-name "
    "--tensorboard --tracker --logger",
    "--with": "--extrapolation --rope-scaling --scaling",
    "--engine": "--cluster --executor --launcher",
    "--time-limit": "--timeout --max-time --time",
    "--format": "--output-format --type --markdown --md --csv --latex --tex",
    "--max-digits": "--digits --max-length --test-digits --test-length",
    "--compile": "--torch-compile",
    "--show": "--columns --fields --select",
    "--set learning_rate=": "--lr --max-lr --peak-lr",
    "--set steps=": "--steps --max-steps --max-iters --iters --num-steps --train-steps "
    "--train-iters --epochs --num-epochs --num-train-epochs",
    "--set batch_size=": "--bs --train-batch-size --per-device-train-batch-size",
    "--set num_layers=": "--n-layer --n-layers --layers --depth --num-hidden-layers",
    "--set loops=": "--recurrence --num-loops --n-loops --maximal-recurrence",
    "--set norm=": "--norm-scheme --pre-norm --post-norm --deepnorm",
    "--set num_heads=": "--n-head --n-heads --heads --num-attention-heads",
    "--set hidden_size=": "--n-embd --d-model --dim --embed-dim --width",
    "--set head_dim=": "--d-head --head-size",
    "--set mlp_size=": "--intermediate-size --ffn-dim --d-ff",
    "--set warmup=": "--warmup-ratio --warmup-steps --warmup-iters",
    "--set clip=": "--grad-clip --max-grad-norm",
    "--set weight_decay=": "--wd",
    "--set beta1=": "--adam-beta1",
    "--set beta2=": "--adam-beta2",
    "--set epsilon=": "--adam-epsilon --eps",
    "--set num_problems=": "--num-samples --num-examples --max-train-samples",
    "--set trained_digits=": "--digits --max-digits --train-digits --train-length --block-size "
    "--seq-len --seq-length --max-seq-len --max-seq-length --max-length --context-length --n-ctx "
    "--n-positions --max-position-embeddings",
    "--set tested_digits=": "--test-digits --test-length --eval-digits",
}
"""Each option of ours, with other spellings of it. A spelling of several options means the first
that the command has; the name of a setting, as in --weight-decay, is a spelling of it too."""
_NOTES = {
    "--preset mini@TASK names the runs that `train --task TASK` makes": "--task",
    "repeat the command, which goes on where it stopped": "--resume --continue "
    "--resume-from-checkpoint",
    "write KEY = VALUE under [set] in the file of a sweep": "--set",
    "write seeds = [0, 1, 2] in the file of a sweep": "--seeds",
    "put CUDA_VISIBLE_DEVICES=0 in front of the command": "--device --gpu --gpus --cuda",
    "write `torchrun --nproc-per-node N --no-python tape-arith train ...`": "--nproc-per-node "
    "--processes --num-processes --ddp --distributed",
    "a run is scored after its training, and by `tape-arith score RUN`": "--eval --do-eval "
    "--evaluate --eval-only --test --do-test --do-predict",
    "leave it out, `train` trains": "--do-train --train",
    "the hardware decides, and `tape-arith doctor` says what": "--dtype --fp16 --bf16 --amp "
    "--precision --mixed-precision --torch-dtype",
    "training logs and saves itself at fixed steps; --no-curves scores nothing on the way": (
        "--log-interval --log-every --logging-steps --eval-interval --eval-every --eval-steps "
        "--eval-iters --eval-strategy --evaluation-strategy --save-interval --save-every "
        "--save-steps --save-strategy --save-total-limit --checkpoint-interval"
    ),
    "all encodings have one recipe; `tape-arith list PRESET` names what --set changes": (
        "--dropout --bias --optim --optimizer --gradient-accumulation-steps --scheduler "
        "--lr-scheduler-type --lr-schedule --decay-lr --min-lr --lr-decay-iters --vocab-size"
    ),
    "progress goes to stderr, and 2>/dev/null hides it": "--verbose --quiet --debug --log-level "
    "-v -q --disable-tqdm --progress",
    "name the folder of a run, without an option": "--checkpoint --ckpt --weights --run",
    "the ending of the file in --figure says it": "--format",
    "draw a .pdf or .svg file, which has no dots": "--dpi",
    "figures have no title: --label changes names": "--title",
    "rows stand by their mean out of distribution; --csv is easily sorted": "--sort --sort-by",
    "copy the folder that it writes with the hub's own tool": "--push-to-hub --hub-model-id",
}


_COMMANDS = {
    "score": "eval evaluate test benchmark",
    "ask": "predict infer inference answer chat sample",
    "train RUN": "resume continue extend",
    "train": "fit pretrain finetune",
    "heatmap": "plot draw compare show figure attention-map",
    "leaderboard": "table results rank ranking summary",
    "list": "ls encodings presets tasks models runs info",
    "study": "attention errors stability analyze analyse",
    "generate": "data dataset prepare preprocess make-data",
    "doctor": "env version diagnose",
}
"""Each command of ours, with other names of it."""


def hint(error: Exception) -> str | None:
    """Return what to write for an option or command that `error` says is not there, if known."""
    missing = re.match(r"No such command '([\w-]+)'", str(getattr(error, "message", "")))
    if missing:
        wrong = missing[1].replace("_", "-").lower()
        meant = (right for right, names in _COMMANDS.items() if wrong in names.split())
        right = next(meant, None)
        return right and f"there is no command {missing[1]}: write tape-arith {right}"
    name, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if name is None or context is None or not hasattr(error, "possibilities"):
        return None
    spellings = {
        spelling: param.opts[0]
        for param in context.command.params
        for spelling in (*param.opts, *param.secondary_opts)
    }
    right = _right(name.replace("_", "-").lower(), spellings)
    return None if right is None else f"{context.info_name} has no {name}: {right}"


def _right(wrong: str, spellings: Mapping[str, Any]) -> str | None:
    """Say what to write in place of `wrong`; `spellings` maps known spellings to options."""
    if wrong in spellings:
        return f"write {wrong}"
    table = {right: text.split() for right, text in _SPELLINGS.items()}
    for field in fields(Config):
        table.setdefault(f"--set {field.name}=", []).append(f"--{field.name.replace('_', '-')}")
    meant = [right for right, texts in table.items() if wrong in texts]
    for right in meant:
        option, _, setting = right.partition(" ")
        if option in spellings:
            return f"write --set {setting}VALUE" if setting else f"write {spellings[option]}"
    for note, texts in _NOTES.items():
        if wrong in texts.split():
            return note
    settings = [right for right in meant if right.startswith("--set ")]
    if not settings:
        return None
    return f"a run is trained with it, `train {settings[0]}VALUE` or [set] in the file of a sweep"
