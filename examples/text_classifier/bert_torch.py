"""A small BERT-like text classifier in PyTorch: the reference. Id 0 is padding."""

import torch
from torch import nn

VOCABULARY, MAX_LENGTH, DIM, HEADS, BLOCKS, CLASSES = 5000, 128, 64, 4, 2, 2


class TextClassifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, DIM, padding_idx=0)
        self.positions = nn.Embedding(MAX_LENGTH + 1, DIM)
        self.cls = nn.Parameter(torch.randn(1, 1, DIM) * 0.02)
        self.norm = nn.LayerNorm(DIM, eps=1e-12)
        self.dropout = nn.Dropout(0.1)
        block = nn.TransformerEncoderLayer(
            DIM, HEADS, 4 * DIM, dropout=0.1, activation="gelu", layer_norm_eps=1e-12, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(block, BLOCKS, enable_nested_tensor=False)
        self.pooler = nn.Linear(DIM, DIM)
        self.classifier = nn.Linear(DIM, CLASSES)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids (B, T). Returns logits (B, 2)."""
        x = torch.cat([self.cls.expand(ids.shape[0], -1, -1), self.tokens(ids)], dim=1)
        x = x + self.positions(torch.arange(x.shape[1], device=ids.device))
        padding = torch.cat([torch.zeros_like(ids[:, :1], dtype=torch.bool), ids == 0], dim=1)
        x = self.encoder(self.dropout(self.norm(x)), src_key_padding_mask=padding)
        return self.classifier(self.dropout(torch.tanh(self.pooler(x[:, 0]))))


def build() -> TextClassifier:
    torch.manual_seed(0)
    return TextClassifier().eval()
