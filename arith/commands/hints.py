"""Suggest our option for one that other tools have or that earlier versions had."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tape_arith.arith.training.config import Config

_SPELLINGS = {
    "--pe": "--encoding --encodings --model --models --model-name --model-type --compare --names "
    "--model-name-or-path --position-embedding-type --position-encoding --positional-encoding",
    "--runs": "--out --run-dir --runs-dir --results --folder --root --log-dir --logdir",
    "--figure": "--plot --fig --image --save --out --output --output-file",
    "--out": "--output --output-dir --out-dir --output-file --output-path --save-dir --save --json "
    "-o --export-dir",
    "--data": "--dataset --dataset-name --data-dir --data-path --train-file --datasets",
    "--datasets": "--data --dataset --data-dir --data-path --datasets-dir",
    "--preset": "--config --config-name --recipe --size",
    "--seed": "--random-seed --rng-seed --seeds",
    "--seeds": "--random-seed --rng-seed --num-seeds",
    "--backend": "--attention --attn --attention-backend --attn-implementation",
    "--fresh": "--force --overwrite --overwrite-output-dir --restart --no-resume",
    "--count": "--num-samples --num-examples --problems --n -n",
    "--problems": "--count --num-samples --limit",
    "--workers": "--num-workers --threads --jobs -j",
    "--slots": "--num-workers --workers --jobs -j --parallel --gpus",
    "--threads": "--num-threads --workers --num-workers --cpus",
    "--track": "--report-to --wandb --wandb-log --tracker --logger",
    "--with": "--extrapolation --rope-scaling --scaling",
    "--engine": "--cluster --executor --launcher",
    "--time-limit": "--timeout --max-time --time",
    "--format": "--output-format --type --markdown --csv --latex --tex",
    "--max-digits": "--digits --max-length --test-digits --test-length",
    "--compile": "--torch-compile",
    "--show": "--columns --fields --select",
    "--set learning_rate=": "--lr --max-lr --peak-lr",
    "--set steps=": "--steps --max-steps --max-iters --iters --num-steps --train-steps "
    "--train-iters --epochs --num-epochs --num-train-epochs",
    "--set batch_size=": "--bs --train-batch-size --per-device-train-batch-size",
    "--set num_layers=": "--n-layer --n-layers --layers --depth --num-hidden-layers",
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
    "--set trained_digits=": "--digits --max-digits --train-digits --train-length --block-size",
    "--set tested_digits=": "--test-digits --test-length --eval-digits",
}
"""Each option of ours, with other spellings of it. A spelling of several options means the first
that the command has; the name of a setting, as in --weight-decay, is a spelling of it too."""
_NOTES = {
    "repeat the command, which goes on where it stopped": "--resume --continue "
    "--resume-from-checkpoint",
    "write KEY = VALUE under [set] in the file of a sweep": "--set",
    "put CUDA_VISIBLE_DEVICES=0 in front of the command": "--device --gpu --gpus --cuda",
    "write `torchrun --nproc-per-node N --no-python tape-arith train ...`": "--nproc-per-node "
    "--processes --num-processes",
}


def hint(error: Exception) -> str | None:
    """Return what to write for the option that `error` says a command lacks, if that is known."""
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
    meant = [right for right, others in table.items() if wrong in others]
    for right in meant:
        option, _, setting = right.partition(" ")
        if option in spellings:
            return f"write --set {setting}VALUE" if setting else f"write {spellings[option]}"
    for note, others in _NOTES.items():
        if wrong in others.split():
            return note
    settings = [right for right in meant if right.startswith("--set ")]
    return f"a run is trained with it, `train {settings[0]}VALUE`" if settings else None
