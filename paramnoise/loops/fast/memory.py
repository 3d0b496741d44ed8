"""How the C library keeps memory."""

import contextlib
import ctypes

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_KEPT = 1 << 30


def keep_freed_memory() -> None:
    """Asks the C library to keep large blocks that were freed, if it is glibc.

    XLA asks for the same tens of megabytes at every call of a large program, and a CPU then spends a fifth of a train
    step of the Nature network on making the pages of fresh ones.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        mallopt(_MMAP_MAX, 0)  # its threshold cannot be set above 32 MB, and a program may need more at once
        mallopt(_ARENA_MAX, 1)  # other arenas give back what does not fit into 64 MB
        mallopt(_TRIM_THRESHOLD, _KEPT)
        mallopt(_TOP_PAD, _KEPT >> 4)
