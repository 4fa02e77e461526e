"""Attention that multiplies a picture's channels, or its places, by weights between 0 and 1.

    squeeze and excitation (Hu et al. 2018, eq. 2 to 4)    z = mean over places of x,   s = σ(W2 δ(W1 z)),   y = s · x
    CBAM's channels (Woo et al. 2018, eq. 2)               s = σ(W2 δ(W1 mean) + W2 δ(W1 max)), both over places
    CBAM's places (Woo et al. 2018, eq. 3)                 s = σ(f([mean; max] over channels)), f a 7 x 7 convolution

δ is a ReLU. These weights add nothing up: each multiplies its own channel (role "channel") or place (role "spatial").
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_max_pool2d, relu

from regard.attention.call import Role, ShownWeights
from regard.attention.record import is_recorded, report
from regard.errors import RegardError


class ChannelNetwork(nn.Module):
    """W2 δ(W1 z): (B, C) -> (B, C) through a narrow middle of C / reduction channels, at least four."""

    def __init__(self, channels: int, reduction: int) -> None:
        super().__init__()
        inner = max(4, channels // reduction)  # one or two may both be dead from the start
        self.down, self.up = nn.Linear(channels, inner, bias=False), nn.Linear(inner, channels, bias=False)
        nn.init.kaiming_normal_(self.down.weight, nonlinearity="relu")
        nn.init.xavier_uniform_(self.up.weight)

    def forward(self, z: Tensor) -> Tensor:
        return self.up(relu(self.down(z)))


class SqueezeExcite(nn.Module):
    """(B, C, H, W) -> the same, each channel weighed by what the means of all channels say."""

    def __init__(self, channels: int, reduction: int = 8) -> None:
        super().__init__()
        self.network = ChannelNetwork(channels, reduction)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.network(x.mean(dim=(2, 3))).sigmoid()  # (B, C)
        out = x * weights[:, :, None, None]
        _report_channels(self, weights, x, out)
        return out


class ChannelAttention(nn.Module):
    """(B, C, H, W) -> the same, each channel weighed by the means and the maxima of all; one network reads both."""

    def __init__(self, channels: int, reduction: int = 8) -> None:
        super().__init__()
        self.network = ChannelNetwork(channels, reduction)

    def forward(self, x: Tensor) -> Tensor:
        mean, top = x.mean(dim=(2, 3)), adaptive_max_pool2d(x, 1).flatten(1)  # each (B, C)
        weights = (self.network(mean) + self.network(top)).sigmoid()
        out = x * weights[:, :, None, None]
        _report_channels(self, weights, x, out)
        return out


class SpatialAttention(nn.Module):
    """(B, C, H, W) -> the same, each place weighed by the mean and the maximum of the channels around it."""

    def __init__(self, kernel: int = 7) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise RegardError(f"spatial attention: a kernel of {kernel} has no middle; choose an odd number")
        self.convolution = nn.Conv2d(2, 1, kernel, padding=kernel // 2, bias=False)
        nn.init.xavier_uniform_(self.convolution.weight)

    def forward(self, x: Tensor) -> Tensor:
        mean, top = x.mean(dim=1, keepdim=True), x.max(dim=1, keepdim=True).values
        weights = self.convolution(torch.cat([mean, top], dim=1)).sigmoid()  # (B, 1, H, W)
        out = x * weights
        if is_recorded(self):
            _report(self, "spatial", weights.flatten(1), x.flatten(2).mT, out.flatten(2).mT)  # values (B, H W, C)
        return out


class CBAM(nn.Module):
    """Channels, then places (Woo et al. 2018, eq. 1)."""

    def __init__(self, channels: int, reduction: int = 8, kernel: int = 7) -> None:
        super().__init__()
        self.channels, self.places = ChannelAttention(channels, reduction), SpatialAttention(kernel)

    def forward(self, x: Tensor) -> Tensor:
        return self.places(self.channels(x))


def make_picture_attention(kind: str, channels: int) -> nn.Module | None:
    """Build the attention that a configuration names: se, cbam, or none."""
    if kind == "none":
        return None
    return CBAM(channels) if kind == "cbam" else SqueezeExcite(channels)


def _report_channels(owner: nn.Module, weights: Tensor, x: Tensor, out: Tensor) -> None:
    if is_recorded(owner):
        _report(owner, "channel", weights, x.flatten(2), out.flatten(2))  # values (B, C, H W)


def _report(owner: nn.Module, role: Role, weights: Tensor, v: Tensor, out: Tensor) -> None:
    """Weights (B, S) of values (B, S, E), as one head with one query."""
    one = weights[:, None, None]  # (B, 1, 1, S)
    q = torch.ones_like(one[..., :1])  # (B, 1, 1, 1)
    shown: ShownWeights = {"reported": one, "sums_to_one": False, "gates": True, "has_exact": False}
    report(owner, role, q, one.mT, v[:, None], out[:, None], **shown)
