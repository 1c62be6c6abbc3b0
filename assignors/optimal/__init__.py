"""The most even loads that subscriptions allow, with the fewest partitions moved, and the proof of it.

`assign_optimal` and `assign_optimal_cooperative` are the assignors; `find_optimum` says
more, `certificate_of` writes the proof down, `check_certificate` checks one. `assign_weighted` is for
partitions that weigh unequally.
"""

from __future__ import annotations

from assignors.optimal.assignor import (
    Optimum,
    assign_optimal,
    assign_optimal_cooperative,
    certificate_of,
    find_optimum,
)
from assignors.optimal.certificate import Certificate, LoadClass, check_certificate
from assignors.optimal.weighted import WeightedAssignment, assign_weighted, find_bound

__all__ = [
    "Certificate",
    "LoadClass",
    "Optimum",
    "WeightedAssignment",
    "assign_optimal",
    "assign_optimal_cooperative",
    "assign_weighted",
    "certificate_of",
    "check_certificate",
    "find_bound",
    "find_optimum",
]
