"""The function finding the first elements of the windows of pixels, run as data: equal to indices of a padded image."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from byoc_ccompiler.kernels.pixel_tiles import rows_function
from byoc_core.authoring import c

COUNT = 3
HEIGHT, WIDTH, CHANNELS = 5, 4, 2


@pytest.mark.parametrize(
    ("padding", "strides", "dilation", "taps"),
    [((0, 0), (1, 1), (1, 1), (2, 2)), ((1, 2), (2, 1), (1, 2), (3, 2)), ((2, 1), (1, 3), (2, 1), (2, 3))],
)
def test_pointers_are_those_of_the_taps(
    padding: tuple[int, int], strides: tuple[int, int], dilation: tuple[int, int], taps: tuple[int, int]
) -> None:
    sizes = zip((HEIGHT, WIDTH), padding, strides, dilation, taps, strict=True)
    out_height, out_width = (
        (size + 2 * pad - (tap - 1) * apart - 1) // stride + 1 for size, pad, stride, apart, tap in sizes
    )
    image = np.arange(1, 2 * HEIGHT * WIDTH * CHANNELS + 1, dtype=np.float32)
    nothing = np.zeros(CHANNELS, np.float32)
    last = 2 * out_height * out_width - 1
    steps = (HEIGHT * WIDTH * CHANNELS, WIDTH * CHANNELS, CHANNELS)
    window = (last, out_height, out_width, HEIGHT, WIDTH, *padding, *strides, *taps, *dilation, *steps)
    padded = np.pad(image.reshape(2, HEIGHT, WIDTH, CHANNELS)[..., 0], ((0, 0), *((pad, pad) for pad in padding)))
    function = rows_function("float32", COUNT)
    assert c.problems_of(function) == []
    for first in range(0, last + 1, COUNT):
        rows = np.empty(taps[0] * taps[1] * COUNT, object)
        values = (rows, image, nothing, np.array(window, np.int64), first)
        c.interpret(function, dict(zip(function.parameters, values, strict=True)))
        for (down, right), j in itertools.product(np.ndindex(taps), range(COUNT)):
            # Behind the last pixel it is the last one.
            n, y, x = np.unravel_index(min(first + j, last), (2, out_height, out_width))
            expected = padded[n, y * strides[0] + down * dilation[0], x * strides[1] + right * dilation[1]]
            assert rows[(down * taps[1] + right) * COUNT + j][0] == expected
