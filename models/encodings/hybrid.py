from tape_arith.models.encoding import PositionalLayer, Setting, check_least
from tape_arith.models.errors import UsageError
from tape_arith.models.families.rotary import Rotary


class Hybrid(Rotary):
    """RoPE, but none in every `period`-th layer, which matches by content alone (RNoPE).

    Layer i, counted from 0, has no rotation if i mod `period` = `offset`. By default RoPE and none
    alternate, as in RNoPE: of mini's four layers the second and the fourth have none. `period=4` is
    SmolLM3 (every fourth, so mini's last). RNoPE-SWA, Command A and SWAN also limit the rotated
    layers to a window of near tokens, which is left out here. Looped decoders repeat the pattern; a
    single layer has RoPE.

    period  layers from one without rotation to the next
    offset  the first layer without rotation; by default the last one of the first period
    base    as for `rope`
    """

    paper = "Yang et al. 2025, arXiv 2501.18795"

    def __init__(
        self,
        setting: Setting,
        *,
        period: int = 2,
        offset: int | None = None,
        base: float = 10_000.0,
    ) -> None:
        check_least("hybrid", 2, period=period)
        self.period, self.offset = period, period - 1 if offset is None else offset
        if not 0 <= self.offset < period:
            raise UsageError(
                f"hybrid: offset must be from 0 to {period - 1} for period={period}, not {offset}"
            )
        if period > max(2, setting.num_layers):
            raise UsageError(
                f"hybrid: period must be at most the number of layers, {setting.num_layers}, not "
                f"{period}"
            )
        super().__init__(setting, base=base)

    def layer(self, i: int) -> PositionalLayer:
        return PositionalLayer() if i % self.period == self.offset else super().layer(i)
