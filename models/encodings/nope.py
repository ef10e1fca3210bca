from tape_arith.models.encoding import PositionalEncoding


class NoPE(PositionalEncoding):
    """None: position comes through the causal mask alone.

    It needs at least two layers, because a single layer does not see the order of earlier tokens.
    """

    kind = "none"
    paper = "Kazemnejad et al. 2023, arXiv 2305.19466; Haviv et al. 2022, arXiv 2203.16634"
