"""Problems as tasks of lm-evaluation-harness, and what that makes of an exported model."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.export.export_run import export_run
from tape_arith.arith.export.lm_eval import write_tasks
from tape_arith.arith.tasks.addition import Addition
from tape_arith.arith.tasks.families.tokens import EOS, SYMBOLS, Vocabulary
from tape_arith.models.decoder import Decoder
from tests.helpers.exported_runs import greedy, made_run

BUCKET = Bucket("addition", 5, 0, "evaluation")
GROUP = "tape_arith_addition_3_5"
HARNESS = """
import json, sys
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
model, tasks, group = sys.argv[1:]
report = simple_evaluate(
    model="hf", model_args={"pretrained": model, "trust_remote_code": True}, device="cpu",
    tasks=[group], task_manager=TaskManager(include_path=tasks, include_defaults=False),
    batch_size=8,
)
print(json.dumps({name: result["exact_match,none"] for name, result in report["results"].items()}))
"""


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_each_pair_of_lengths_has_its_problems_in_its_region(tmp_path: Path) -> None:
    assert write_tasks(tmp_path, Addition(), BUCKET, trained_digits=3, per_cell=2) == GROUP
    counts = {"in_distribution": 9 * 2, "one_longer": 12 * 2, "both_longer": 4 * 2}
    by_region = {name: rows(tmp_path / f"{name}.jsonl") for name in counts}
    assert {name: len(listed) for name, listed in by_region.items()} == counts
    every = [row for listed in by_region.values() for row in listed]
    assert sorted(row["index"] for row in every) == list(range(50))
    keys = BUCKET.keys(0, 50).tolist()
    for row in every:
        a, b = row["prompt"].removesuffix("=").split("+")
        assert int(a[::-1]) + int(b[::-1]) == int(row["answer"][::-1])
        assert (len(a), len(b)) == (row["first_length"], row["second_length"])
        assert row["key"] == keys[row["index"]]
    assert max(row["first_length"] for row in by_region["in_distribution"]) <= 3
    assert "max_gen_toks: 7\n" in (tmp_path / "one_longer.yaml").read_text()
    all_cells = (tmp_path / "all_cells.yaml").read_text()
    assert f"- {GROUP}_in_distribution\n  - {GROUP}_out_of_distribution" in all_cells
    alone = tmp_path / "without longer problems"
    write_tasks(alone, Addition(), BUCKET, trained_digits=5, per_cell=1)
    assert [file.name for file in alone.glob("*.jsonl")] == ["in_distribution.jsonl"]
    assert (alone / "all_cells.yaml").read_text().count("  - tape_arith") == 1


def answers(decoder: Decoder, row: dict[str, Any]) -> str | None:
    """Return an answer, None if it has no end or a token without a symbol."""
    ids = [Vocabulary().token(symbol) for symbol in row["prompt"]]
    most = len(ids) + max(row["first_length"], row["second_length"]) + 2
    predicted = greedy(decoder, ids, most, row["key"])
    ends = (
        predicted[-1] == EOS
        and set(Vocabulary().decode(predicted[:-1])) <= set(SYMBOLS)
        and len(predicted) > 1
    )
    return Vocabulary().decode(predicted[:-1]) if ends and min(predicted[:-1]) > EOS else None


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("lm_eval") is None or find_spec("accelerate") is None,
    reason="needs lm-eval with its models: pip install 'lm-eval[hf]'",
)
def test_the_harness_counts_what_we_count(tmp_path: Path) -> None:
    # Of a decoder that was never trained no answer is right, so right is what it says of some.
    folder, decoder = made_run(tmp_path / "runs", "rope", noise=0.3)
    model = export_run(folder, "transformers", out=tmp_path / "model")
    tasks = export_run(folder, "lm-eval", out=tmp_path / "tasks", per_cell=8)
    expected, counts = {}, {}
    for name in ("in_distribution", "one_longer", "both_longer"):
        problems = rows(tasks / f"{name}.jsonl")
        predicted = [answers(decoder, row) for row in problems]
        for i, (row, answer) in enumerate(zip(problems, predicted, strict=True)):
            row["answer"] = answer if answer is not None and i % 4 else row["answer"]
        text = "".join(json.dumps(row) + "\n" for row in problems)
        (tasks / f"{name}.jsonl").write_text(text)
        right = [row["answer"] == answer for row, answer in zip(problems, predicted, strict=True)]
        counts[name] = len(right)
        expected[f"tape_arith_addition_2_3_{name}"] = sum(right) / len(right)
    longer = ("one_longer", "both_longer")
    for group, parts in (("", counts), ("_out_of_distribution", longer)):
        right_answers = sum(counts[n] * expected[f"tape_arith_addition_2_3_{n}"] for n in parts)
        expected[f"tape_arith_addition_2_3{group}"] = right_answers / sum(counts[n] for n in parts)
    assert 5 <= 72 * expected["tape_arith_addition_2_3"] < 60, "nothing to tell apart"

    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    result = subprocess.run(
        [sys.executable, "-I", "-c", HARNESS, str(model), str(tasks), "tape_arith_addition_2_3"],
        env={**environment, "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert json.loads(result.stdout.splitlines()[-1]) == pytest.approx(expected)
