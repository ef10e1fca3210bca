"""Models in the place of the decoder: in training, scoring and comparisons, through the API."""

import re
import runpy
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import tape_arith
from tape_arith.arith.bench.measure import Options
from tape_arith.arith.contracts import model as contract
from tape_arith.arith.contracts.examine import examine
from tape_arith.arith.contracts.examples import decoder_for, example_batch, forward
from tape_arith.arith.contracts.promises import as_text
from tape_arith.arith.decoders import build
from tape_arith.arith.decoders import weights as checkpoint
from tape_arith.arith.registry.locate import folder, known_names
from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.tasks.families.tokens import BOS, EOS, PAD
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.training.batches import Batches
from tape_arith.models.decoder import Decoder
from tape_arith.models.sequences import Sequences
from tests.helpers import small_training
from tests.helpers.tiny_runs import SETTINGS, done, refused, settings

README = folder("model").joinpath("README.md").read_text(encoding="utf-8")
TINY: dict[str, Any] = {"preset": "mini", **SETTINGS}
HEAD = """import torch
from torch import nn


class Mine(nn.Module):
    def __init__(self, setting, *, width: int = 16):
        super().__init__()
        self.embedding = nn.Embedding(setting.vocabulary_size, width)
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional={two_way})
        self.head = nn.Linear({outputs} * width, setting.vocabulary_size)
        {init}

    def forward(self, tokens, lengths):
        x = self.embedding(tokens)
        {change}
        return self.head(self.gru(x)[0]){result}
"""
PLAIN = {"two_way": False, "outputs": 1, "init": "pass", "change": "pass", "result": ""}


def write(**changes: object) -> str:
    """Write a recurrent network to mine.py; return its name."""
    Path("mine.py").write_text(HEAD.format(**PLAIN | changes))
    return "mine.py:Mine"


# ---- the models in the box ---------------------------------------------------------------------


# Importing transformers takes as long as all other tests here.
SLOW = {"llama": pytest.mark.slow}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=SLOW.get(name, ())) for name in known_names("model")]
)
def test_contract(name: str) -> None:
    if name == "llama":
        pytest.importorskip("transformers")
    report = examine(parse(name))
    assert report.holds and report.warnings == (), as_text(report)
    assert len(report.outcomes) == len(contract.CHECKS)


LAYERS = {
    "input_layernorm.weight": "attention_norm.weight",
    "self_attn.o_proj.weight": "output.weight",
    "post_attention_layernorm.weight": "mlp_norm.weight",
    "mlp.down_proj.weight": "down.weight",
}
FUSED = {
    "qkv.weight": [f"self_attn.{name}_proj.weight" for name in "qkv"],
    "gate_value.weight": ["mlp.gate_proj.weight", "mlp.up_proj.weight"],
}
ENDS = {
    "embedding.weight": "model.embed_tokens.weight",
    "final_norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
}


def with_weights_of(llama: Decoder, name: str) -> Decoder:
    """Return our float64 decoder with an encoding and the weights of transformers' Llama."""
    theirs = {key.removeprefix("model.llama."): value for key, value in llama.state_dict().items()}
    weights = {ours: theirs[key] for ours, key in ENDS.items()}
    for i in range(llama.config.num_layers):
        own, other = f"blocks.{i}.", f"model.layers.{i}."
        weights |= {own + ours: theirs[other + key] for key, ours in LAYERS.items()}
        for ours, parts in FUSED.items():
            weights[own + ours] = torch.cat([theirs[other + key] for key in parts])
    decoder = decoder_for(name)
    assert decoder.state_dict().keys() == weights.keys()
    decoder.load_state_dict(weights)
    return decoder


@pytest.mark.slow
def test_llama_with_our_weights_is_our_decoder_with_rope() -> None:
    """Logits and gradients; theirs round norms and angles to float32, in float64 too."""
    pytest.importorskip("transformers")
    llama = small_training.perturbed(decoder_for("llama").double(), 0.3)
    rope, nope = (with_weights_of(llama, name) for name in ("rope", "nope"))
    for length in (20, 112):
        seqs = example_batch(length)
        theirs, ours, without = (forward(each, seqs) for each in (llama, rope, nope))
        scale = ours.abs().max()
        assert (theirs - ours).abs().max() < 1e-5 * scale
        assert (theirs - without).abs().max() > 0.1 * scale
    embedding = llama.get_parameter("model.llama.model.embed_tokens.weight")
    for decoder in (llama, rope):
        decoder(example_batch(112)).square().sum().backward()
    assert embedding.grad is not None and rope.embedding.weight.grad is not None
    difference = (embedding.grad - rope.embedding.weight.grad).abs().max()
    assert difference < 1e-5 * embedding.grad.abs().max()


