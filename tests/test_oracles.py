import pytest

from stabsweep.oracles import ORACLES, Finding, Oracle, as_table, measure


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)
def test_every_oracle_is_met_here(oracle):
    finding = measure(oracle)
    assert finding.ok, finding


def test_what_is_off_is_said():
    far, nan = (Oracle("an edge", 2.0, 0.01, lambda v=v: v, "test") for v in (2.03, float("nan")))
    findings = [measure(far), measure(nan)]
    assert not findings[0].ok and findings[0].deviation == pytest.approx(0.015)
    assert not findings[1].ok
    assert "2 of 2 are off" in as_table(findings)


def test_a_zero_is_held_absolutely():
    finding = measure(Oracle("a share", 0.0, 0.0, lambda: 0.0, "test"))
    assert finding == Finding("a share", 0.0, 0.0, 0.0, True)
    assert "all 1 ok" in as_table([finding])
