"""What several tests share."""

import jax
import pytest

from paramnoise.loops import stepping


@pytest.fixture
def compiled():
    """The events of compilation from now on."""
    names: list[str] = []

    def note(name: str, *_: object, **__: object) -> None:
        if "/compile/" in name:
            names.append(name)

    jax.monitoring.register_event_duration_secs_listener(note)
    yield names
    jax.monitoring.unregister_event_duration_listener(note)


@pytest.fixture
def optimised():
    """Programs compiled as users have them, where the sums of two programs have to be the same to the bit."""
    name = "jax_disable_most_optimizations"
    before = jax.config.values[name]
    jax.config.update(name, False)
    yield
    jax.config.update(name, before)


@pytest.fixture(scope="module")
def shared_programs():
    """Loops with equal settings share their programs, which are pure: a test compiles for longer than it runs."""
    make, made = stepping.Programs, {}

    def programs(learner, exploration, feed, key, obs, seeds):
        stores_on_host = bool(getattr(feed, "_hosted", ()))
        settings = (learner.config, learner.spaces, exploration, type(feed), stores_on_host, obs.shape, seeds)
        if settings not in made:
            made[settings] = make(learner, exploration, feed, key, obs, seeds)
        return made[settings]

    stepping.Programs = programs
    yield
    stepping.Programs = make
