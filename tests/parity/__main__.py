"""`python -m tests.parity`: random cases, Kafka's answer (for `optimal` an exact solver's), ours."""

from __future__ import annotations

import argparse
import sys
import time

from tests.parity.compare import find_differences
from tests.parity.generate import ASSIGNOR_KINDS, KINDS
from tests.parity.optimal import find_optimal_differences
from tests.parity.oracle import Oracle

_SHOWN = 3
_OPTIMAL = "optimal"


def _from_kafka(kind: str, options: argparse.Namespace) -> list[str]:
    # A JVM for each kind: what one kind leaves in memory cannot slow the next.
    with Oracle() as oracle:
        found = find_differences(kind, options.count, options.seed, oracle=oracle, against=options.against)
        return list(found)


def main() -> int:
    """Compare and print; 0 when everything agrees, 1 when something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__)
    parser.add_argument("--kind", action="append", choices=(*KINDS, _OPTIMAL), help="default: all")
    parser.add_argument("--count", type=int, default=20_000, help="cases of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--against", help="a command that speaks `assign --jsonl`")
    options = parser.parse_args()
    differing = 0
    for kind in options.kind or (ASSIGNOR_KINDS if options.against else (*KINDS, _OPTIMAL)):
        started = time.monotonic()
        if kind == _OPTIMAL:
            differences = list(find_optimal_differences(options.count, options.seed))
        else:
            differences = _from_kafka(kind, options)
        differing += len(differences)
        print(
            f"{kind}: {options.count} cases, seed {options.seed}, "
            f"{len(differences)} differences, {time.monotonic() - started:.1f} s",
            flush=True,
        )
        for difference in differences[:_SHOWN]:
            print(difference)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
