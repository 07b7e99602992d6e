"""Profiles, and the scope from which a chapter's grid makes its points."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from tlb.measure import kernels
from tlb.measure.record import Point
from tlb.system.page_sizes import page_bytes
from tlb.system.reasons import LazyModule, Unavailable
from tlb.system.units import format_size, parse_size

yaml = LazyModule("yaml")

PROFILES = Path(__file__).with_name("profiles")
SMALLEST_LINE_COUNT = 16  # one line to a page: well inside any first-level TLB
# bytes; where base pages are larger, the grid has fewer points
LEAST_WORKING_SET = SMALLEST_LINE_COUNT * 4096
MOST_REPEATS = 100  # fresh mappings a point; a dozen give an interval, a hundred are a day
# Above this a point costs seconds to fault in, and curves there bend over octaves, not over points.
DENSELY_SAMPLED_BELOW_BYTES = 64 << 20


class MeasuringProfile(BaseModel):
    """How much to measure: the contents of profiles/*.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    max_working_set: int = Field(ge=LEAST_WORKING_SET)  # bytes
    repeats: int = Field(ge=1, le=MOST_REPEATS)  # fresh mappings of a point that a claim compares
    shape_repeats: int = Field(ge=1, le=MOST_REPEATS)  # and of one that gives a curve its shape
    region_ms: int = Field(ge=1, le=60_000)
    # of a fine grid's curves; a coarse one has as many only where a claim asks for it
    points_per_octave: int = Field(ge=1, le=16)

    @field_validator("max_working_set", mode="before")
    @classmethod
    def _bytes(cls, value: object) -> object:
        return parse_size(value) if isinstance(value, str) else value


def profile_names() -> list[str]:
    return sorted(path.stem for path in PROFILES.glob("*.yaml"))


def load_profile(name: str) -> MeasuringProfile:
    """Return a profile from profiles/NAME.yaml. Raises Unavailable("bad-parameter")."""
    if name not in profile_names():
        raise Unavailable(
            "bad-parameter", f"profile '{name}' is not one of {', '.join(profile_names())}"
        )
    return MeasuringProfile(**yaml.safe_load((PROFILES / f"{name}.yaml").read_text()))


def parse_size_parameter(name: str, text: str) -> int:
    """Return the bytes in a parameter that is a size. Raises Unavailable("bad-parameter")."""
    try:
        size = parse_size(text)
    except ValueError as error:
        raise Unavailable("bad-parameter", f"{name}: {error}") from None
    if size < LEAST_WORKING_SET:
        raise Unavailable(
            "bad-parameter",
            f"{name} is at least {format_size(LEAST_WORKING_SET)}, not {format_size(size)}",
        )
    return size


def octaves(low: float, high: float, per_octave: int) -> list[int]:
    """Return whole numbers from low to high, evenly spaced in the logarithm: octaves(16, 64, 2) == [16,
    23, 32, 45, 64]."""
    steps = range(1000 * per_octave)
    numbers = (low * 2 ** (step / per_octave) for step in steps)
    return sorted({round(n) for n in numbers if n < high + 0.5 and round(n) <= high})


@dataclass(frozen=True)
class Scope:
    """What a grid may ask for: the profile, the engine, and what the machine states of itself.

    entries: 4 KiB data entries of each TLB level as CPUID gives them; around each a grid may be
    finer.
    """

    profile: MeasuringProfile
    engine: str = "c"
    entries: tuple[int, ...] = ()
    cpus: int = 1
    base_page_bytes: int = field(kw_only=True)  # the machine's; no default

    @property
    def is_fine(self) -> bool:
        """Return whether curves are wanted in full. A coarse grid has the points that claims
        compare and a few that give a curve its shape, and is measured in minutes."""
        return self.profile.points_per_octave > 2

    @property
    def per_octave(self) -> int:
        """Return the points per octave of a curve away from its knees."""
        return self.profile.points_per_octave if self.is_fine else 1

    @property
    def most_lines(self) -> int:
        """Return the lines of the largest working set, one to a base page."""
        return self.lines(self.profile.max_working_set)

    def lines(self, working_set_bytes: int) -> int:
        """Return the number of lines of a working set, one to a base page."""
        return working_set_bytes // self.base_page_bytes

    def pages_of(self, pages: str) -> int:
        """Return the number of base pages in one page of a size."""
        return page_bytes(pages, self.base_page_bytes) // self.base_page_bytes

    def dense(self, per_octave: int | None = None) -> list[int]:
        """Return numbers of lines from the smallest to where a point is still quick, by default
        `per_octave`."""
        most = min(self.most_lines, self.lines(DENSELY_SAMPLED_BELOW_BYTES))
        return octaves(
            SMALLEST_LINE_COUNT, most, self.per_octave if per_octave is None else per_octave
        )

    def knees(self) -> list[int]:
        """Return numbers of lines around the end of each TLB level as stated.

        At steps of 9 % from most of an octave before it to an octave past it; at 19 % under numba
        and, of a coarse grid, around all levels but the last, because claims only ask where half of
        the step is done. Past a coarse grid's last level two an octave for another octave: there
        nearly every access walks. Empty if the profile has one point an octave."""
        if self.profile.points_per_octave == 1:
            return []

        def steps(entries: int) -> int:
            return (
                4
                if self.engine == "numba" or not (self.is_fine or entries == self.entries[-1])
                else 8
            )

        past = (
            []
            if self.is_fine
            else [n for entries in self.entries[-1:] for n in octaves(2 * entries, 4 * entries, 2)]
        )
        near = [
            n
            for entries in self.entries
            for n in octaves(entries / 2**0.75, entries * 2, steps(entries))
        ]
        return sorted(n for n in {*near, *past} if n <= self.most_lines)

    def point(
        self,
        kernel: str,
        pages: str = "4k",
        mode: str = "",
        *,
        engine: str = "",
        layout: str = "",
        order: str = "",
        lines: int | None = None,
        stride_pages: int = 1,
        region_ms: int | None = None,
        **options: int,
    ) -> Point:
        """Return a point of a kernel; omitted fields are the catalogue's defaults, and lines follow
        from the kernel's own options."""
        shape = kernels.shape(kernel, options)
        given = {
            name: value
            for name, value in (("layout", layout), ("order", order), ("lines", lines))
            if value
        }
        fields = {
            "kernel": kernel,
            "engine": engine or self.engine,
            "pages": pages,
            "mode": mode,
            "options": options,
            "stride_pages": stride_pages,
            "region_ms": region_ms or self.profile.region_ms,
        }
        return Point.model_validate(fields | shape | given)

    def chase(
        self,
        kernel: str,
        pages: str,
        lines: int,
        mode: str = "",
        order: str = "cycle",
        region_ms: int | None = None,
        **options: int,
    ) -> list[Point]:
        """Return a spread point and its packed control: the same number of lines."""
        return [
            self.point(
                kernel,
                pages,
                mode,
                engine="",
                layout=layout,
                order=order,
                lines=lines,
                region_ms=region_ms,
                **options,
            )
            for layout in ("spread", "packed")
        ]
