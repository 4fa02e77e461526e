"""One model trained by all processes of a world: gradients that add up while they are computed, and what is decided together.

Torch's DistributedDataParallel reduces the gradients, bucket by bucket, while the backward pass still computes those of
earlier layers. Here they are summed and not averaged, for each process has divided its loss by the counts of the whole batch.
Beside that an update takes one more reduction, of one small tensor: the sums of the loss, whether anyone was asked to stop,
and the clock of the first process, which all go by.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from regard.tensors import weights_of
from regard.training.config import TrainConfig
from regard.training.sharded import gathered, shard
from regard.world import World


class Together:
    """The processes that train a model, as the loop of one of them sees them. One alone has nobody to ask."""

    def __init__(
        self, model: nn.Module, world: World, device: torch.device, config: TrainConfig, clock: Callable[[], float]
    ) -> None:
        self.model, self.world, self.device, self._clock = model, world, device, clock
        self.sharded = config.shard and not world.is_alone
        if self.sharded:
            shard(model, world, device, config)
        self.replica = model
        self._gathered = False
        names = {name for name, _ in model.named_parameters()}
        self.statistics = [  # of batch norm and the like, which each process has from its own rows
            tensor for name, tensor in weights_of(model).items() if name not in names and tensor.is_floating_point()
        ]
        self.stops = False  # whether any process was asked to stop, as of the last update
        self._now = 0.0
        self.agree_on_time()

    def replicate(self) -> None:
        """Make ready to sum gradients, once it is known which parameters learn."""
        if not self.world.is_alone and not self.sharded:
            self.replica = _replica(self.model, self.device)

    def clock(self) -> float:
        """The time: that of the first process, when it was last agreed on, so that all decide alike."""
        return self._clock() if self.world.is_alone else self._now

    def agree_on_time(self) -> None:
        if not self.world.is_alone:
            self._now = self.world.agree(self._clock())

    def reducing(self, now: bool) -> AbstractContextManager[None]:
        """Around a forward and backward pass: whether the gradients so far are summed over all processes with it."""
        if self.sharded:
            self.replica.set_requires_gradient_sync(now)  # type: ignore[operator]
        if now or self.world.is_alone or self.sharded:
            return nullcontext()
        return self.replica.no_sync()  # type: ignore[operator]

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Inside this block this process has all weights, for validations and bundles; changes of them are for that only."""
        if not self.sharded or self._gathered:
            yield
            return
        self._gathered = True
        try:
            with gathered(self.model):
                yield
        finally:
            self._gathered = False

    @torch.no_grad()
    def tally(self, sums: Mapping[str, float], asked: bool) -> dict[str, float]:
        """The sums over all processes; with them goes what else all must know of this update."""
        if self.world.is_alone:
            self.stops = asked
            return dict(sums)
        names = sorted(sums)
        now = self._clock() if self.world.is_first else 0.0
        told = torch.tensor([*(sums[name] for name in names), float(asked), now], dtype=torch.float64)
        *found, stops, self._now = self.world.sum_(told.to(self.device)).tolist()
        self.stops = stops > 0
        self._even_out()
        return dict(zip(names, found, strict=True))

    def _even_out(self) -> None:
        """Give running statistics the mean over all processes."""
        if not self.statistics:
            return
        flat = torch.cat([tensor.double().flatten() for tensor in self.statistics])
        means = self.world.sum_(flat).div_(self.world.size).split([tensor.numel() for tensor in self.statistics])
        for tensor, mean in zip(self.statistics, means, strict=True):
            tensor.copy_(mean.view_as(tensor))


def _replica(model: nn.Module, device: torch.device) -> nn.Module:
    """The model with gradients that are summed over all processes; it has the first one's weights.

    Which parameters a batch does not touch (an expert that no token is sent to) is looked up each time. Then, too, torch
    leaves the order of sums alone, and a run that goes on has the bits of one without a stop.
    """
    from torch.nn.parallel import DistributedDataParallel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # `broadcast_buffers` has another name in newer versions
        replica = DistributedDataParallel(
            model,
            device_ids=[device] if device.type == "cuda" else None,
            broadcast_buffers=False,
            find_unused_parameters=True,
            gradient_as_bucket_view=True,
        )
    replica.register_comm_hook(None, lambda _, bucket: _summed(bucket))  # annotations as text are refused
    return replica


def _summed(bucket: Any) -> torch.futures.Future[Tensor]:
    import torch.distributed as dist

    work: Any = dist.all_reduce(bucket.buffer(), async_op=True)
    future: torch.futures.Future[list[Tensor]] = work.get_future()
    return future.then(lambda done: done.value()[0])
