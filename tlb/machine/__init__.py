"""What this computer is: the facts that describe it, and the settings that commands change."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class FrozenModel(BaseModel):
    """Fields that never change, and no others than those declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")
