"""What several tests share."""

import gc

import jax
import pytest

from paramnoise.loops import programs

# Tracing makes millions of small objects, few of them in cycles: to seek these more seldom saves a tenth of the time.
gc.freeze()
gc.set_threshold(100_000)


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
    programs._shared.clear()
    yield
    jax.config.update(name, before)
    programs._shared.clear()
