import functools

import numpy as np
import pytest

from paramnoise.agents.es import ESConfig
from paramnoise.experience.returns import Episode, draw_index, gather, noise_table


def test_the_noise_table_is_normal_fixed_and_made_once():
    table = noise_table(100_000)
    assert table is noise_table(100_000)
    assert table.dtype == np.float32
    np.testing.assert_array_equal(table, np.random.default_rng(123).standard_normal(100_000, np.float32))
    assert abs(table.mean()) < 0.01
    assert abs(table.std() - 1) < 0.01
    with pytest.raises(ValueError, match="read-only"):
        table[0] = 1.0


def test_indices_depend_on_seed_generation_and_pair_and_reach_both_ends_of_the_table():
    draw = functools.partial(draw_index, 12, 10)
    assert {draw(0, 0, pair) for pair in range(50)} == {0, 1, 2}
    wide = functools.partial(draw_index, ESConfig().table_size, 10)
    assert wide(3, 4, 5) == wide(3, 4, 5)
    assert len({wide(3, 4, 5), wide(3, 4, 6), wide(3, 5, 5), wide(4, 4, 5)}) == 4


def test_a_pair_s_epsilon_is_a_slice_of_the_table_and_its_returns_are_means_over_episodes():
    config = ESConfig(pairs=2, episodes_per_member=3, table_size=50)
    episodes = [Episode(number, float(number), 1, np.zeros(1), np.zeros(1)) for number in range(12)]
    gathered = gather(config, 5, seed=7, generation=4, episodes=episodes)
    places = [draw_index(50, 5, 7, 4, pair) for pair in range(2)]
    np.testing.assert_array_equal(gathered.noise, [noise_table(50)[place : place + 5] for place in places])
    assert places[0] != places[1]
    np.testing.assert_array_equal(gathered.returns, [[1, 4], [7, 10]])
