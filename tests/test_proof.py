from dataclasses import replace

import pytest

from stabsweep.pick import Pick
from stabsweep.proof import CONFIRM, CONSTANT, Proof, proven
from stabsweep.records import Record, Verdict

EDGE = {"status": "found", "lr": 0.4, "low": 0.3, "high": 0.5, "safe_lr": 0.3}
PICK = Pick("ok", "4x below the edge.", 0.1, {"warmup_steps": 5}, 0.6, EDGE, final_loss=0.3)
OPEN = replace(PICK, status="open", reason="Nothing was learned.", final_loss=0.9)
BELOW = "4x below the edge (0.4, 95% interval 0.3 to 0.5)."


def proof(lr, verdict=Verdict.CONVERGED, test=CONFIRM, seed=7, loss=None):
    point, loss = {"lr": lr, "warmup_steps": 5}, loss if verdict.is_stable else None
    return Proof(
        test, Record(0, point, seed, verdict, reason="It blew up.", horizon=600, final_loss=loss)
    )


def test_a_pick_that_holds_stays_and_says_how_often():
    found = proven(PICK, [proof(0.1), proof(0.1), proof(0.1), proof(0.1, test="double the width")])
    assert found == replace(PICK, proofs={"held": 4, "tests": 4, "failed": []})


def test_a_pick_that_fails_moves_to_the_highest_rate_that_holds_and_says_why():
    bad = proof(0.1, Verdict.COLLAPSED, seed=8)
    proofs = [proof(0.1), bad, proof(0.056), proof(0.056, seed=8)]
    found = proven(PICK, proofs)
    assert found.status == "ok" and found.lr == 0.056
    assert found.margin_decades == pytest.approx(0.6 + 0.2518, abs=1e-3)
    assert found.reason == (
        "Moved down from 0.1, which failed with an unseen seed over 600 steps (collapsed). "
        "7.1x below the edge (0.4, 95% interval 0.3 to 0.5)."
    )
    assert found.proofs == {"held": 2, "tests": 2, "failed": []}
    assert found.final_loss is None, "it was measured at another rate"


def test_a_higher_rate_that_did_better_is_taken_if_it_held_with_every_seed():
    first = [proof(0.1, loss=0.2), proof(0.18, loss=0.1)]
    found = proven(PICK, [*first, proof(0.18, seed=8, loss=0.12)])
    assert found.lr == 0.18 and found.proofs == {"held": 2, "tests": 2, "failed": []}
    assert found.margin_decades == pytest.approx(0.6 - 0.2553, abs=1e-3)
    assert found.reason == (
        "Moved up from 0.1: over 600 steps 0.18 ends lower (0.100 against 0.200). "
        "2.2x below the edge (0.4, 95% interval 0.3 to 0.5)."
    )
    # It failed with the second seed, so the first rate was tried with that too.
    proofs = [*first, proof(0.18, Verdict.DIVERGED, seed=8), proof(0.1, seed=8)]
    assert proven(PICK, proofs) == replace(PICK, proofs={"held": 2, "tests": 2, "failed": []})


def test_what_only_a_longer_run_can_tell_is_a_pick_if_it_tells():
    found = proven(OPEN, [proof(0.1, loss=0.1), proof(0.1, seed=8, loss=0.3)])
    assert found.is_ok and (found.lr, found.margin_decades, found.final_loss) == (0.1, 0.6, 0.9)
    assert found.reason == (
        "Learned with 2 unseen seeds over 600 steps (final loss 0.200). "
        f"{BELOW} The sweep alone gives none: Nothing was learned."
    )
    bad = proven(OPEN, [proof(0.1, Verdict.TOO_SLOW)])
    assert (bad.status, bad.lr) == ("none", None)
    assert bad.reason == (
        "Nothing was learned. Nor did 0.1 with an unseen seed over 600 steps pass: too_slow."
    )
    warned = replace(OPEN, warnings=("Only 3 of 9 trials were run.", "The pick is the highest."))
    assert proven(warned, []).warnings == ("Only 3 of 9 trials were run.",)
    untested = proven(OPEN, [])
    assert (untested.status, untested.lr, untested.reason) == ("none", None, OPEN.reason)


def test_the_usual_constant_is_taken_where_it_did_better():
    def with_constant(pick, *losses, verdict=Verdict.CONVERGED):
        rivals = [proof(0.01, verdict, CONSTANT, n, loss) for n, loss in enumerate(losses)]
        return proven(pick, rivals)

    found = with_constant(PICK, 0.2, 0.3)
    assert (found.lr, found.final_loss) == (0.01, 0.25) and not found.proofs
    assert found.margin_decades == pytest.approx(1.6)
    assert found.reason == (
        "The usual constant ends lower than the best that was swept, 0.1 (0.250 against 0.300). "
        "40x below the edge (0.4, 95% interval 0.3 to 0.5)."
    )
    assert with_constant(PICK, 0.2, 0.5) == PICK
    assert with_constant(PICK, 0.2, 0.2, verdict=Verdict.SPIKY) == PICK
    found = with_constant(OPEN, 1.2)
    assert found.is_ok and found.reason.startswith(
        "The usual constant learned with every seed, to 1.20. 40x below the edge"
    )
    other = replace(PICK, hyperparameters={"warmup_steps": 50})
    assert with_constant(other, 0.2) == other, "it was run in another row"
    # Then it is what must hold.
    rival = proof(0.01, test=CONSTANT, loss=0.1)
    found = proven(PICK, [rival, proof(0.01), proof(0.01, seed=8)])
    assert found.lr == 0.01 and found.proofs == {"held": 2, "tests": 2, "failed": []}


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
