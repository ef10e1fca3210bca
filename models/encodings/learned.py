from tape_arith.models.encoding import Setting, check_reaches
from tape_arith.models.families.learned_table import LearnedTable


class Learned(LearnedTable):
    """A learned vector for each index, added to the token embeddings.

    x_t + T[t], T [rows, D] from N(0, 0.02) as in GPT-2, without weight decay. Rows from L0 on are
    never trained, so expect failure beyond L0. A sequence with more tokens than rows is an error.

    rows  indices in the table, L1 or more; by default L1
    """

    paper = "Gehring et al. 2017, arXiv 1705.03122"

    def __init__(self, setting: Setting, *, rows: int | None = None) -> None:
        check_reaches(setting, rows=rows)
        super().__init__(setting, setting.max_length if rows is None else rows)

    def trained_reach(self) -> dict[str, int]:
        return {"tokens": self.setting.trained_length}