@pytest.mark.slow
def test_llama_starts_from_the_weights_of_our_decoder() -> None:
    """Its standard deviations are ours, matrix by matrix."""
    pytest.importorskip("transformers")
    config = load_preset("mini")
    llama, rope = (build.decoder_for(config, parse(name), 0) for name in ("llama", "rope"))
    assert llama.num_parameters() == rope.num_parameters()
    deviations = {
        name: float(value.detach().std())
        for name, value in llama.named_parameters()
        if value.ndim > 1
    }
    for name, value in rope.named_parameters():
        if value.ndim < 2:
            continue
        start, _, end = name.rpartition("blocks.")[2].partition(".")
        keys = [ENDS[name]] if name in ENDS else None
        if keys is None:
            parts = FUSED.get(end) or [key for key, ours in LAYERS.items() if ours == end]
            keys = [f"model.layers.{start}.{part}" for part in parts]
        for key in keys:
            assert deviations[f"model.llama.{key}"] == pytest.approx(
                float(value.detach().std()), rel=0.1
            )


# ---- trained by the recipe ---------------------------------------------------------------------


def test_a_model_is_trained_scored_and_asked(here: Path) -> None:
    name = write()
    assert "7 of 7 checks hold" in done("check", name).out
    chosen = ("--precision", "float32", *settings(steps=40, learning_rate=0.01))
    said = done("train", "--model", name, *chosen).err
    assert "2,259 parameters, float32 on cpu, its own attention, not compiled" in said
    [run] = tape_arith.find_runs()
    record, lines = run.record(), run.metrics()
    assert record.about is not None and record.about.kinds == ["other model"]
    assert record.about.parameters == run.decoder().num_parameters() == 2259
    assert record.about.flops_a_token is record.about.training_flops_a_token is None
    assert [*record.sources] == [name] and lines[-1]["loss"] < 2.5
    assert run.score().complete and run.answer("12+3").tokens
    # Another version of the file is another model.
    write(init="self.scale = 1.0")
    assert "was trained with another mine.py:Mine" in refused("score", run.path)


def test_a_model_resumes_bit_for_bit(here: Path) -> None:
    # Tied weights are one parameter, with two names in a checkpoint.
    name = write(init="self.head.weight = self.embedding.weight")
    unbroken = small_training.run(here / "whole", name=name)
    stopped = small_training.run(here / "parts", name=name, stop=13)
    assert not stopped.state().trained
    resumed = small_training.run(here / "parts", name=name)
    weights = [small_training.final_weights(run) for run in (unbroken, resumed)]
    small_training.assert_same_bits(*weights)
    tied = [weights[0][f"model/model.{part}.weight"] for part in ("embedding", "head")]
    assert torch.equal(*tied) and tied[0].std() > 0
    decoder = checkpoint.trained_decoder(unbroken, parse(name), unbroken.record())
    assert torch.equal(decoder.get_parameter("model.embedding.weight"), tied[0])


def test_other_models_are_ranked_apart(here: Path) -> None:
    done("run", "--pe", "rope", "--model", "gru", "--model", write(), *settings())
    for path, outside in (("rope", 20), ("gru", 90), ("mine.py:Mine", 50)):
        [run] = [run for run in tape_arith.find_runs() if run.record().encoding == path]
        grid = run.score()
        grid.exact[:] = np.where(grid.mask("in_distribution"), grid.total, 0)
        grid.exact[-1, -1] = grid.total[-1, -1] * outside // 100
        grid.seen = grid.seen_exact = None
        grid.save(run.path / "grid.json")
    Path("mine.py").unlink()  # its run says what it is
    board = tape_arith.leaderboard(preset="mini", costs=True).set_index("encoding")
    assert board.section.to_dict() == {
        "rope": "Task-agnostic",
        "gru": "Other models",
        "mine.py:Mine": "Other models",
    }
    assert board["rank"].to_dict() == {"rope": 1, "gru": 1, "mine.py:Mine": 2}
    assert board.parameters.to_dict() == {"rope": 0, "gru": 2240, "mine.py:Mine": 2259}
    assert np.isnan(board.flops["gru"]) and board.flops["rope"] == 0
    text = done("leaderboard", "--preset", "mini", "--costs").out
    assert "Of another model, parameters are all that it has" in text


