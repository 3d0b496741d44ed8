"""What several tests of training share."""

import jax
import pytest


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
