"""`tape-arith export`: folders, refusals, and what the card says."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tape_arith.arith.compare.captions import MEANS
from tape_arith.arith.grids.axes import REGION_WORDS
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.grids.panel import Panel
from tests.helpers.exported_runs import SMALL, made_run, scored
from tests.helpers.tiny_runs import contents, done, refused, untouched


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, decoder = made_run(tmp_path_factory.mktemp("runs"), "rope")
    scored(folder, decoder)
    return folder.path


@pytest.fixture
def run(made: Path, here: Path) -> Path:
    return shutil.copytree(made, here / "runs/mini/rope/seed-0")


def test_a_model_and_its_card(run: Path, here: Path) -> None:
    assert done("export", run).out == "exports/mini_rope_seed_0\n"
    out = here / "exports" / "mini_rope_seed_0"
    config = json.loads((out / "config.json").read_text())
    assert config["encoding"] == "rope" and config["parts"] == [{"name": "rope", "options": {}}]
    ids = json.loads((out / "tokenizer.json").read_text())["model"]["vocab"]
    assert ids["[EOS]"] == config["eos_token_id"] == 3 and ids["0"] == 4
    weights = load_file(run / "weights" / "final.safetensors")
    exported = load_file(out / "model.safetensors")
    assert {f"decoder.{k.removeprefix('model/')}" for k in weights} == exported.keys()
    assert not [file for file in out.rglob("*") if file.suffix in (".bin", ".pt", ".pkl")]
    card, grid = (out / "README.md").read_text(), Grid.load(run / "grid.json")
    assert "@article{su2021roformer" in card and grid.evaluation.sha256 in card
    rows = [line.split("|")[1].strip() for line in card.splitlines() if line[:1] == "|"]
    assert {"1", "2", "3"} <= set(rows) and "{%" not in card


def test_the_hub_reads_the_means_and_their_intervals(run: Path, here: Path) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="needs huggingface_hub")
    grid = Grid.load(run / "grid.json")
    grid.exact[:] = [[4, 4, 1], [4, 3, 0], [2, 0, 0]]
    grid.save(run / "grid.json")
    done("export", run, "--out", "there")
    panel = Panel.of([Grid.load(run / "grid.json")])
    card = hub.ModelCard.load(here / "there" / "README.md")
    assert card.data.model_name == "rope on addition, seed 0"
    results = {
        each.metric_name.removeprefix("exact match, "): each for each in card.data.eval_results
    }
    assert results.keys() == {"in distribution", "out of distribution", "all cells"}
    for region in MEANS:
        result, interval = results[REGION_WORDS[region]], panel.interval(region)
        assert interval is not None and 0 < interval.low < interval.mean < interval.high < 1
        mean, low, high = (
            round(share, 6) for share in (interval.mean, interval.low, interval.high)
        )
        assert (result.metric_type, result.metric_value) == ("exact_match", mean)
        assert result.metric_args == {"low": low, "high": high, "level": 0.95, "over": "problems"}
        assert (result.task_type, result.dataset_split) == ("text-generation", "evaluation")
        assert result.dataset_args["sha256"] == panel.first.evaluation.sha256
    # What the Hub writes again is the same.
    assert hub.ModelCard(str(card)).data.to_dict() == card.data.to_dict()
    assert "`hf upload USER/NAME FOLDER`" in card.text
    (run / "grid.json").unlink()
    done("export", run, "--out", "unscored")
    assert hub.ModelCard.load(here / "unscored" / "README.md").data.eval_results is None


def test_the_hub_reads_the_results_of_a_benchmark(run: Path, here: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    done("export", run, "--dataset-id", "lab/addition", "--out", "there")
    text = (here / "there" / ".eval_results" / "tape-arith.yaml").read_text()
    entries = {entry["dataset"]["task_id"]: entry for entry in yaml.safe_load(text)}
    grid = Grid.load(run / "grid.json")
    panel, sizes = Panel.of([grid]), f"{grid.trained_digits}-to-{grid.max_digits}-digits"
    assert list(entries) == [f"addition-{sizes}-{r.replace('_', '-')}" for r in MEANS]
    for region, entry in zip(MEANS, entries.values(), strict=True):
        interval = panel.interval(region)
        assert interval is not None and entry["value"] == round(interval.mean, 6)
        assert entry["dataset"]["id"] == "lab/addition"
        assert f"{interval.low:.6f} to {interval.high:.6f} over problems" in entry["notes"]
        assert grid.evaluation.sha256 in entry["notes"]
    if hasattr(hub := pytest.importorskip("huggingface_hub"), "parse_eval_result_entries"):
        parsed = hub.parse_eval_result_entries(yaml.safe_load(text))
        assert [each.value for each in parsed] == [each["value"] for each in entries.values()]
    assert "FOLDER/.eval_results .eval_results" in (here / "there" / "README.md").read_text()
    with untouched(here / "there"):
        assert "--fresh" in refused("export", run, "--out", "there")
    done("export", run)
    assert not list(here.glob("exports/*/.eval_results"))


def test_variants_of_the_decoder_are_exported(here: Path) -> None:
    variant: dict[str, Any] = {"norm": "deepnorm", "loops": 3, "input_injection": True}
    variant["attention_scale"] = "log"
    folder, _ = made_run(here / "runs", "tape", replace(SMALL, **variant))
    done("export", folder.path, "--out", "there")
    config = json.loads((here / "there" / "config.json").read_text())
    assert config == {**config, **variant} and config["setting"]["loops"] == 3
    card = (here / "there" / "README.md").read_text()
    assert "3 times" in card and "deepnorm" in card and "scale log" in card


def test_a_card_invents_nothing(run: Path, here: Path) -> None:
    (run / "grid.json").unlink()
    done("export", run, "--out", "there")
    card = (here / "there" / "README.md").read_text()
    assert "not measured" in card
    assert "±" not in card
    done("export", run, "--with", "yarn")
    card = (here / "exports" / "mini_rope_yarn_seed_0" / "README.md").read_text()
    assert "# rope+yarn" in card and "@inproceedings{peng2023yarn" in card


def test_what_is_there_is_kept(run: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done("export", run, "--out", "there")
    before = contents(here / "there")
    with untouched(here / "there"):
        assert done("export", run, "--out", "there").out == "there\n"
        # An export of other weights, or of the run as it is scored otherwise, is another one.
        assert "--fresh" in refused("export", run, "--out", "there", "--with", "yarn")
        (run / "grid.json").rename(run / "away")
        assert "--fresh" in refused("export", run, "--out", "there")
    (run / "away").rename(run / "grid.json")
    done("export", run, "--out", "there", "--fresh")
    assert contents(here / "there") == before
    (here / "mine").mkdir()
    for name in ("notes.txt", "tape-arith.json"):  # the second is no export by its name alone
        (here / "mine" / name).write_text("{}")
        with untouched(here / "mine"):
            assert "no export" in refused("export", run, "--out", "mine", "--fresh")
    rename = Path.rename

    def full(source: Path, target: Path) -> Path:
        if target == Path("there") and (source / "tape-arith.json").exists() and not moved:
            moved.append(source)
            raise OSError(28, "No space left on device")
        return rename(source, target)

    moved: list[Path] = []
    monkeypatch.setattr(Path, "rename", full)
    refused("export", run, "--out", "there", "--fresh", code=1, after=True)
    assert moved and contents(here / "there") == before
    assert not list(here.glob(".*")), "nothing half-written stays behind"


def test_no_link_is_replaced(run: Path, here: Path) -> None:
    Path("mine").mkdir()
    Path("model").symlink_to("mine")
    for fresh in ([], ["--fresh"]):
        assert "model is a link" in refused("export", run, "--out", "model", *fresh)
    assert Path("model").is_symlink() and not any(Path("mine").iterdir())


def test_runs_without_weights_are_refused(run: Path, here: Path) -> None:
    (run / "weights" / "final.safetensors").unlink()
    for path, message in {Path("nowhere"): "holds no run", run: "weights are not here"}.items():
        assert message in refused("export", path)
    assert not list(here.glob("exports/*"))
