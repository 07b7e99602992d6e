"""Intervals of a robust fit of logarithms: of noise that differs from point to point, with
residuals of which a few are large."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# of log T: past what the book calls unstable a residual counts by its size and no more by its
# square
ROBUST = 0.05
UNTOLD = 1e6  # variance of the logarithm of what no point tells


def jacobian(f: Callable[[np.ndarray], np.ndarray], at: np.ndarray) -> np.ndarray:
    """Central differences of 1e-4: a row for each value of f, a column for each parameter."""
    return np.stack(
        [(f(at + 1e-4 * axis) - f(at - 1e-4 * axis)) / 2e-4 for axis in np.eye(at.size)], axis=1
    )


def sandwich(residual: Callable[[np.ndarray], np.ndarray], at: np.ndarray) -> np.ndarray:
    """The covariance of what minimises the soft L1 loss, by the sandwich of Huber (Proc. 5th
    Berkeley Symposium 1, 1967).

    UNTOLD along a direction that changes nothing.
    """
    jac, r = jacobian(residual, at), residual(at)
    z = 1 + (r / ROBUST) ** 2
    _, size, directions = np.linalg.svd(
        jac / z[:, None] ** 0.75, full_matrices=False
    )  # the loss bends by z^(-3/2)
    known = size > 1e-5 * size.max()
    inverse = (directions[known].T / size[known] ** 2) @ directions[known]
    slopes = jac * (r / np.sqrt(z))[:, None]
    return (
        inverse @ (slopes.T @ slopes) @ inverse * r.size / (r.size - at.size)
        + UNTOLD * directions[~known].T @ directions[~known]
    )
