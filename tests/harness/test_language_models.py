"""`tape-arith harness`: the grids of a model of Hugging Face and of a server that is killed."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tape_arith
from tape_arith import Grid
from tape_arith.arith.data.bucket import EVALUATION, Bucket
from tape_arith.arith.tasks.load import load_task
from tests.helpers.child_processes import PATIENCE, start, wait
from tests.helpers.tiny_runs import contents, done, refused, untouched

pytestmark = pytest.mark.slow
pytest.importorskip("lm_eval", reason="needs lm-eval: pip install 'tape-arith[harness]'")

TINY = {"trained_digits": 2, "tested_digits": 3}
SETTINGS = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]
CELLS, PER_CELL, SHOTS = 9, 30, 3


class Server(ThreadingHTTPServer):
    """A server of OpenAI's completions that adds, with an error in every third sum of its kind."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []
        self.before_answer: Callable[[int], None] = lambda number: None
        self.together = 1

    @property
    def options(self) -> list[str]:
        url = f"base_url=http://127.0.0.1:{self.server_port}/v1/completions"
        arguments = f"{url},model=adder,tokenizer_backend=None,max_retries=1,api_key=hidden"
        arguments += f",num_concurrent={self.together}"
        words = ["harness", "--model-api", "local-completions", "--model-args", arguments]
        return [*words, "--shots", f"{SHOTS}", "--per-cell", f"{PER_CELL}", *SETTINGS]


def written(a: int, b: int) -> str:
    """The text of the server: right with blanks and a second line, wrong in several ways."""
    wrong = {0: f"{a + b + 1}", 1: f"{a + b}0", 2: f"{a + b}"[:-1], 3: f"{a + b}."}
    return wrong[b % 4] if planted(a, b) else f" {a + b} \nand so on"


def planted(a: int, b: int) -> bool:
    return a > 9 and (a + b) % 3 == 0


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert request["temperature"] == 0 and request["model"] == "adder"
        self.server.asked.append(request["prompt"])
        self.server.before_answer(len(self.server.asked))
        a, b = map(int, request["prompt"].split("\n")[-1].removesuffix("=").split("+"))
        body = json.dumps({"choices": [{"index": 0, "text": written(a, b)}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def planted_grid() -> NDArray[np.int64]:
    """Count the right answers of the server by digits of a and b, from the text of the problems."""
    bucket = Bucket("addition:order=plain", TINY["tested_digits"], 0, EVALUATION)
    problems = bucket.problems(0, CELLS * PER_CELL)
    exact = np.zeros((3, 3), np.int64)
    for line in load_task(bucket.task).vocabulary.lines(problems.tokens).split():
        a, b = line.split("=")[0].split("+")
        exact[len(a) - 1, len(b) - 1] += not planted(int(a), int(b))
    return exact


def test_planted_errors_are_found_in_their_cells(server: Server, here: Path) -> None:
    server.together = 4
    text = done(*server.options).out
    folder = here / "language-models/mini@addition@order=plain/local-completions@adder-3-shot"
    grid = Grid.load(folder / "grid.json")
    exact = planted_grid()
    assert grid.complete and (grid.total == PER_CELL).all() and (grid.exact == exact).all()
    assert 0 < exact[1:].sum() < grid.total[1:].sum()
    outside = np.concatenate([exact[2], exact[:2, 2]])
    for words, cells in {"in": exact[:2, :2], "out of": outside}.items():
        assert f"\n{words} distribution {100 * cells.mean() / PER_CELL:.1f} ± " in text
    # Each problem is asked once, although short ones recur, after the same examples.
    lines = [prompt.split("\n") for prompt in server.asked]
    assert len({line[-1] for line in lines}) == len(lines) < grid.total.sum()
    assert {len(line) for line in lines} == {1 + SHOTS}
    assert len({tuple(line[:-1]) for line in lines}) == 1
    shown = [value for key, value in grid.scoring.items() if key.startswith("question_")]
    assert len(shown) == 3 and all(line in text.splitlines() for line in shown)
    assert "api_key=..." in grid.scoring["model_args"]
    # Not even in the figure, which says what drew it.
    assert not any(b"hidden" in content for content in contents(folder).values())
    assert (folder / "heatmap.png").exists()
    asked = len(server.asked)
    assert done(*server.options).out == text
    assert len(server.asked) == asked
    with untouched(here):
        assert "answers another request (template {problem}=, not {problem} =)" in refused(
            *server.options, "--out", folder, "--template", "{problem} ="
        )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_scoring_asks_nothing_twice(server: Server, here: Path, number: int) -> None:
    kill = threading.Event()

    def before_answer(count: int) -> None:
        if count == 20:
            kill.set()
            time.sleep(2)

    server.before_answer = before_answer
    out = here / "out"
    process = start([*server.options, "--out", out])
    assert kill.wait(PATIENCE)
    process.send_signal(number)
    code, text = wait(process)
    answered = len((out / "answers.jsonl").read_text().splitlines()) - 1
    assert (code, answered) == (
        (-9, 19) if number == signal.SIGKILL else (75, len(server.asked))
    ), text
    if number == signal.SIGKILL:
        with open(out / "answers.jsonl", "a") as file:  # killed while it wrote a line
            file.write('{"problem": "1+')
    asked = list(server.asked[:answered])
    del server.asked[:]
    done(*server.options, "--out", out)
    assert not set(asked) & set(server.asked) and len(set(server.asked)) == len(server.asked)
    assert (Grid.load(out / "grid.json").exact == planted_grid()).all()


def test_an_exported_model_has_the_grid_of_its_run(here: Path) -> None:
    settings: dict[str, Any] = {"trained_digits": 1, "tested_digits": 2, "problems_per_cell": 20}
    size: dict[str, Any] = {"num_layers": 2, "hidden_size": 32, "head_dim": 16, "mlp_size": 64}
    training: dict[str, Any] = {
        "num_problems": 100_000,
        "batch_size": 64,
        "steps": 60,
        "learning_rate": 0.01,
    }
    run = tape_arith.train("rope", preset="mini", **settings, **size, **training)
    own = run.score()
    arguments = f"pretrained={run.export(out='exported')},trust_remote_code=True,batch_size=16"
    grid = tape_arith.score_language_model(
        "hf", arguments, preset="mini", task="addition", out="out", **settings
    )
    assert (grid.exact == own.exact).all() and 0 < grid.exact[0, 0] < 20
    assert grid.evaluation == own.evaluation and grid.axes == own.axes
    lines = (here / "out/answers.jsonl").read_text().splitlines()[1:]
    for line in map(json.loads, lines):  # the tokenizer keeps every digit, in the order of the run
        answer = run.answer("+".join(number[::-1] for number in line["problem"].split("+")))
        text = "".join(answer.tokens).removesuffix("[EOS]")
        assert line["answer"][: len(text)] == text


def test_what_cannot_be_asked_is_said(server: Server, here: Path) -> None:
    assert "unknown --model-api 'hff': did you mean 'hf'?" in refused(
        "harness", "--model-api", "hff", "--model-args", "pretrained=x"
    )

    def fail(number: int) -> None:
        if number > 4:
            raise ConnectionError

    server.before_answer = fail
    error = refused(*server.options, "--out", "out", code=1, after=True)
    assert error.startswith("local-completions:adder failed, its answers are kept: ")
    assert len((here / "out/answers.jsonl").read_text().splitlines()) == 1 + 4
    (here / "out/answers.jsonl").write_text('{"problem": "1+2"}\n3\n')
    assert "answers.jsonl is corrupt" in refused(*server.options, "--out", "out", code=1)
