from dataclasses import replace

import pytest

from stabsweep.pick import Pick
from stabsweep.proof import CONFIRM, Proof, proven
from stabsweep.records import Record, Verdict

PICK = Pick("ok", "4x below the edge.", 0.1, {"warmup_steps": 5}, 0.6, final_loss=0.3)


def proof(lr, verdict=Verdict.CONVERGED, test=CONFIRM, seed=7):
    point = {"lr": lr, "warmup_steps": 5}
    return Proof(test, Record(0, point, seed, verdict, reason="It blew up.", horizon=600))


def test_a_pick_that_holds_stays_and_says_how_often():
    found = proven(PICK, [proof(0.1), proof(0.1), proof(0.1), proof(0.1, test="double the width")])
    assert found == replace(PICK, proofs={"held": 4, "tests": 4, "failed": []})


def test_a_pick_that_fails_moves_to_the_highest_rate_that_holds_and_says_why():
    proofs = [proof(0.1), proof(0.1, Verdict.COLLAPSED), proof(0.056), proof(0.056)]
    found = proven(PICK, proofs)
    assert found.status == "ok" and found.lr == 0.056
    assert found.margin_decades == pytest.approx(0.6 + 0.2518, abs=1e-3)
    assert found.reason == (
        "Moved down from 0.1, which failed with an unseen seed over 600 steps (collapsed). "
        "4x below the edge."
    )
    assert found.proofs == {"held": 2, "tests": 2, "failed": []}
    assert found.final_loss is None, "it was measured at another rate"


def test_what_holds_nowhere_is_no_pick():
    bad = Verdict.DIVERGED
    found = proven(PICK, [proof(0.1, bad), proof(0.056, bad), proof(0.031, bad)])
    assert (found.status, found.lr) == ("none", None)
    assert "No rate from 0.1 down to 3.1e-2 held for every unseen seed over 600" in found.reason
    assert "It blew up." in found.reason


def test_a_condition_that_fails_does_not_move_the_pick_but_is_named():
    proofs = [proof(0.1), proof(0.1, Verdict.DIVERGED, "double the batch size")]
    found = proven(PICK, proofs)
    assert found.lr == 0.1
    assert found.proofs["failed"] == ["double the batch size: diverged"]
    assert (found.proofs["held"], found.proofs["tests"]) == (1, 2)


def test_a_longer_run_must_learn_another_condition_must_only_hold():
    slow = Verdict.TOO_SLOW
    assert not proof(0.1, slow).held
    assert proof(0.1, slow, "double the depth").held


def test_without_proofs_or_with_those_of_another_pick_nothing_changes():
    none = Pick("none", "Nothing is stable.")
    assert proven(none, [proof(0.1)]) == none
    assert proven(PICK, []) == PICK
    assert proven(PICK, [proof(0.3), proof(0.2)]) == PICK


def test_a_proof_survives_its_file():
    one = proof(0.1, Verdict.SPIKY, "half the batch size")
    assert Proof.from_dict(one.as_dict()) == one
