import pytest
import torch

from stabsweep.errors import BadInput
from stabsweep.task.quadratic import Quadratic


def test_its_hessian_is_the_diagonal_of_the_eigenvalues():
    task = Quadratic([0.25, 4, 1.5]).to("cpu", torch.float64)
    nothing = torch.zeros(())
    theta_D = torch.randn(3, dtype=torch.float64)
    gradient = torch.func.grad(lambda theta_D: task.criterion(theta_D, nothing))
    hessian = torch.func.jacrev(gradient)(theta_D)
    torch.testing.assert_close(hessian, torch.diag(torch.tensor([0.25, 4, 1.5]).double()))


@pytest.mark.parametrize("rate, falls", [(1.99, True), (2.01, False)])
def test_gradient_descent_is_stable_up_to_two_over_the_sharpness(rate, falls):
    task = Quadratic()
    nothing = torch.zeros(())
    theta_D = torch.ones(5, dtype=torch.float64)
    losses = []
    for _ in range(1000):
        losses.append(task.criterion(theta_D, nothing).item())
        theta_D -= rate * torch.func.grad(task.criterion)(theta_D, nothing)
    assert (losses[-1] < losses[0]) is falls


def test_a_batch_has_the_shape_of_its_index_and_takes_no_memory():
    task = Quadratic()
    for tensor in task.batch(torch.zeros(1000, 7, 1, dtype=torch.int64)):
        assert tensor.shape == (1000, 7, 1)
        assert tensor.untyped_storage().nbytes() == 4


def test_there_is_no_blind_loss_and_one_example():
    task = Quadratic([1.0, 2.0])
    assert task.blind_loss is None and task.num_examples == 1
    assert task.signature.kind == "nothing" and task.signature.num_outputs == 2


@pytest.mark.parametrize(
    "eigenvalues", [[], [1.0, float("nan")], [float("inf")], "12", ["1"], 3.0, None, [True]]
)
def test_anything_but_finite_numbers_is_refused(eigenvalues):
    with pytest.raises(BadInput, match="task.eigenvalues=.* give a list of finite numbers"):
        Quadratic(eigenvalues)
