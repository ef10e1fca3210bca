"""A recurrent network: it has no attention, and its state is the only memory of earlier tokens."""

from torch import Tensor, nn

from tape_arith.models.other_model import ModelSetting


class GRU(nn.Module):
    """Stacked gated recurrent units between an embedding and a linear output."""

    paper = "Cho et al. 2014, arXiv 1406.1078"

    def __init__(self, setting: ModelSetting) -> None:
        super().__init__()
        size = setting.hidden_size
        self.embedding = nn.Embedding(setting.vocabulary_size, size)
        self.gru = nn.GRU(size, size, setting.num_layers, batch_first=True)
        self.head = nn.Linear(size, setting.vocabulary_size, bias=False)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        states, _ = self.gru(self.embedding(tokens))
        logits: Tensor = self.head(states)
        return logits
