from stabsweep.engine import Cohort, Loop
from tests.laws import EngineLaws, StackedEngineLaws


class TestCohort(StackedEngineLaws):
    kind = Cohort


class TestLoop(EngineLaws):
    kind = Loop