SLIPS: dict[str, tuple[dict[str, object], str]] = {
    "builds": ({"init": "self.extra = nn.Linear(width, 5)", "result": ".sum(-1)"}, "forward retu"),
    "shape": ({"result": " / (tokens.shape[1] < 100)"}, "logits that are not finite"),
    "deterministic": (
        {"change": "x = nn.functional.dropout(x, 0.1, self.training)"},
        "two identical calls differ, in training",
    ),
    "causal": ({"two_way": True, "outputs": 2}, "another last token, at place 19, changed the"),
    "rows": ({"change": "x = x + 0.1 * x.mean((0, 1)).detach() * 0 + x[:1]"}, "row 1 alone and"),
    "prefix": ({"change": "x = x / lengths[:, None, None]"}, "prefix of 1 of 20 tokens"),
    "no dead parameter": (
        {"init": "self.extra = nn.Linear(3, 3)"},
        "model.extra.weight gets no gradie",
    ),
}


@pytest.mark.parametrize("check", SLIPS)
def test_each_slip_is_explained(check: str, here: Path) -> None:
    changes, message = SLIPS[check]
    report = examine(parse(write(**changes)))
    broken = {outcome.check: outcome for outcome in report.outcomes if not outcome.holds}
    slip = broken[check]
    assert message in slip.happened and slip.cause
    said = f"{slip.expected} {slip.happened} {slip.cause}"
    assert not re.search(r"encoding|hook|seqs|inert|NoPE", said), "a model gets tokens and lengths"
    assert next(iter(broken)) == check  # the first that training names
    said = refused("train", "--model", "mine.py:Mine", *settings())
    assert said.startswith(f"mine.py:Mine breaks a promise ({check}): {broken[check].happened}")


def test_no_flops_are_made_up_for_a_model() -> None:
    with pytest.raises(tape_arith.UsageError, match="gru is a model, and a measurement counts"):
        Options(encodings=(parse("gru"),)).names("rope")


# ---- trained elsewhere -------------------------------------------------------------------------


def test_a_runs_decoder_has_its_own_grid(here: Path) -> None:
    run = tape_arith.train("rope", **TINY)
    own, decoder = run.score(), run.decoder()

    def logits(tokens: Tensor, lengths: Tensor) -> Tensor:
        assert torch.equal(lengths, (tokens != PAD).sum(-1))
        with torch.no_grad():
            return decoder(Sequences(tokens, lengths, lengths))

    grid = tape_arith.score_model(logits, name="theirs", same_budget=True, **TINY)
    assert grid.complete and grid.evaluation == own.evaluation and grid.budget == own.budget
    for counts in ("exact", "total", "right_sum", "first_wrong_sum"):
        assert np.array_equal(getattr(grid, counts), getattr(own, counts))
    tape_arith.heatmap([grid, own])
    grid.save("theirs.json")
    assert np.array_equal(tape_arith.Grid.load(Path("theirs.json")).exact, grid.exact)
    # Unless its owner says so, it has no budget, and stands with others of the kind alone.
    alone, other = (tape_arith.score_model(logits, name=name, **TINY) for name in ("a", "b"))
    assert np.array_equal(alone.exact, own.exact) and alone.budget.steps == 0
    tape_arith.heatmap([alone, other])
    with pytest.raises(tape_arith.UsageError, match=r"\(trained elsewhere: same_budget=True says"):
        tape_arith.heatmap([alone, own])


