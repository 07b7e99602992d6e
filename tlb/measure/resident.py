"""Memory that another program holds, by its smaps, and documents of many such observations."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from tlb.machine import host
from tlb.machine.host import Host
from tlb.measure.record import Count, Positive, now
from tlb.system.reasons import REASONS, Unavailable
from tlb.system.smaps import Pages, mappings, pages

Answer = TypeVar("Answer", bound=BaseModel)


class Held(BaseModel, extra="forbid", frozen=True, strict=True):
    """Bytes by smaps. resident and huge (THP or pool) are of the mappings that hold the array;
    rest_huge of all others of the process."""

    array_bytes: Positive
    resident_bytes: Positive
    huge_bytes: Count
    rest_huge_bytes: Count

    @property
    def huge_share(self) -> float:
        """The share of resident bytes that lies on large pages."""
        return self.huge_bytes / self.resident_bytes

    @model_validator(mode="after")
    def _parts_of_wholes(self) -> Held:
        if not self.huge_bytes <= self.resident_bytes >= self.array_bytes:
            raise ValueError("what was written and its huge pages are parts of what is resident")
        return self


class Survey(BaseModel, extra="forbid", frozen=True, strict=True):
    """A document of data/. `lacking` of a subclass has reason codes by what gave nothing."""

    schema_version: Literal[1] = 1
    measured_at: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]  # UTC
    state: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]  # host.state()
    # the setting: always, madvise, never, absent, unknown
    thp: Annotated[str, Field(pattern=r"^[a-z+_]{1,32}$")]

    @field_validator("lacking", check_fields=False)
    @classmethod
    def _known(cls, lacking: dict[str, str]) -> dict[str, str]:
        if unknown := set(lacking.values()) - set(REASONS):
            raise ValueError(f"no reason has the code {min(unknown)!r}")
        return lacking


def met(inspected: Host) -> dict[str, Any]:
    """Return the fields that all surveys have: when, on what."""
    return {"measured_at": now(), "state": host.state(inspected), "thp": inspected.thp.enabled}


def answer(line: bytes | str, kind: type[Answer]) -> Answer:
    """Validate a program's line. Raises Unavailable("kernel-garbage")."""
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        raise Unavailable(
            "kernel-garbage", f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from None


def held(smaps: str, address: int | None, array_bytes: int) -> Pages:
    """Return what holds an array, by smaps. Raises Unavailable: smaps-unread, and what `pages`
    raises."""
    try:
        return pages(mappings(smaps), address, array_bytes)
    except ValueError as error:
        raise Unavailable("smaps-unread", str(error)) from None
