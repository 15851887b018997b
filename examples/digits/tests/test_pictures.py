"""The picture of a partitioned graph: arrows go from the producer of a value to a reader."""

from __future__ import annotations

from byoc_core import script as R
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from examples.digits.pictures import plan_graph

MODULE = R.parse("""
@R.ir_module
class Net:
    @R.function
    def first(a: R.Tensor((2, 4), "float32")):
        R.func_attr({"Codegen": "npu", "global_symbol": "first"})
        b = R.nn.relu(a)
        return b

    @R.function
    def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((2, 4), "float32")):
        R.func_attr({"output_names": ("sums", "parts")})
        p = first(x)
        q = R.add(p, w)
        r = R.tanh(q)
        return r, p
""")
EDGES = {("x", "npu"), ("w", "add"), ("npu", "add"), ("add", "tanh"), ("tanh", "sums"), ("npu", "parts")}


def words(text: Text) -> str:
    """Return the name of a box: an input or output, a backend, or a host op."""
    label: str = text.get_text()
    first, _, second = label.partition("\n")
    return second if first == "host" else first.partition(":")[0]


def drawn(figure: Figure) -> tuple[dict[str, Text], list[Annotation]]:
    (axis,) = figure.axes
    arrows = [text for text in axis.texts if isinstance(text, Annotation)]
    return {words(text): text for text in axis.texts if not isinstance(text, Annotation)}, arrows


def touched(figure: Figure, boxes: dict[str, Text], point: tuple[float, float]) -> list[str]:
    """Return the boxes with a point on the border, to a pixel."""
    (axis,) = figure.axes
    x, y = axis.transData.transform(point)
    found = []
    for name, box in boxes.items():
        patch = box.get_bbox_patch()
        assert patch is not None
        extent = patch.get_window_extent()
        across = min(abs(x - extent.x0), abs(x - extent.x1)) < 1 and extent.y0 - 1 < y < extent.y1 + 1
        along = min(abs(y - extent.y0), abs(y - extent.y1)) < 1 and extent.x0 - 1 < x < extent.x1 + 1
        if across or along:
            found.append(name)
    return found


def test_each_arrow_has_its_head_at_the_border_of_who_reads() -> None:
    figure = plan_graph(MODULE)
    boxes, arrows = drawn(figure)
    assert boxes.keys() == {name for edge in EDGES for name in edge}
    found = set()
    for arrow in arrows:
        (maker,) = touched(figure, boxes, arrow.xyann)
        (reader,) = touched(figure, boxes, arrow.xy)
        assert arrow.arrowprops is not None
        assert arrow.arrowprops["arrowstyle"] == "-|>", "the head is at `xy`"
        found.add((maker, reader))
    assert (found, len(arrows)) == (EDGES, len(EDGES))


def test_who_reads_stands_below_who_makes() -> None:
    boxes, _ = drawn(plan_graph(MODULE))
    for maker, reader in EDGES:
        assert boxes[maker].get_position()[1] > boxes[reader].get_position()[1]
