"""The light models of the onnx package, with weights that make their outputs depend on their inputs.

    python -m benchmarks.zoo.light light_squeezenet -o squeezenet.onnx

The onnx package ships the graphs of well-known networks with each large weight replaced by one repeated number, so
that their outputs are constant vectors. :func:`load_light_model` puts seeded, He-scaled weights in those places.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[np.float32]

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
SEED = 20
PATCHES = 5


def list_light_models() -> tuple[str, ...]:
    """Gives the names of the light models that the installed onnx package holds."""
    return tuple(sorted(path.stem for path in FOLDER.glob("light_*.onnx")))


def load_light_model(name: str, seed: int = SEED) -> onnx.ModelProto:
    """Gives a light model whose ``ConstantOfShape`` weights are seeded normal numbers.

    A weight of rank two or more gets the standard deviation ``sqrt(2 / fan_in)`` (He et al. 2015), a bias 0.05.
    A final softmax stays, and its input becomes a further output: softmax flattens differences, so that is the
    value to compare. Shapes are inferred and the inputs are those that a caller gives.

    Raises:
        ValueError: there is no such model, or it has batch normalisation, whose statistics would need calibrating.
    """
    path = FOLDER / f"{name}.onnx"
    if not path.is_file():
        raise ValueError(f"light model {name!r}: is not in the onnx package; expected {', '.join(list_light_models())}")
    model = onnx.load(str(path))
    graph = model.graph
    if any(node.op_type == "BatchNormalization" for node in graph.node):
        raise ValueError(f"light model {name!r}: has batch normalisation, whose statistics would need calibrating")
    given = {tensor.name: tensor for tensor in graph.initializer}
    shapes = {
        node.output[0]: tuple(int(size) for size in numpy_helper.to_array(given[node.input[0]]))
        for node in graph.node
        if node.op_type == "ConstantOfShape"
    }
    rng = np.random.default_rng(seed)
    filled = {weight: draw_weight(shape, rng) for weight, shape in shapes.items()}
    shape_inputs = {node.input[0] for node in graph.node if node.op_type == "ConstantOfShape"}
    kept = [tensor for tensor in graph.initializer if tensor.name not in shape_inputs]
    weights = [*kept, *(numpy_helper.from_array(array, weight) for weight, array in filled.items())]
    nodes = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    outputs = list(graph.output)
    if nodes[-1].op_type == "Softmax":
        logits = onnx.ValueInfoProto()
        logits.CopyFrom(outputs[-1])
        logits.name = nodes[-1].input[0]
        outputs.insert(0, logits)
    inputs = [value for value in graph.input if value.name not in given]
    rebuilt = helper.make_graph(nodes, name, inputs, outputs, weights)
    result = helper.make_model(rebuilt, opset_imports=list(model.opset_import), ir_version=8)
    onnx.checker.check_model(result, full_check=True)
    return result


def draw_weight(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Gives a weight of a shape: He-scaled where it has a fan-in, small where it is a bias."""
    deviation = math.sqrt(2.0 / math.prod(shape[1:])) if len(shape) > 1 else 0.05
    return rng.normal(0.0, deviation, shape).astype(np.float32)


def draw_inputs(model: onnx.ModelProto, seed: int) -> dict[str, Array]:
    """Gives seeded inputs by name, for a model of static float32 inputs.

    An image is patches of one colour each under a little noise: pure noise is alike everywhere, and a network that
    ends in a global average tells two of its kind hardly apart.
    """
    rng = np.random.default_rng(seed)
    inputs: dict[str, Array] = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = tuple(dim.dim_value for dim in tensor.shape.dim)
        if tensor.elem_type != TensorProto.FLOAT or 0 in shape:
            raise ValueError(f"input {value.name!r}: expected float32 and a static shape")
        inputs[value.name] = rng.standard_normal(shape, np.float32)
        if len(shape) == 4:
            rows, columns = (np.arange(size) * PATCHES // size for size in shape[2:])
            colours = rng.standard_normal((*shape[:2], PATCHES, PATCHES), np.float32)
            inputs[value.name] = colours[:, :, rows[:, None], columns] + np.float32(0.1) * inputs[value.name]
    return inputs


def relative_difference(first: Array, second: Array) -> float:
    """Gives the standard deviation of the difference of two outputs over that of the first output.

    Two inputs of a network that depends on its input give more than 1e-2.
    """
    return float((first - second).std() / first.std())


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", choices=list_light_models())
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the weights (%(default)s)")
    parser.add_argument("-o", "--out", type=Path, required=True, help="model file to write")
    arguments = parser.parse_args()
    onnx.save(load_light_model(arguments.model, arguments.seed), str(arguments.out))


if __name__ == "__main__":
    main()
