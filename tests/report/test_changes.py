from dataclasses import replace

from stabsweep.records import Verdict
from stabsweep.report import change_table, changed, examples


def test_changes_are_counted_and_shown(sweep):
    before = list(sweep[0].records)
    after = [
        replace(r, verdict=Verdict.SPIKY, reason="Many <spikes>.")
        if r.verdict is Verdict.CONVERGED
        else replace(r, verdict=Verdict.DIVERGED)
        if r.verdict is Verdict.TOO_SLOW and r.seed == 0
        else r
        for r in before
    ]
    pairs = changed(before, after)
    assert len(pairs) == sum(a.verdict is not b.verdict for a, b in zip(before, after, strict=True))
    table = change_table(pairs)
    assert table[0].split() == ["from", "\\", "to", "spiky", "diverged"]
    num_spiky = sum(new.verdict is Verdict.SPIKY for _, new in pairs)
    assert table[1].split() == ["converged", str(num_spiky), "."]
    text = "\n".join(examples(pairs, most=4))
    assert "converged -> spiky" in text and "too slow -> diverged" in text
    assert text.count("trial ") == 4 and "seed=0" in text and "Many <spikes>." in text
    assert f"... {len(pairs) - 4} more" in text


def test_nothing_changed_is_nothing(sweep):
    records = sweep[0].records
    assert changed(records, records) == [] and examples([]) == []