@pytest.mark.parametrize("preset", ["mini", "mini-parity", "mini-sort"])
def test_planted_errors_are_the_grid(preset: str) -> None:
    """A function that knows the answers, and errs in every third prompt, gets the planted grid."""
    vocabulary = load_task(load_preset(preset).task).vocabulary
    equals = vocabulary.token("=")
    batches = list(tape_arith.problems(preset, problems_per_cell=3))
    predicted: dict[bytes, list[int]] = {}
    planted = []
    for batch in batches:
        for tokens, targets, mask, cell in zip(*batch, strict=True):
            first, end = np.flatnonzero(mask)[[0, -1]]
            assert targets[end] == EOS and mask[first : end + 1].all()
            answer, prompt = targets[first : end + 1], int(tokens[: first + 1].sum())
            place = prompt % len(answer) if prompt % 3 == 0 else -1
            if place >= 0:
                answer[place] = (answer[place] + 1) % len(vocabulary)
            predicted[tokens[: first + 1].tobytes()] = answer.tolist()
            planted.append((tuple(cell), place))

    def logits(tokens: Tensor, lengths: Tensor) -> Tensor:
        scores = torch.zeros(*tokens.shape, len(vocabulary))
        for row, length, score in zip(tokens, lengths.tolist(), scores, strict=True):
            length -= int(row[length - 1]) == EOS  # a shorter row has its end, which nobody reads
            start = row.tolist().index(equals)
            best = torch.tensor(predicted[row[: start + 1].numpy().tobytes()])
            score[torch.arange(start, length), best[: length - start]] = 1
        return scores

    grid = tape_arith.score_model(logits, preset, name="planted", problems_per_cell=3)
    exact, total, first_wrong = np.zeros((3, *grid.total.shape), np.int64)
    for cell, place in planted:
        total[cell] += 1
        exact[cell] += place < 0
        first_wrong[cell] += max(place, 0)
    assert grid.complete and 0 < exact.sum() < total.sum() and (total == 3).all()
    assert np.array_equal(grid.exact, exact) and np.array_equal(grid.total, total)
    assert np.array_equal(grid.first_wrong_sum, first_wrong)


def test_the_training_problems_are_those_of_a_run() -> None:
    """Step by step, with leading [BOS] if the settings ask for it."""
    config = load_preset("mini").with_settings({"steps": 3, "leading_bos": 4})
    bucket = config.bucket(5)
    batches = Batches(bucket, bucket, config)
    with pytest.raises(
        tape_arith.UsageError, match=r"did you mean 'train'. Known: carry, eval.*train"
    ):
        tape_arith.problems("mini", "trian")
    own = tape_arith.problems("mini", "train", seed=5, steps=3, leading_bos=4)
    for step, (tokens, targets, mask, cell) in enumerate(own):
        problems, _ = batches.problems(step)
        counted = targets[np.arange(targets.shape[1]) < problems.lengths[:, None] - 1]
        starts = problems.starts
        assert np.array_equal(tokens[:, 0], problems.tokens[starts])
        assert np.array_equal(counted, np.delete(problems.tokens, starts))
        assert np.array_equal(mask.sum(1), problems.lengths - problems.prompt_lengths)
        assert np.array_equal(cell + 1, problems.axis_lengths)
    assert step == 2 and (tokens == BOS).any()


def test_what_score_model_refuses() -> None:
    draws = iter(torch.randn(100, 27, 12, 19))
    untrained = torch.nn.GRU(19, 19, batch_first=True, bidirectional=True)

    def one_hot(tokens: Tensor) -> Tensor:
        return functional.one_hot(tokens, 19).float()

    refused: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "another last token changes": lambda tokens, _: one_hot(tokens.roll(-1, 1)),
        "changes earlier logits": lambda tokens, _: untrained(one_hot(tokens))[0][..., 19:],
        "a second time": lambda tokens, _: next(draws)[: len(tokens), : tokens.shape[1]],
        "not finite": lambda tokens, _: one_hot(tokens).log() * torch.inf,
    }
    for message, model in refused.items():
        with pytest.raises(tape_arith.UsageError, match=f"mine cannot be scored: .*{message}"):
            tape_arith.score_model(model, name="mine", **TINY)
    with pytest.raises(tape_arith.UsageError, match="names an encoding: give a name of its own"):
        tape_arith.score_model(lambda tokens, _: tokens, name="rope", **TINY)
    shape = r"forward returned \[16, 12\], not logits \[B, T, V\] = \[16, 12, 19\]"
    with pytest.raises(tape_arith.UsageError, match=f"mine cannot be scored: TypeError: .*{shape}"):
        tape_arith.score_model(lambda tokens, _: tokens, name="mine", **TINY)


# ---- the page ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_page_can_be_typed_in_order(here: Path) -> None:
    trained, elsewhere = re.findall(r"^```python\n(.*?)^```$", README, flags=re.M | re.S)
    (commands,) = re.findall(r"^```sh\n(.*?)^```$", README, flags=re.M | re.S)
    Path("conv.py").write_text(trained)
    for line in commands.splitlines():
        words = shlex.split(line)[1:]
        done(*words, *(settings()[2:] if words[0] in ("train", "run") else ()))
    assert len(list(Path("runs/mini").glob("*/seed-*"))) == 3 * 3 + 1
    Path("elsewhere.py").write_text(elsewhere)
    grid = runpy.run_path("elsewhere.py")["grid"]
    assert grid.complete and Path("my-gru.json").exists() and Path("beside-rope.png").exists()
