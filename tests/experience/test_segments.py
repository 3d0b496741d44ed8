import jax
import jax.numpy as jnp
import numpy as np
import pytest

from paramnoise.experience.segments import Layout, accumulate, cut

SEGMENTS = np.repeat([0, 3, 1, 2], [1, 7, 2, 4])  # 14 rows; numbers need not be in order


@pytest.mark.parametrize(("stride", "phase"), [(1, 0), (2, 0), (3, 4), (20, 5)])
def test_chunks_cover_each_taken_row_once_with_the_offset_of_its_segment(stride, phase):
    layout = Layout(stride=stride, rows=3, block=2)
    chunks = cut(SEGMENTS, layout, num_segments=6, phase=phase)
    offsets = 10.0 * jnp.arange(6.0)[:, None]

    def note(block, seen):
        row = jnp.where(block.weight > 0, block.row, 14)  # padding goes to a place of its own
        return seen.at[row].add(block.weight * (1000 + block.offset))

    seen = jax.jit(lambda: accumulate(note, chunks, offsets, layout, 14, jnp.zeros(15)))()
    expected = np.zeros(14)
    taken = np.arange(phase % stride, 14, stride)
    expected[taken] = 1000 + 10 * SEGMENTS[taken]
    np.testing.assert_array_equal(seen[:14], expected)
    assert chunks.length.sum() == len(taken)


def test_the_capacity_fits_the_worst_batch_and_depends_on_nothing_else():
    layout = Layout(stride=1, rows=4, block=8)
    for segments in (np.zeros(20, int), np.arange(20), np.repeat(np.arange(4), 5)):
        chunks = cut(segments, layout, num_segments=20)
        assert len(chunks.first) == layout.capacity(20, 20) == 32
        assert chunks.count <= 32
