"""The light models of the onnx package, with new weights to make outputs depend on inputs.

    python -m benchmarks.zoo.light light_squeezenet -o squeezenet.onnx

The onnx package ships the graphs of well-known networks with each large weight replaced by a repeated number: the
outputs are constant vectors. :func:`load_light_model` puts seeded, He-scaled weights in these places and calibrates the
statistics of batch normalisation. ``benchmarks.zoo.check_light`` compares all light models with ONNX Runtime.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[np.float32]

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
SEED = 20
PATCHES = 5
BATCH_NORM_EPSILON = 1e-5


def list_light_models() -> tuple[str, ...]:
    """Return the names of the light models in the installed onnx package."""
    return tuple(sorted(path.stem for path in FOLDER.glob("light_*.onnx")))


def load_light_model(name: str, seed: int = SEED) -> onnx.ModelProto:
    """Return a light model with seeded normal numbers in place of ``ConstantOfShape`` weights.

    A weight of rank two or more gets the standard deviation ``sqrt(2 / fan_in)`` (He et al. 2015), a factor per channel
    (of batch normalisation, or of a multiplication) the mean 1, a bias the mean 0. The statistics of batch
    normalisation are the statistics of the input when the network runs on a seeded image. A final softmax stays. The
    input of this softmax becomes a further output, for the comparison, because softmax flattens differences. Shapes are
    inferred, and the inputs are only the inputs to be given by a caller.

    Raises:
        ValueError: there is no such model.
    """
    path = FOLDER / f"{name}.onnx"
    if not path.is_file():
        raise ValueError(f"light model {name!r}: is not in the onnx package; expected {', '.join(list_light_models())}")
    model = onnx.load(str(path))
    graph = model.graph
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    shapes = {
        node.output[0]: tuple(int(size) for size in numpy_helper.to_array(initializers[node.input[0]]))
        for node in graph.node
        if node.op_type == "ConstantOfShape"
    }
    rng = np.random.default_rng(seed)
    factors = find_factors(graph)
    filled = {weight: draw_weight(shape, rng, is_factor=weight in factors) for weight, shape in shapes.items()}
    shape_inputs = {node.input[0] for node in graph.node if node.op_type == "ConstantOfShape"}
    kept_initializers = [tensor for tensor in graph.initializer if tensor.name not in shape_inputs]
    weights = [*kept_initializers, *(numpy_helper.from_array(array, weight) for weight, array in filled.items())]
    nodes = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    outputs = list(graph.output)
    if nodes[-1].op_type == "Softmax":
        logits = onnx.ValueInfoProto()
        logits.CopyFrom(outputs[-1])
        logits.name = nodes[-1].input[0]
        outputs.insert(0, logits)
    inputs = [value for value in graph.input if value.name not in initializers]
    rebuilt = helper.make_graph(nodes, name, inputs, outputs, weights)
    result = helper.make_model(rebuilt, opset_imports=list(model.opset_import), ir_version=8)
    calibrate_batch_norms(result, seed)
    onnx.checker.check_model(result, full_check=True)
    return result


def find_factors(graph: onnx.GraphProto) -> set[str]:
    """Return the names of the weights multiplying channels: to be drawn around 1, not around 0."""
    factors = {node.input[1] for node in graph.node if node.op_type == "BatchNormalization"}
    multiplied = {name for node in graph.node if node.op_type == "Mul" for name in node.input}
    unsqueezed = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Unsqueeze"}
    return factors | multiplied | {unsqueezed[name] for name in multiplied if name in unsqueezed}


def draw_weight(shape: tuple[int, ...], rng: np.random.Generator, *, is_factor: bool = False) -> Array:
    """Return a weight of a shape: near 1 for a factor, He-scaled with a fan-in, else near 0."""
    if is_factor:
        return rng.normal(1.0, 0.1, shape).astype(np.float32)
    deviation = math.sqrt(2.0 / math.prod(shape[1:])) if len(shape) > 1 else 0.05
    return rng.normal(0.0, deviation, shape).astype(np.float32)


def calibrate_batch_norms(model: onnx.ModelProto, seed: int) -> None:
    """Set mean and variance of every batch normalisation to the statistics of the input on a seeded image.

    A single run is enough: in a copy of the model, each batch normalisation uses the statistics of the image itself.
    """
    normalisations = [node for node in model.graph.node if node.op_type == "BatchNormalization"]
    if not normalisations:
        return
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    del probe.graph.node[:]
    del probe.graph.output[:]
    for node in model.graph.node:
        probe.graph.node.extend(spell_out(node) if node.op_type == "BatchNormalization" else [node])
    names = [f"{node.output[0]}_{part}" for node in normalisations for part in ("mean", "variance")]
    probe.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)
    probe.graph.initializer.append(
        numpy_helper.from_array(np.array(BATCH_NORM_EPSILON, np.float32), "calibration_epsilon")
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # the replaced statistics are unused in the copy
    session = onnxruntime.InferenceSession(probe.SerializeToString(), options, providers=["CPUExecutionProvider"])
    statistics = dict(zip(names, session.run(names, draw_inputs(model, seed)), strict=True))
    for node in normalisations:
        for position, part in ((3, "mean"), (4, "variance")):
            name = f"{node.output[0]}_{part}"
            node.input[position] = name
            model.graph.initializer.append(numpy_helper.from_array(statistics[name].reshape(-1), name))
    used = {name for node in model.graph.node for name in node.input}
    weights = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(weights)


def spell_out(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return a batch normalisation of images by the images' own statistics, as nodes of operator set 9."""
    x, scale, bias, result = node.input[0], node.input[1], node.input[2], node.output[0]
    steps: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("ReduceMean", [x], "mean", {"axes": [0, 2, 3]}),
        ("Sub", [x, f"{result}_mean"], "centred", {}),
        ("Mul", [f"{result}_centred", f"{result}_centred"], "squares", {}),
        ("ReduceMean", [f"{result}_squares"], "variance", {"axes": [0, 2, 3]}),
        ("Add", [f"{result}_variance", "calibration_epsilon"], "raised", {}),
        ("Sqrt", [f"{result}_raised"], "deviation", {}),
        ("Div", [f"{result}_centred", f"{result}_deviation"], "normal", {}),
        ("Unsqueeze", [scale], "scale", {"axes": [1, 2]}),
        ("Unsqueeze", [bias], "bias", {"axes": [1, 2]}),
        ("Mul", [f"{result}_normal", f"{result}_scale"], "scaled", {}),
    ]
    nodes = [helper.make_node(op, inputs, [f"{result}_{part}"], **attrs) for op, inputs, part, attrs in steps]
    return [*nodes, helper.make_node("Add", [f"{result}_scaled", f"{result}_bias"], [result])]


def draw_inputs(model: onnx.ModelProto, seed: int) -> dict[str, Array]:
    """Return seeded inputs by name, for a model of static float32 inputs.

    An image is patches of a single colour each under a little noise. Pure noise is alike everywhere: a network with a
    global average at the end hardly distinguishes two images of noise.
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


def main() -> None:
    """Read the command line, and write the model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", choices=list_light_models())
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the weights (%(default)s)")
    parser.add_argument("-o", "--out", type=Path, required=True, help="model file to write")
    arguments = parser.parse_args()
    onnx.save(load_light_model(arguments.model, arguments.seed), str(arguments.out))


if __name__ == "__main__":
    main()
