"""The click-through recommender as it was prototyped: PyTorch.

A Transformer encoder reads the user's last clicks with the candidate item at the end (a behaviour-sequence
transformer), graph attention gathers the item's neighbours in the co-click graph, and an MLP turns both and the
item's own features into the logit of a click. Id 0 is padding everywhere.
"""

import torch
import torch.nn.functional as F
from torch import nn

ITEMS, FEATURES, HISTORY = 1683, 20, 20  # MovieLens-100K: 1,682 items and the padding id; 19 genres and the year
DIM, HEADS, BLOCKS = 32, 4, 1
CLASS_WEIGHT = (1.0, 3.0)  # (no click, click): one impression in four is clicked


class GraphAttention(nn.Module):
    """An item attends to its neighbours in the item graph (Velickovic et al. 2018), several heads."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.lin = nn.Linear(dim, dim, bias=False)
        self.att_item = nn.Parameter(torch.empty(heads, self.head_dim))
        self.att_neighbour = nn.Parameter(torch.empty(heads, self.head_dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        nn.init.xavier_uniform_(self.att_item)
        nn.init.xavier_uniform_(self.att_neighbour)

    def forward(self, item: torch.Tensor, neighbours: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, count, dim = neighbours.shape
        h_item = self.lin(item).view(batch, 1, self.heads, self.head_dim)
        h_neigh = self.lin(neighbours).view(batch, count, self.heads, self.head_dim)
        score = (h_item * self.att_item).sum(-1) + (h_neigh * self.att_neighbour).sum(-1)
        score = F.leaky_relu(score, 0.2).masked_fill(~mask[..., None], float("-inf"))
        alpha = score.softmax(dim=1)
        out = (alpha[..., None] * h_neigh).sum(1).reshape(batch, dim)
        return F.elu(out + self.bias)


class Recommender(nn.Module):
    def __init__(self, items: int = ITEMS, features: int = FEATURES, dropout: float = 0.1) -> None:
        super().__init__()
        self.item_embedding = nn.Embedding(items, DIM, padding_idx=0)
        self.position_embedding = nn.Embedding(HISTORY + 1, DIM)
        self.embedding_norm = nn.LayerNorm(DIM)
        self.dropout = nn.Dropout(dropout)
        block = nn.TransformerEncoderLayer(DIM, HEADS, 2 * DIM, dropout, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(block, BLOCKS, enable_nested_tensor=False)
        self.graph = GraphAttention(DIM, HEADS)
        self.features = nn.Linear(features, DIM)
        self.head = nn.Sequential(
            nn.Linear(3 * DIM, 64), nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
        )
        nn.init.normal_(self.item_embedding.weight, std=0.02)
        nn.init.normal_(self.position_embedding.weight, std=0.02)

    def forward(
        self, history: torch.Tensor, item: torch.Tensor, neighbours: torch.Tensor, features: torch.Tensor
    ) -> torch.Tensor:
        """history (B, 20), item (B, 1), neighbours (B, 10): ids; features (B, 20). Returns logits (B, 1)."""
        tokens = torch.cat([history, item], dim=1)
        x = self.item_embedding(tokens) + self.position_embedding(torch.arange(tokens.shape[1], device=tokens.device))
        x = self.dropout(self.embedding_norm(x))
        x = self.encoder(x, src_key_padding_mask=tokens == 0)
        user = x[:, -1]
        graph = self.graph(self.item_embedding(item), self.item_embedding(neighbours), neighbours != 0)
        movie = F.relu(self.features(features))
        return self.head(torch.cat([user, graph, movie], dim=-1))


def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Binary cross-entropy with class weights, divided by the sum of the weights (as nn.CrossEntropyLoss does)."""
    weights = torch.where(labels > 0, CLASS_WEIGHT[1], CLASS_WEIGHT[0])
    total = F.binary_cross_entropy_with_logits(logits, labels, weight=weights, reduction="sum")
    return total / weights.sum()


def build() -> Recommender:
    """The model with fresh weights; the seed keeps two runs the same."""
    torch.manual_seed(1)
    return Recommender().eval()
