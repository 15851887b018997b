"""Train two networks on scikit-learn's bundled handwritten digits and write both as ONNX models.

    python -m examples.digits.train --out out/digits

writes ``digits_cnn.onnx`` and ``digits_mlp.onnx`` (dynamic batch ``n``), ``heldout.npz`` (images and labels unseen by
training) and ``trainer.json`` (the trainer's own accuracy on these). Plain numpy, a few seconds, no download.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from examples.digits.network import Array, Conv2d, Dense, Flatten, Indices, MaxPool, Network, Relu

SEED = 20
OPSET = 17


def split_digits() -> tuple[Array, Array, Indices, Indices]:
    """Return training images, held-out images, training labels, held-out labels; images are (N, 1, 8, 8) in 0..1."""
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[:, None]
    labels = digits.target.astype(np.int64)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, labels, test_size=0.25, random_state=SEED, stratify=labels
    )
    return train_images, test_images, train_labels, test_labels


def make_cnn(rng: np.random.Generator) -> Network:
    """Return conv-relu-pool, twice, and a dense layer."""
    return Network(
        [Conv2d(1, 16, rng), Relu(), MaxPool(), Conv2d(16, 32, rng), Relu(), MaxPool(), Flatten(), Dense(128, 10, rng)]
    )


def make_mlp(rng: np.random.Generator) -> Network:
    """Return three dense layers over the flattened image."""
    return Network([Flatten(), Dense(64, 128, rng), Relu(), Dense(128, 64, rng), Relu(), Dense(64, 10, rng)])


def train(network: Network, images: Array, labels: Indices, *, num_epochs: int, rng: np.random.Generator) -> float:
    """Train in shuffled batches of 64 with a falling learning rate, and return the last epoch's mean loss."""
    loss = 0.0
    for epoch in range(num_epochs):
        order = rng.permutation(len(images))
        rate = 8e-3 * 0.5 * (1.0 + np.cos(np.pi * epoch / num_epochs))
        batches = np.array_split(order, len(order) // 64)
        loss = float(np.mean([network.train_batch(images[batch], labels[batch], rate) for batch in batches]))
    return loss


def to_onnx(network: Network, name: str) -> onnx.ModelProto:
    """Return an ONNX model with input ``image`` (n, 1, 8, 8) and outputs ``logits`` and ``probabilities`` (n, 10)."""
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    value = "image"

    def add(op_type: str, *inputs: str, **attributes: Any) -> None:
        nonlocal value
        result = f"{op_type.lower()}_{len(nodes)}"
        nodes.append(helper.make_node(op_type, [value, *inputs], [result], name=result, **attributes))
        value = result

    def store(array: Array, kind: str) -> str:
        weights.append(numpy_helper.from_array(array, f"{kind}_{len(nodes)}"))
        return str(weights[-1].name)

    for layer in network.layers:
        match layer:
            case Conv2d():
                add("Conv", store(layer.weight, "weight"), store(layer.parameters[1], "bias"), pads=[1, 1, 1, 1])
            case Dense():
                add("Gemm", store(layer.weight, "weight"), store(layer.parameters[1], "bias"), transB=1)
            case MaxPool():
                add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
            case Flatten():
                add("Flatten", axis=1)
            case Relu():
                add("Relu")
    nodes[-1].output[0] = "logits"
    nodes.append(helper.make_node("Softmax", ["logits"], ["probabilities"], name="softmax", axis=1))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 1, 8, 8])
    outputs = [helper.make_tensor_value_info(out, TensorProto.FLOAT, ["n", 10]) for out in ("logits", "probabilities")]
    graph = helper.make_graph(nodes, name, [image], outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def write_models(out: Path) -> dict[str, float]:
    """Train both networks, write all files into ``out``, and return the trainer's accuracy of each model."""
    out.mkdir(parents=True, exist_ok=True)
    train_images, test_images, train_labels, test_labels = split_digits()
    accuracies = {}
    for name, make, num_epochs in (("digits_cnn", make_cnn, 20), ("digits_mlp", make_mlp, 30)):
        rng = np.random.default_rng(SEED)
        start = time.perf_counter()
        network = make(rng)
        loss = train(network, train_images, train_labels, num_epochs=num_epochs, rng=rng)
        accuracies[name] = float((network.logits(test_images).argmax(axis=1) == test_labels).mean())
        onnx.save(to_onnx(network, name), str(out / f"{name}.onnx"))
        seconds = time.perf_counter() - start
        print(f"{name}: trained in {seconds:.1f} s, loss {loss:.4f}, held-out accuracy {accuracies[name]:.4f}")
    np.savez(out / "heldout.npz", images=test_images, labels=test_labels)
    (out / "trainer.json").write_text(json.dumps(accuracies, indent=2) + "\n", encoding="utf-8")
    return accuracies


def main() -> None:
    """Read the command line and write the models."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/digits"), help="folder to write into (%(default)s)")
    write_models(parser.parse_args().out)


if __name__ == "__main__":
    main()
