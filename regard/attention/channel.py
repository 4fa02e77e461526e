"""The two context variables of the channel: who records, and what is changed, in this thread. Nothing else lives here."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.attention.changes import Intervention
    from regard.attention.seen import Seen

recorder: ContextVar[Seen | None] = ContextVar("recorder", default=None)
interventions: ContextVar[tuple[Intervention, ...]] = ContextVar("interventions", default=())
