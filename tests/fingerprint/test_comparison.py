"""What is said of a file from another machine, and of one that is none."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml

from stabsweep import fingerprint
from stabsweep.cli import main
from stabsweep.errors import BadInput
from stabsweep.fingerprint import bits, ladder
from stabsweep.fingerprint.taken import Output


def changed(taken, values):
    """The fingerprint with other outputs: (name, precision) -> kept values."""
    outputs = dict(taken.operations)
    for key, new in values.items():
        outputs[key] = Output(bits.digest(new), outputs[key].size, new)
    return replace(taken, operations=outputs)


def scaled(taken, factor, precisions=("fp32", "fp64")):
    """The fingerprint with every output multiplied."""
    return changed(
        taken,
        {
            key: (output.values * output.values.dtype.type(factor)).astype(output.values.dtype)
            for key, output in taken.operations.items()
            if key[1] in precisions
        },
    )


def with_losses(taken, key, losses):
    """The fingerprint with the loss of one training replaced."""
    course = taken.courses[key]
    curves = course.curves.copy()
    curves[0] = losses
    return replace(taken, courses={**taken.courses, key: replace(course, curves=curves)})


def in_tf32(taken, bits_of_mantissa=10):
    """The fingerprint whose products have factors of few bits, as a tensor core takes them."""
    left, right = (ladder.round_mantissa(x, bits_of_mantissa) for x in ladder.matmul_factors())
    # Summed in float32 and in another order, unlike what the file expects.
    product = bits.as_array(left.float() @ right.float())
    rng = np.random.default_rng(0)
    values = {("matmul", "fp32"): bits.kept(product)}
    for name in ("conv", "LSTM cell"):
        kept = taken.operations[name, "fp32"].values
        values[name, "fp32"] = (kept * (1 + rng.uniform(-5e-4, 5e-4, len(kept)))).astype("f4")
    return changed(taken, values)


def test_a_fingerprint_is_bitwise_its_own(taken):
    found = fingerprint.compare(taken, taken)
    assert found.word == "bitwise" and found.exit_code == 0 and found.first is None
    assert found.sentence.startswith("Bitwise the same: 20 outputs and 6 trainings")
    assert "nothing in the environments" in found.summary()
    assert not taken.unrepeated


def test_the_file_holds_it_exactly_and_is_small(taken, tmp_path):
    path = taken.save(tmp_path / "here.json")
    again = fingerprint.read(path)
    assert again.digest == taken.digest and again.as_dict() == taken.as_dict()
    assert fingerprint.compare(taken, again).word == "bitwise"
    # With trainings of full length, whose curves are the rest.
    course = replace(taken.courses["mlp", "fp64"], curves=np.full((5, 200), np.pi))
    whole = replace(taken, num_steps=200, courses={(n, "fp64"): course for n in "abcdef"})
    assert whole.save(tmp_path / "whole.json").stat().st_size < 300_000
    assert not list(tmp_path.glob("*.part"))


def test_a_thousandth_is_to_be_investigated(taken):
    found = fingerprint.compare(taken, scaled(taken, 1 + 1e-3))
    assert found.word == "investigate" and found.exit_code == 1
    assert found.sentence.startswith("Investigate: sum differs by 1.0e-3 in fp32, where rounding")
    assert "and 17 more" in found.sentence
    assert {row.word for row in found.operations} == {"apart"}


def test_some_ulps_are_expected_and_so_tied_to_the_format(taken):
    found = fingerprint.compare(taken, scaled(taken, 1 + 1e-6, ["fp32"]))
    assert found.word == "expected" and found.exit_code == 0
    assert found.first.name == "sum" and 4 <= found.first.ulps <= 20
    # The same in float64 is a thousand times what rounding explains.
    found = fingerprint.compare(taken, scaled(taken, 1 + 1e-6, ["fp64"]))
    assert found.word == "investigate"


def test_tf32_is_recognised_by_its_numbers_alone(taken):
    found = fingerprint.compare(taken, in_tf32(taken))
    assert found.word == "tf32" and found.exit_code == 0
    assert found.sentence.startswith("Explained as TF32: matmul, conv, LSTM cell differ by up to")
    assert {r.name for r in found.operations if r.word == "tf32"} == {"matmul", "conv", "LSTM cell"}
    assert fingerprint.compare(in_tf32(taken), taken).word == "tf32"
    assert "TF32" in found.summary()
    product = next(r for r in found.operations if (r.name, r.precision) == ("matmul", "fp32"))
    assert 1e-4 < product.relative < 1e-3


def test_fewer_bits_are_not_tf32_and_nor_is_what_no_product_has(taken):
    coarse = fingerprint.compare(taken, in_tf32(taken, 7))
    assert coarse.word == "investigate"
    kept = taken.operations["exp", "fp32"].values
    both = changed(in_tf32(taken), {("exp", "fp32"): kept * np.float32(1.0003)})
    found = fingerprint.compare(taken, both)
    assert found.word == "investigate" and "exp differs by" in found.sentence


def test_a_switch_explains_a_convolution_alone(taken):
    kept = taken.operations["conv", "fp32"].values
    noise = np.random.default_rng(0).uniform(-5e-4, 5e-4, len(kept))
    there = changed(taken, {("conv", "fp32"): (kept * (1 + noise)).astype("f4")})
    assert fingerprint.compare(taken, there).word == "investigate"
    switches = {**taken.environment["switches"], "cudnn_tf32": True, "matmul_tf32": False}
    surroundings = {**taken.environment, "switches": switches}
    there = replace(there, device="cuda NVIDIA", environment=surroundings)
    found = fingerprint.compare(taken, there)
    assert found.word == "tf32"
    assert found.sentence.startswith("Explained as TF32 (cudnn_tf32 on for one side): conv differ")


def test_another_verdict_is_to_be_investigated_and_matters(taken):
    losses = taken.courses["mlp", "fp32"].curves[0].copy()
    losses[5:] = np.inf
    found = fingerprint.compare(taken, with_losses(taken, ("mlp", "fp32"), losses))
    assert found.exit_code == 1
    assert "mlp in fp32 is too slow here and diverged there" in found.sentence
    assert "Matters  Yes: mlp in fp32" in found.summary()


def test_a_first_loss_that_is_off_is_to_be_investigated(taken):
    losses = taken.courses["rnn", "fp64"].curves[0] * (1 + 1e-9)
    found = fingerprint.compare(taken, with_losses(taken, ("rnn", "fp64"), losses))
    assert found.exit_code == 1 and "first loss of rnn in fp64 differs by 1.0e-9" in found.sentence


def test_other_data_are_not_compared(taken):
    course = replace(taken.courses["mlp", "fp32"], data="other")
    there = replace(taken, courses={**taken.courses, ("mlp", "fp32"): course})
    found = fingerprint.compare(taken, there)
    assert found.exit_code == 1 and "mlp in fp32 was given other weights or data" in found.sentence
    with pytest.raises(BadInput, match="not computed from the inputs"):
        fingerprint.compare(taken, replace(taken, inputs="other"))


def test_a_shorter_training_is_compared_as_far_as_it_goes(taken):
    courses = {k: replace(c, curves=c.curves[:, :10]) for k, c in taken.courses.items()}
    found = fingerprint.compare(taken, replace(taken, num_steps=10, courses=courses))
    assert found.word == "bitwise" and {row.num_steps for row in found.courses} == {10}


def test_environments_are_named_also_where_the_numbers_are_the_same(taken):
    surroundings = dict(taken.environment)
    surroundings["threads"] = {**surroundings["threads"], "torch": 77}
    surroundings["torch"] = {**surroundings["torch"], "blas": "abacus", "cpu_capability": "X"}
    surroundings["variables"] = {**surroundings["variables"], "MKL_CBWR": "COMPATIBLE"}
    found = fingerprint.compare(taken, replace(taken, environment=surroundings))
    assert found.word == "bitwise"
    keys = [change.what for change in found.changes]
    assert keys == ["torch BLAS", "vector level", "threads", "MKL_CBWR"]
    said = " ".join(found.summary().split())
    assert "MKL_CBWR none here, COMPATIBLE there" in said


def test_what_is_not_repeatable_is_said(taken):
    there = replace(taken, repeated={**taken.repeated, ("LSTM cell", "fp32"): 3e-7})
    summary = " ".join(fingerprint.compare(taken, there).summary().split())
    assert "within 3.0e-7 at a second run there (LSTM cell)" in summary


def test_the_answer_is_plain_values(taken, capsys, tmp_path):
    here = taken.save(tmp_path / "here.json")
    there = scaled(taken, 1 + 1e-3).save(tmp_path / "there.json")
    words = ["env", "drift", str(here), f"against={there}"]
    assert main([*words, "format=json"]) == 1
    as_json = json.loads(capsys.readouterr().out)
    assert main([*words, "--format=yaml"]) == 1
    assert yaml.safe_load(capsys.readouterr().out) == as_json
    assert as_json["word"] == "investigate" and len(as_json["operations"]) == 20
    assert as_json["trainings"][0]["verdict_here"] == as_json["trainings"][0]["verdict_there"]


def test_a_picture_is_drawn_on_demand(taken, capsys, tmp_path):
    here = taken.save(tmp_path / "here.json")
    words = ["env", "drift", str(here), "--against", str(here)]
    assert main([*words, f"picture={tmp_path / 'new' / 'folder'}"]) == 0
    assert (tmp_path / "new" / "folder" / "drift.png").exists()
    assert "drift.svg" in capsys.readouterr().out
    assert main(words) == 0
    assert "picture=DIR draws drift.png" in capsys.readouterr().out


def foreign(tmp_path):
    """Files that are no fingerprint -> what is said of them."""
    whole = json.loads((tmp_path / "here.json").read_text())
    torn = json.dumps(whole)
    no_bits = json.loads(torn)
    no_bits["operations"][0]["bits"] = no_bits["operations"][0]["bits"][:-4]
    few = json.loads(torn)
    few["trainings"][0]["curves"]["loss"] = few["trainings"][0]["curves"]["loss"][:80]
    return {
        "torn": (torn[: len(torn) // 2], "is no JSON"),
        "empty": ("", "is no JSON"),
        "list": ("[1, 2]", "is no fingerprint"),
        "snapshot": (json.dumps(whole["environment"]), "is an environment without numbers"),
        "newer": (json.dumps({**whole, "format": 99}), "format 99"),
        "lacking": (json.dumps({k: v for k, v in whole.items() if k != "trainings"}), "damaged"),
        "bits": (json.dumps(no_bits), "damaged"),
        "curves": (json.dumps(few), "damaged"),
        "binary": (b"\xff\xfe\x00", "is no JSON"),
    }


def test_what_is_no_fingerprint_is_refused_in_one_line(taken, capsys, tmp_path):
    taken.save(tmp_path / "here.json")
    for name, (text, words) in foreign(tmp_path).items():
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        assert main(["env", "drift", "--against", str(path)]) == 2, name
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and words in error and str(path) in error, error


@pytest.mark.parametrize(
    "words, part",
    [
        (["--against", "missing.json"], "cannot read missing.json"),
        (["--against"], "--against has no value"),
        (["-o", "--against"], "-o has no value"),
        (["agianst=x"], "did you mean against?"),
        (["a.json"], "compared with nothing"),
        (["a.json", "b.json", "against=c"], "usage"),
        (["a.json", "against=b.json", "out=c"], "has no effect"),
        (["picture=here"], "add --against FILE"),
        (["format=xml"], "format='xml'"),
        (["-o", "missing/there.json"], "cannot be written"),
        (["out=."], "cannot be written"),
        (["steps=few"], "steps=few is not a whole number"),
        (["steps=3"], "steps=3"),
        (["device=abacus"], "device"),
    ],
)
def test_a_slip_of_the_finger_costs_one_line(words, part, capsys):
    assert main(["env", "drift", *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and part in error


def test_help_names_every_option(capsys):
    assert main(["env", "drift", "--help"]) == 0
    shown = capsys.readouterr().out
    for word in ("--against", "-o", "picture", "device", "steps", "format"):
        assert word in shown


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_drifts_from_the_cpu_as_expected(taken):
    there = fingerprint.take("cuda", taken.num_steps)
    found = fingerprint.compare(taken, there)
    assert found.exit_code == 0 and found.word in ("expected", "tf32")
    assert all(row.keeps_verdict for row in found.courses)
