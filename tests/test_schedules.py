"""Settings that change with time."""

import numpy as np
import pytest

from paramnoise import schedules
from paramnoise.explorations import ParameterNoise
from paramnoise.validation import UsageError


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (0.5, [0.5, 0.5, 0.5, 0.5]),
        (schedules.linear(1.0, 0.2, 10), [1.0, 0.6, 0.2, 0.2]),
        ("cosine:1.0:0.2:10", [1.0, 0.6, 0.2, 0.2]),
        ("exponential:1:0.25:10", [1.0, 0.5, 0.25, 0.25]),
    ],
)
def test_a_setting_has_its_first_value_then_its_last_and_stays(setting, expected):
    np.testing.assert_allclose([schedules.at(setting, step) for step in (0, 5, 10, 99)], expected, rtol=1e-6)
    assert schedules.first_value(setting) == expected[0]


@pytest.mark.parametrize("setting", ["lin:1:2:3", "linear:1:2", "linear:1:2:x", "linear:1:2:0", "linear:1:-2:5", 0.0])
def test_what_is_no_schedule_of_positive_values_is_refused_in_one_line(setting):
    with pytest.raises(UsageError) as error:
        schedules.check("delta", setting)
    assert "\n" not in str(error.value)


def test_a_schedule_of_sigma_is_for_noise_that_does_not_adapt():
    ParameterNoise(sigma="linear:0.2:0.1:10", alpha=1)
    with pytest.raises(UsageError, match="alpha must be 1 where sigma follows a schedule"):
        ParameterNoise(sigma="linear:0.2:0.1:10")
