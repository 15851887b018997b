"""Moving zeros around an image into the window op reading the image: permitted cases."""

from __future__ import annotations

import pytest
from byoc_core.transform import FoldPad

from core.tests.ir_text import check_pass, check_unchanged

PARAMS = 'x: R.Tensor(("n", 2, 6, 6), "float32"), w: R.Tensor((3, 2, 3, 3), "float32")'
NHWC = 'x: R.Tensor(("n", 6, 6, 2), "float32"), w: R.Tensor((3, 2, 3, 3), "float32")'
PAD = "a = R.nn.pad(x, pad_width=(0, 0, 0, 0, 1, 2, 0, 1){more})\n"

FOLDED = {
    "conv2d": (PARAMS, PAD.format(more="") + "y = R.nn.conv2d(a, w)", "y = R.nn.conv2d(x, w, padding=(1, 0, 2, 1))"),
    "conv2d with padding": (
        PARAMS,
        PAD.format(more="") + "y = R.nn.conv2d(a, w, strides=(2, 2), padding=(1, 2, 3, 4), dilation=(2, 1))",
        "y = R.nn.conv2d(x, w, strides=(2, 2), padding=(2, 2, 5, 5), dilation=(2, 1))",
    ),
    "conv2d in NHWC": (
        NHWC,
        'a = R.nn.pad(x, pad_width=(0, 0, 1, 2, 0, 1, 0, 0))\ny = R.nn.conv2d(a, w, data_layout="NHWC")',
        'y = R.nn.conv2d(x, w, padding=(1, 0, 2, 1), data_layout="NHWC")',
    ),
    "conv1d": (
        'x: R.Tensor((1, 2, 6), "float32"), w: R.Tensor((3, 2, 3), "float32")',
        "a = R.nn.pad(x, pad_width=(0, 0, 0, 0, 1, 2))\ny = R.nn.conv1d(a, w, padding=(1, 0))",
        "y = R.nn.conv1d(x, w, padding=(2, 2))",
    ),
    "average in three axes": (
        'x: R.Tensor((1, 4, 4, 4, 2), "float32")',
        (
            "a = R.nn.pad(x, pad_width=(0, 0, 1, 0, 0, 1, 1, 1, 0, 0))\n"
            'y = R.nn.avg_pool3d(a, pool_size=(2, 2, 2), strides=(1, 1, 1), layout="NDHWC")'
        ),
        (
            "y = R.nn.avg_pool3d(x, pool_size=(2, 2, 2), strides=(1, 1, 1), padding=(1, 0, 1, 0, 1, 1), "
            'count_include_pad=True, layout="NDHWC")'
        ),
    ),
    "two pads": (
        PARAMS,
        PAD.format(more="") + "b = R.nn.pad(a, pad_width=(0, 0, 0, 0, 0, 0, 5, 0))\ny = R.nn.conv2d(b, w)",
        "y = R.nn.conv2d(x, w, padding=(1, 5, 2, 1))",
    ),
    "average without padding": (
        PARAMS,
        PAD.format(more="") + "y = R.nn.avg_pool2d(a, pool_size=(3, 3), strides=(1, 1))",
        "y = R.nn.avg_pool2d(x, pool_size=(3, 3), strides=(1, 1), padding=(1, 0, 2, 1), count_include_pad=True)",
    ),
    "average that counts zeros": (
        PARAMS,
        PAD.format(more="")
        + "y = R.nn.avg_pool2d(a, pool_size=(4, 4), strides=(2, 1), padding=(1, 1, 1, 1), count_include_pad=True)",
        "y = R.nn.avg_pool2d(x, pool_size=(4, 4), strides=(2, 1), padding=(2, 1, 3, 2), count_include_pad=True)",
    ),
}


@pytest.mark.parametrize("case", FOLDED)
def test_zeros_are_folded(case: str) -> None:
    params, before, after = FOLDED[case]
    check_pass(FoldPad(), params, f"{before}\nreturn y", f"{after}\nreturn y")


KEPT = {
    "ones": PAD.format(more=", pad_value=1.0") + "y = R.nn.conv2d(a, w)",
    "negative zeros": PAD.format(more=", pad_value=-0.0") + "y = R.nn.conv2d(a, w)",
    "the batch": "a = R.nn.pad(x, pad_width=(1, 0, 0, 0, 0, 0, 0, 0))\ny = R.nn.conv2d(a, w)",
    "channels": "b = R.strided_slice(x, axes=(1,), begin=(0,), end=(1,), strides=(1,))\n"
    "a = R.nn.pad(b, pad_width=(0, 0, 0, 1, 0, 0, 0, 0))\ny = R.nn.conv2d(a, w)",
    "the filter": "a = R.nn.pad(w, pad_width=(0, 0, 0, 0, 1, 1, 1, 1))\ny = R.nn.conv2d(x, a)",
    "maximum": PAD.format(more="") + "y = R.nn.max_pool2d(a, pool_size=(3, 3))",
    "average that does not count zeros": PAD.format(more="")
    + "y = R.nn.avg_pool2d(a, pool_size=(3, 3), padding=(1, 1, 1, 1))",
    "average with a partial window": PAD.format(more="") + "y = R.nn.avg_pool2d(a, pool_size=(3, 3), ceil_mode=True)",
    "average with a small window": PAD.format(more="") + "y = R.nn.avg_pool2d(a, pool_size=(2, 2), strides=(1, 1))",
}


@pytest.mark.parametrize("case", KEPT)
def test_what_would_change_the_numbers_stays(case: str) -> None:
    check_unchanged(FoldPad(), PARAMS, f"{KEPT[case]}\nreturn y")


def test_a_pad_that_others_read_stays_for_them() -> None:
    pad = PAD.format(more="")
    check_pass(
        FoldPad(),
        PARAMS,
        pad + "y = R.nn.conv2d(a, w)\nreturn y, a",
        pad + "y = R.nn.conv2d(x, w, padding=(1, 0, 2, 1))\nreturn y, a",
    )
