"""The figure's artists: what is drawn where, and what a reader is told."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.figures.heatmap import cell_means, compose, draw, layout, significant, ticks
from tape_arith.arith.scoring.grid import Grid


def grid(
    encoding: str,
    seed: int = 0,
    trained: int = 4,
    outside: int = 20,
    inside: int = 100,
    **more: Any,
) -> Grid:
    """A grid to twice `trained` digits: `inside` and `outside` of 100 problems right."""
    size = more.pop("size", 2 * trained)
    evaluation = {"task": "addition", "version": 1, "seed": 0, "max_digits": size}
    evaluation |= {"problems_per_cell": 100, "sha256": "3f2a91bc" + "0" * 56}
    made = Grid.empty(
        encoding,
        preset="mini",
        seed=seed,
        trained_digits=trained,
        budget={"steps": 1500},
        evaluation=evaluation,
        **more,
    )
    made.total[:] = 100
    made.exact[:] = np.where(made.mask("in_distribution"), inside, outside)
    return made


def panel(encoding: str, seeds: Sequence[int] = (0, 1, 2), **more: Any) -> list[Grid]:
    return [grid(encoding, seed, **more) for seed in seeds]


def lose(made: Grid, rows: slice, columns: slice) -> None:
    made.exact[rows, columns] = made.total[rows, columns] = 0


def mesh(ax: Axes) -> QuadMesh:
    found = ax.collections[0]
    assert isinstance(found, QuadMesh)
    return found


def values(ax: Axes) -> Any:
    array = mesh(ax).get_array()
    assert array is not None
    return np.ma.asarray(array).reshape(int(ax.get_ylim()[1]), -1)


def words(figure: Figure, ax: Axes | None = None) -> str:
    """All visible text, of the figure or of one panel."""
    return "\n".join(text.get_text() for text in (ax or figure).findobj(Text))


class TestCells:
    def test_mean_over_seeds_and_first_operand_upwards(self) -> None:
        one, other = grid("tape", 0), grid("tape", 1)
        one.exact[5, 0], other.exact[5, 0] = 40, 60  # six digits plus one digit
        ax = compose([[one, other]]).axes[0]
        assert values(ax)[5, 0] == pytest.approx(0.5)
        assert ax.get_xlim() == (0, 8) and ax.get_ylim() == (0, 8)  # (1, 1) at the lower left
        assert ax.get_xlabel() == "length of second operand"
        assert ax.get_ylabel() == "length of first operand"

    def test_one_scale_for_all(self) -> None:
        figure = compose([panel("rope", outside=1), panel("fire"), panel("tape", outside=90)])
        assert [mesh(ax).get_clim() for ax in figure.axes[:3]] == [(0.0, 1.0)] * 3
        assert len(figure.axes) == 4  # one colour bar

    def test_missing_cells_are_masked_and_hatched(self) -> None:
        gappy, whole = panel("fire"), panel("tape")
        lose(gappy[1], slice(6, 8), slice(0, 3))
        figure = compose([gappy, whole, panel("rope")])
        lost = np.ma.getmaskarray(values(figure.axes[0]))
        assert lost[6:8, 0:3].all() and lost.sum() == 6
        assert figure.axes[0].patch.get_hatch() and not figure.axes[1].patch.get_hatch()
        assert not np.ma.getmaskarray(values(figure.axes[1])).any()
        text = words(figure, figure.axes[0])
        assert "out of distribution: 6 missing" in text and "in distribution 100.0" in text
        assert "not scored" in words(figure)
        assert np.isnan(cell_means(gappy)[6:8, 0:3]).all()

    def test_nothing_scored_at_all(self) -> None:
        empty = grid("tape")
        lose(empty, slice(None), slice(None))
        figure = compose([[empty]])
        assert np.ma.getmaskarray(values(figure.axes[0])).all()
        assert "not fully scored" in words(figure)

    def test_trained_square(self) -> None:
        for trained, size in ((4, 8), (3, 9), (5, 5)):
            figure = compose([panel("tape", trained=trained, size=size)])
            squares = [p for p in figure.axes[0].patches if isinstance(p, Rectangle)]
            assert [square.get_bbox().bounds for square in squares] == [(0, 0, trained, trained)]


class TestTicks:
    def test_lengths(self) -> None:
        assert ticks(1) == [1] and ticks(5) == [1, 2, 3, 4, 5]
        assert ticks(24) == [1, 5, 10, 15, 20] and ticks(600) == [1, 200, 400, 600]

    def test_in_the_middle_of_their_cells(self) -> None:
        ax = compose([panel("tape", trained=8)]).axes[0]
        for axis in (ax.xaxis, ax.yaxis):
            labels = [label.get_text() for label in axis.get_ticklabels()]
            assert labels == ["1", "4", "8", "12", "16"]
            assert list(axis.get_ticklocs()) == [0.5, 3.5, 7.5, 11.5, 15.5]

    def test_words_only_at_the_outer_edge(self) -> None:
        figure = compose([panel(name) for name in ("rope", "rand-rope", "nope", "fire", "tape")])
        labels = [(bool(ax.get_ylabel()), bool(ax.get_xlabel())) for ax in figure.axes[:5]]
        assert labels == [(True, False), (False, False), (False, True), (True, True), (False, True)]


class TestDifference:
    def test_first_minus_second(self) -> None:
        figure = compose([panel("fire", outside=70), panel("tape", outside=20)])
        ax = figure.axes[2]
        assert values(ax)[7, 7] == pytest.approx(50)
        low, high = mesh(ax).get_clim()
        assert low == -high == -60
        text = words(figure, ax)
        assert "fire \N{MINUS SIGN} tape" in text and "out of distribution +50.0 points" in text
        assert "these runs only" in text
        assert len(figure.axes) == 5  # three panels, two colour bars

    def test_other_way_round(self) -> None:
        figure = compose([panel("tape", outside=20), panel("fire", outside=70)])
        assert values(figure.axes[2])[7, 7] == pytest.approx(-50)
        assert "out of distribution \N{MINUS SIGN}50.0 points" in words(figure, figure.axes[2])

    def test_not_significant_cells_are_grey(self) -> None:
        one, other = panel("fire"), panel("tape")
        for made in one:
            made.exact[7, 1] = 90
        assert np.argwhere(significant(one, other)).tolist() == [[7, 1]]
        grey = compose([one, other]).axes[2].collections[1].get_array()
        assert grey is not None
        assert np.argwhere(np.ma.getmaskarray(grey).reshape(8, 8)).tolist() == [[7, 1]]

    def test_missing_is_neither_grey_nor_coloured(self) -> None:
        one, other = panel("fire", outside=70), panel("tape")
        lose(other[0], slice(7, 8), slice(7, 8))
        ax = compose([one, other]).axes[2]
        for layer in ax.collections:
            assert np.ma.getmaskarray(np.ma.asarray(layer.get_array())).reshape(8, 8)[7, 7]
        assert ax.patch.get_hatch()

    def test_only_for_two(self) -> None:
        for names in (["tape"], ["tape", "fire", "rope"]):
            figure = compose([panel(name) for name in names])
            assert "points" not in words(figure)

    def test_equal_grids(self) -> None:
        figure = compose([panel("fire"), panel("tape")])
        assert mesh(figure.axes[2]).get_clim() == (-10, 10)
        assert "out of distribution 0.0 points" in words(figure, figure.axes[2])


class TestWords:
    def test_means_and_intervals_over_seeds(self) -> None:
        made = [grid("tape", 0, outside=10), grid("tape", 1, outside=20), grid("tape", 2)]
        text = words(compose([made]))
        assert "out of distribution 16.7 ± 14.3 %" in text  # 10, 20, 20 with t = 4.303
        assert "in distribution 100.0 ± 0.0 %" in text
        assert "all cells 37.5 ± 10.8 %" in text
        assert "3 seeds" in text and "over seeds" in text and "these runs only" not in text

    def test_one_seed_says_what_its_interval_covers(self) -> None:
        text = words(compose([panel("tape", [3])]))
        assert "seed 3" in text and "over problems, these runs only" in " ".join(text.split())

    def test_not_converged(self) -> None:
        good, bad = panel("fire"), panel("tape", inside=90)
        some = [grid("rope", 0), grid("rope", 1, inside=98)]
        figure = compose([good, bad, some])
        marks = [words(figure, ax).count("not converged") for ax in figure.axes[:3]]
        assert marks == [0, 1, 1]
        assert "1 not converged" in words(figure, figure.axes[2])
        assert "Not converged: below" in words(figure)

    def test_footnote(self) -> None:
        figure = compose([panel("fire"), panel("tape", [0, 1]), panel("rope")])
        text = " ".join(words(figure).split())
        for part in (
            "Task addition",
            "trained to 4 digits and tested to 8",
            "preset mini",
            "100 problems a cell",
            "evaluation set 3f2a91bc",
            "seeds 0, 1, 2 (tape: 0, 1)",
        ):
            assert part in text

    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({}, "(preset mini),"),
            ({"steps": 2000}, "(preset mini with steps=2,000),"),
            (
                {"task": "subtraction", "learning_rate": 5e-4, "clip": 1.0},
                "(preset mini with task=subtraction, learning_rate=0.0005, clip=1),",
            ),
            ({name: 1 for name in "abcdef"}, "(preset mini with a=1, b=1, c=1, d=1 and 2 more),"),
        ],
    )
    def test_what_was_set_in_place_of_the_preset_s(
        self, settings: dict[str, int | float | str], said: str
    ) -> None:
        # A grid of an older version has the same budget but does not tell.
        figure = compose([panel("fire"), panel("tape", settings=settings)])
        assert said in " ".join(words(figure).split())

    def test_a_difference_of_long_names_keeps_its_sign(self) -> None:
        first, second = "fire:init_l=512:width=64", "tape:context=no-attention:form=non-equivariant"
        figure = compose([panel(first), panel(second)])
        assert "first \N{MINUS SIGN} second" in words(figure, figure.axes[2])
        figure = compose([panel("fire"), panel("tape")])
        assert "fire \N{MINUS SIGN} tape" in words(figure, figure.axes[2])

    def test_one_seed_of_several(self) -> None:
        figure = compose([panel("fire"), panel("tape")], seed=1)
        assert "seed 1" in words(figure, figure.axes[0]) and "2 seeds" not in words(figure)

    @pytest.mark.parametrize("count", [1, 2, 8, 14])
    def test_no_text_leaves_the_page_or_meets_another(self, count: int) -> None:
        names = ["rope", "rand-rope", "fire:init_l=512:width=64:something=long", "tape-heads"]
        changed = {"num_problems": 640_000, "batch_size": 512, "steps": 20_000, "groups": 8, "x": 1}
        made = [
            panel(f"{names[k % 4]}{k}", inside=90, outside=k, settings=changed)
            for k in range(count)
        ]
        lose(made[0][0], slice(4, 8), slice(4, 8))
        figure = compose(made)
        figure.canvas.draw()
        page = figure.bbox
        boxes = []
        for text in figure.findobj(Text):
            if not text.get_text().strip() or not text.get_visible():
                continue
            box = text.get_window_extent()
            inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= page.x1 and box.y1 <= page.y1
            assert inside, text.get_text()
            boxes.append((box.x0 + 1, box.x1 - 1, box.y0 + 3, box.y1 - 3, text.get_text()))
        for k, (x0, x1, y0, y1, one) in enumerate(boxes):
            for u0, u1, v0, v1, other in boxes[k + 1 :]:
                apart = x1 <= u0 or u1 <= x0 or y1 <= v0 or v1 <= y0
                assert apart, (one, other)

    def test_a_papers_width(self) -> None:
        for count in range(1, 50):
            place = layout(count)
            assert place.columns * place.rows >= count > place.columns * (place.rows - 1) - 2
            assert place.letters >= (5 if place.brief else 6) and place.brief == (count > 12)
            assert place.height <= 9.6  # a page
        assert 7.0 <= compose([panel(str(k)) for k in range(5)]).get_figwidth() <= 7.6

    def test_many_panels_say_it_in_short_words(self) -> None:
        figure = compose([panel(f"pe{k}", outside=k) for k in range(13)], order="Order: mine.")
        text = " ".join(words(figure).split())
        assert "out 12.0 ± 0.0 %" in text and "in 100.0 ± 0.0 %" in text and "3 seeds" in text
        assert "out of distribution 12.0" not in text
        assert "Out: mean out of distribution; in: in distribution. Order: mine." in text
        assert figure.axes[0].get_ylabel() == "first operand"
        few = " ".join(words(compose([panel("tape"), panel("fire")], order="Order: mine.")).split())
        assert few.endswith("Order: mine.") or "Order: mine." in few
        assert "Out: mean" not in few

    def test_seeds_of_many_are_counted(self) -> None:
        made = [panel(f"pe{k}", [0]) for k in range(8)] + [panel(f"few{k}") for k in range(5)]
        text = " ".join(words(compose(made)).split())
        assert "seed 0 (5 encodings: 0, 1, 2)." in text


class TestRefused:
    @pytest.mark.parametrize(
        ("panels", "says"),
        [
            ([], "nothing to compare"),
            ([[]], "nothing to compare"),
            ([[grid("tape"), grid("tape")]], "two grids of one seed"),
            ([[grid("tape"), grid("fire", 1)]], "one encoding, not tape and fire"),
            ([[grid("tape")], [grid("tape", 1)]], "tape is named twice"),
            ([[grid("tape")], [grid("fire", size=9)]], "max digits 9, not 8"),
        ],
    )
    def test_panels(self, panels: list[list[Grid]], says: str) -> None:
        with pytest.raises(UsageError, match=says):
            compose(panels)

    def test_a_seed_that_is_not_there(self) -> None:
        with pytest.raises(UsageError, match="tape has no seed 7: it has seeds 0, 1, 2"):
            compose([panel("tape")], seed=7)


class TestFile:
    @pytest.mark.parametrize(
        ("name", "start"),
        [("a.png", b"\x89PNG"), ("a.PDF", b"%PDF"), ("new/folder/a.svg", b"<?xml")],
    )
    def test_by_its_ending(self, tmp_path: Path, name: str, start: bytes) -> None:
        path = tmp_path / name
        draw([panel("fire"), panel("tape")], path)
        first = path.read_bytes()
        assert first.startswith(start)
        assert [p.name for p in path.parent.iterdir()] == [path.name]
        draw([panel("fire"), panel("tape")], path)
        assert path.read_bytes() == first  # the same figure is the same file
        assert plt.get_fignums() == []

    def test_svg_is_well_formed_and_light(self, tmp_path: Path) -> None:
        draw([panel(name, trained=40) for name in ("rope", "fire", "tape")], tmp_path / "a.svg")
        root = ElementTree.fromstring((tmp_path / "a.svg").read_text())
        assert len(list(root.iter("{http://www.w3.org/2000/svg}image"))) >= 3
        assert (tmp_path / "a.svg").stat().st_size < 500_000

    @pytest.mark.parametrize("name", ["a.jpg", "a", "png", "a.png.gz"])
    def test_other_endings(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(UsageError, match=r"\.png, \.svg or \.pdf"):
            draw([panel("tape")], tmp_path / name)
        assert list(tmp_path.iterdir()) == []

    def test_a_failing_save_leaves_what_was_there(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(self: Figure, path: Path, **_: object) -> None:
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Figure, "savefig", full)
        with pytest.raises(Failure, match=r"cannot write .*new\.png: No space left"):
            draw([panel("tape")], tmp_path / "new.png")
        assert list(tmp_path.iterdir()) == []
        (tmp_path / "old.png").write_bytes(b"old")
        with pytest.raises(Failure, match="No space left"):
            draw([panel("tape")], tmp_path / "old.png")
        assert (tmp_path / "old.png").read_bytes() == b"old"
        assert len(list(tmp_path.iterdir())) == 1

    def test_a_folder_in_the_way(self, tmp_path: Path) -> None:
        (tmp_path / "a.png").mkdir()
        with pytest.raises(Failure, match=r"cannot write .*a\.png"):
            draw([panel("tape")], tmp_path / "a.png")
