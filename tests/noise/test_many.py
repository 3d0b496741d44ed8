"""Many policies that act beside training: in parts, one after the other, with the same values."""

import jax
import jax.numpy as jnp
import numpy as np

from paramnoise.noise import many

SIZE = 3 * many.TURNS
WEIGHTS, OBS = (jax.random.normal(jax.random.key(i), (SIZE, 4)) for i in range(2))
POLICIES = {"weights": WEIGHTS, "name": "a leaf that is no array"}


def _values(policies, obs):
    return many.values_of_each(lambda policy, seen: policy["weights"] * seen, policies, obs)


def _in_turn(policies, obs):
    with many.taking_turns():
        return _values(policies, obs)


def _joined(function, size):
    """How often values of parts are joined in a program of so many policies."""
    take = lambda leaf: jnp.zeros((size, *leaf.shape[1:]))  # noqa: E731
    shown = str(jax.make_jaxpr(lambda w, o: function({**POLICIES, "weights": w}, o))(take(WEIGHTS), take(OBS)))
    return shown.count("concatenate")


def test_each_policy_sees_its_own_observation_whether_parts_take_turns_or_not(monkeypatch):
    monkeypatch.setattr(many, "LARGE", SIZE)
    np.testing.assert_array_equal(_in_turn(POLICIES, OBS), WEIGHTS * OBS)
    np.testing.assert_array_equal(_values(POLICIES, OBS), WEIGHTS * OBS)


def test_policies_take_turns_where_that_is_asked_for_and_they_are_many(monkeypatch):
    monkeypatch.setattr(many, "LARGE", SIZE)
    assert _joined(_in_turn, SIZE) == 1
    assert [_joined(_values, SIZE), _joined(_in_turn, SIZE - many.TURNS), _joined(_in_turn, SIZE + 1)] == [0, 0, 0]
    assert _joined(_values, SIZE) == 0  # asking ends with its block


def test_a_part_needs_the_values_of_the_one_before_and_takes_nothing_of_them(monkeypatch):
    monkeypatch.setattr(many, "LARGE", SIZE)
    broken = WEIGHTS.at[0].set(jnp.nan)
    np.testing.assert_array_equal(_in_turn({**POLICIES, "weights": broken}, OBS), broken * OBS)
    # The bits that no computation makes are the proof that the next part looks at them.
    never = jax.lax.bitcast_convert_type(jnp.int32(many.NEVER), jnp.float32)
    call = lambda policy, seen: jnp.where(policy["weights"][0] == 7.0, never, policy["weights"] * seen)  # noqa: E731
    with many.taking_turns():
        values = many.values_of_each(call, {**POLICIES, "weights": WEIGHTS.at[0].set(7.0)}, OBS)
    second = slice(SIZE // many.TURNS, 2 * SIZE // many.TURNS)
    np.testing.assert_array_equal(values[second], jnp.zeros_like(OBS[second]))
    np.testing.assert_array_equal(values[second.stop :], (WEIGHTS * OBS)[second.stop :])
