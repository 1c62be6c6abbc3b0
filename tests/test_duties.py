"""What is done beside the batches is done when it is due."""

from __future__ import annotations

from streaming.operations.duties import Duties


def test_each_duty_has_its_own_interval_and_none_is_made_up_for() -> None:
    """A duty first runs after its interval; one that comes late runs once; 0 is never."""
    now, done = [0.0], []
    duties = Duties(clock=lambda: now[0])
    duties.add(10, lambda: done.append(("slow", now[0])))
    duties.add(3, lambda: done.append(("quick", now[0])))
    duties.add(0, lambda: done.append(("never", now[0])))
    for second in (0, 2, 3, 5, 6, 40, 42, 43, 50):
        now[0] = float(second)
        duties.run_due()
    quick = [second for name, second in done if name == "quick"]
    assert quick == [3, 6, 40, 43, 50]
    assert [second for name, second in done if name == "slow"] == [40, 50]
    assert len(done) == 7
