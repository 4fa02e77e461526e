"""ViT (Dosovitskiy et al. 2021): a Transformer encoder whose tokens are the patches of a picture."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.attention import AttentionCall, Seen
from regard.blocks import Block, FeedForward, Residual, Stack, initialise, make_norm
from regard.data.pictures.config import PictureFormat
from regard.embed.patches import PatchEmbedding, grid_positions, resize_positions
from regard.errors import UsageError
from regard.models.attention import make_attention
from regard.models.classifier import rollout
from regard.models.configs.pictures import ViTConfig
from regard.models.pictures.encoder import PictureEncoder, View
from regard.noise import dropout


class ViT(PictureEncoder):
    """z_0 = [class; patches] + positions, then blocks with their norm first, then a norm (eq. 1 to 4)."""

    def __init__(self, config: ViTConfig, picture_format: PictureFormat) -> None:
        super().__init__()
        self.config, self.format, self.width = config, picture_format, config.width
        self.patches = PatchEmbedding(picture_format, config.patch, config.width)
        self.grid = self.patches.grid
        self.before = 1 if config.pool == "class" else 0  # tokens that are no patches
        self.normed = self.before > 0  # a mean of many is shorter
        self.class_token = nn.Parameter(torch.zeros(1, config.width)) if self.before else None
        self.positions = grid_positions(config.positions, config.width, self.grid, before=self.before)
        places = self.before + self.grid[0] * self.grid[1]
        self.blocks = Stack(_block(config, number, places) for number in range(config.layers))
        self.norm = make_norm("layer", config.width, config.epsilon)
        initialise(self)

    def forward(self, pixels: Tensor) -> View:
        x = self.patches(pixels)  # (B, P, D)
        if self.class_token is not None:
            x = torch.cat([self.class_token.expand(len(x), 1, -1), x], dim=1)  # (B, 1 + P, D)
        x = self.positions(x)
        x = dropout(x, self.config.dropout) if self.training else x
        x = self.norm(self.blocks(x, None))
        places = x[:, self.before :]  # (B, P, D)
        return View(x[:, 0] if self.before else places.mean(dim=1), places)

    def at_size(self, size: int) -> ViT:
        """The same weights for pictures of another size: the grid grows or shrinks, learned positions are resized."""
        other = ViT(self.config, self.format.model_copy(update={"size": size}))
        weights = self.state_dict()
        if "positions.table" in weights:
            weights["positions.table"] = resize_positions(weights["positions.table"], self.grid, other.grid)
        other.to(self.patches.weight).load_state_dict(weights)
        return other.train(self.training)

    def class_attention(self, seen: Seen) -> Tensor:
        """Where the class token looked in one recorded pass, in each layer and head: (layers, B, H, P).

        What is missing to one in a row is how much it looked at itself.
        """
        if not self.before:
            raise UsageError("this ViT has no class token (model.pool = mean)", "`rollout_map` shows where it looked")
        return torch.stack([call.weights()[:, :, 0, 1:] for call in self._calls(seen)])

    def rollout_map(self, seen: Seen) -> Tensor:
        """How much of each patch is in the picture's vector after one recorded pass, by attention rollout: (B, P).

        Rows sum to one.
        """
        mixed = rollout(self._calls(seen))  # (B, before + P, before + P)
        row = mixed[:, 0] if self.before else mixed.mean(dim=1)
        shares = row[:, self.before :]  # (B, P)
        return shares / shares.sum(dim=-1, keepdim=True)

    def _calls(self, seen: Seen) -> list[AttentionCall]:
        """One attention of each block, in order; others may have been recorded too, such as those of a decoder."""
        paths = [seen.names.get(id(block.attention)) for block in self.blocks]
        calls = [call for call in seen.calls if call.path in paths]
        if [call.path for call in calls] != paths:
            raise UsageError(
                f"{len(calls)} attentions of this ViT were seen, and one pass has {len(paths)}: call the model once inside "
                "`record(model)`"
            )
        return calls


def _block(config: ViTConfig, number: int, places: int) -> Block:
    def around() -> Residual:
        return Residual(make_norm("layer", config.width, config.epsilon), config.dropout, order="pre")

    attention = make_attention(config.attention, config.width, config.heads, role="self", number=number, longest=places)
    inner = config.feed_forward
    feed_forward = FeedForward(config.width, inner, activation="gelu") if inner else None
    return Block(attention, None, feed_forward, around)
