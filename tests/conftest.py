"""What several tests share."""

import gc
import signal

import jax
import pytest

# Tracing makes millions of small objects, few of them in cycles: to seek these more seldom saves a tenth of the time.
gc.freeze()
gc.set_threshold(100_000)
# A shell's background job ignores Ctrl-C, and so would all that the tests start, also where a test is of Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


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
