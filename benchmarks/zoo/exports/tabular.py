"""Models of tables and texts: scikit-learn's estimators and pipelines, exported by skl2onnx."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import onnx
from skl2onnx import to_onnx
from skl2onnx.common import _container
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, StringTensorType
from sklearn.base import BaseEstimator
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC

from benchmarks.zoo.exports.export import Export, Feeds, Sizes

__all__ = ["EXPORTS"]

Array = npt.NDArray[Any]

_OPSET: Mapping[str, int] = {"": 18, "ai.onnx.ml": 3}
_SIZES = ({"batch": 1}, {"batch": 7}, {"batch": 100})
_FEATURES = 6
_SAMPLES = 150
_TOWNS = ("Köln", "Paris", "Oslo", "New York")
_WORDS = ("red", "green", "apple", "pear", "big", "small", "sweet", "sour", "ripe", "old", "naïve", "2nd")


@dataclass(frozen=True)
class _Estimator:
    """An estimator of scikit-learn.

    Attributes:
        name: the model's name.
        build: return the estimator.
        target: the target of its training: ``"classes"``, ``"pair"`` of classes, ``"names"`` of classes, or
            ``"numbers"``.
        options: the options of the converter, for the estimator.
        dtypes: the dtypes of the inputs to export the model for.
        is_sparse: whether a fifth of the numbers are missing: NaN.
    """

    name: str
    build: Callable[[], Any]
    target: str = "classes"
    options: Mapping[str, object] = field(default_factory=dict)
    dtypes: Sequence[str] = ("float32",)
    is_sparse: bool = False


def _draw_table(dtype: str, is_sparse: bool, rng: np.random.Generator, sizes: Sizes) -> Feeds:
    x = rng.standard_normal((sizes["batch"], _FEATURES)).astype(np.float32).astype(dtype)
    if is_sparse:
        x[rng.random(x.shape) < 0.2] = np.nan
    return {"x": x}


def _target(kind: str, x: Array) -> Array:
    """Return a target of samples ``(N, F)`` that depends on a few features."""
    x = np.nan_to_num(x)
    score = x[:, 0] + 0.5 * x[:, 1] * x[:, 2] - 0.3 * x[:, 3] ** 2
    if kind == "numbers":
        return score + 5  # away from zero, for meaningful relative errors
    if kind == "pair":
        return (score > 0).astype(np.int64)
    classes = np.digitize(score, [-0.7, 0.3])
    return np.array(["low", "middle", "höher"])[classes] if kind == "names" else classes


def _write_table(estimator: _Estimator, dtype: str, path: Path) -> None:
    x = _draw_table(dtype, estimator.is_sparse, np.random.default_rng(0), {"batch": _SAMPLES})["x"]
    type_ = (FloatTensorType if dtype == "float32" else DoubleTensorType)([None, _FEATURES])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = estimator.build().fit(x, _target(estimator.target, x))
        _save(model, [("x", type_)], estimator.options, path)


def _save(
    model: BaseEstimator,
    types: Sequence[tuple[str, Any]],
    options: Mapping[str, object],
    path: Path,
    part_options: Mapping[int, Mapping[str, object]] = MappingProxyType({}),
) -> None:
    """Write the ONNX file of a trained model; no output is a sequence of maps by default.

    Args:
        model: the model.
        types: the names and types of the inputs.
        options: the options of the converter, for the model.
        path: the path of the file.
        part_options: the options for parts of the model, by the identity of the part.
    """
    own_options = dict(options)
    if hasattr(model, "predict_proba") and hasattr(model, "classes_"):
        own_options.setdefault("zipmap", False)
    choices = {**part_options, **({id(model): own_options} if own_options else {})}
    with patch.object(_container, "make_node", _make_node):
        file = to_onnx(model, initial_types=list(types), options=choices, target_opset=_OPSET)
    path.write_bytes(file.SerializeToString())


def _make_node(*args: Any, **attrs: Any) -> onnx.NodeProto:
    """Make a node with integers in place of truth values.

    skl2onnx 1.20 passes a list with ``False`` for trees with missing values, refused by onnx 1.23.
    """
    numbers = {name: _without_bools(value) if isinstance(value, list) else value for name, value in attrs.items()}
    node: onnx.NodeProto = onnx.helper.make_node(*args, **numbers)  # type: ignore[arg-type]
    return node


def _without_bools(items: list[Any]) -> list[Any]:
    return [int(item) if isinstance(item, bool) else item for item in items]


def _forest(kind: Callable[..., Any], **options: object) -> Callable[[], Any]:
    return partial(kind, n_estimators=8, random_state=0, **options)


BOTH = ("float32", "float64")

# The kernels of support vectors are narrow: with wide ones, sums of weights of both signs cancel.
_ESTIMATORS = (
    _Estimator("random-forest", _forest(RandomForestClassifier, max_depth=5), dtypes=BOTH),
    _Estimator("random-forest-names", _forest(RandomForestClassifier, max_depth=5), "names"),
    _Estimator("random-forest-regressor", _forest(RandomForestRegressor, max_depth=5), "numbers"),
    _Estimator("extra-trees", _forest(ExtraTreesClassifier, max_depth=5)),
    _Estimator("ada-boost", _forest(AdaBoostClassifier)),
    _Estimator("bagging", _forest(BaggingClassifier)),
    _Estimator("gradient-boosting", _forest(GradientBoostingClassifier, max_depth=3)),
    _Estimator("gradient-boosting-pair", _forest(GradientBoostingClassifier, max_depth=3), "pair"),
    _Estimator("gradient-boosting-regressor", _forest(GradientBoostingRegressor, max_depth=3), "numbers"),
    _Estimator("hist-gradient-boosting", partial(HistGradientBoostingClassifier, max_iter=8), is_sparse=True),
    _Estimator(
        "hist-gradient-boosting-regressor",
        partial(HistGradientBoostingRegressor, max_iter=8),
        "numbers",
        is_sparse=True,
    ),
    _Estimator("logistic-regression", LogisticRegression, dtypes=BOTH),
    _Estimator("logistic-regression-pair", LogisticRegression, "pair"),
    _Estimator("logistic-regression-names", LogisticRegression, "names"),
    _Estimator("logistic-regression-maps", LogisticRegression, options={"zipmap": True}),
    _Estimator("logistic-regression-maps-names", LogisticRegression, "names", {"zipmap": True}),
    _Estimator("logistic-regression-columns", LogisticRegression, options={"zipmap": "columns"}),
    _Estimator("logistic-regression-ovr", partial(OneVsRestClassifier, LogisticRegression())),
    _Estimator("linear-regression", LinearRegression, "numbers", dtypes=BOTH),
    _Estimator("svm", partial(SVC, gamma=1.0, probability=True, random_state=0)),
    _Estimator("svm-pair", partial(SVC, gamma=1.0), "pair"),
    _Estimator("svm-names", partial(SVC, kernel="poly"), "names"),
    _Estimator("svm-regressor", SVR, "numbers"),
    _Estimator("svm-linear", LinearSVC),
    _Estimator("nearest-neighbours", KNeighborsClassifier, dtypes=BOTH),
    _Estimator("nearest-neighbours-names", partial(KNeighborsClassifier, weights="distance"), "names"),
    _Estimator("nearest-neighbours-regressor", KNeighborsRegressor, "numbers"),
    _Estimator("naive-bayes", GaussianNB),
    _Estimator("kmeans", partial(KMeans, 4, n_init=1, random_state=0), dtypes=BOTH),
    _Estimator("pca", partial(PCA, 3, random_state=0), dtypes=BOTH),
    _Estimator("gaussian-mixture", partial(GaussianMixture, 3, random_state=0)),
    _Estimator("isolation-forest", _forest(IsolationForest, max_samples=32)),
    _Estimator(
        "gaussian-process",
        partial(GaussianProcessRegressor, RBF() + WhiteKernel(), random_state=0),
        "numbers",
        dtypes=("float64",),
    ),
    _Estimator("mlp", partial(MLPClassifier, (16,), max_iter=50, random_state=0), dtypes=BOTH),
    _Estimator("mlp-names", partial(MLPClassifier, (16,), max_iter=50, random_state=0), "names"),
    _Estimator(
        "mlp-regressor", partial(MLPRegressor, hidden_layer_sizes=(16,), max_iter=50, random_state=0), "numbers"
    ),
    _Estimator("calibrated", lambda: CalibratedClassifierCV(LinearSVC(), cv=3)),
    _Estimator("calibrated-isotonic", lambda: CalibratedClassifierCV(GaussianNB(), method="isotonic", cv=3), "pair"),
    _Estimator(
        "voting",
        lambda: VotingClassifier(
            [("a", LogisticRegression()), ("b", GaussianNB())], voting="soft", flatten_transform=False
        ),
    ),
    _Estimator(
        "voting-hard",
        lambda: VotingClassifier(
            [("a", LogisticRegression()), ("b", GaussianNB()), ("c", LinearSVC())],
            voting="hard",
            flatten_transform=False,
        ),
    ),
    _Estimator(
        "stacking",
        lambda: StackingClassifier([("a", LogisticRegression()), ("b", GaussianNB())], LogisticRegression(), cv=3),
    ),
    _Estimator(
        "scaled-polynomials", lambda: make_pipeline(StandardScaler(), PolynomialFeatures(2), LogisticRegression())
    ),
)


# Columns of several types

_COLUMNS = ("age", "income", "town", "size")


def _draw_columns(rng: np.random.Generator, sizes: Sizes) -> Feeds:
    count = sizes["batch"]
    age = rng.uniform(18, 80, (count, 1)).astype(np.float32)
    age[rng.random((count, 1)) < 0.2] = np.nan
    income = rng.lognormal(10, 1, (count, 1)).astype(np.float32)
    town = rng.choice([*_TOWNS, "Nowhere"], (count, 1)).astype(object)
    size = rng.choice(["S", "M", "L"], (count, 1)).astype(object)
    return {"age": age, "income": income, "town": town, "size": size}


def _write_columns(path: Path) -> None:
    columns = _draw_columns(np.random.default_rng(0), {"batch": _SAMPLES})
    columns["town"][columns["town"] == "Nowhere"] = "Oslo"
    table = np.concatenate([columns[name].astype(object) for name in _COLUMNS], axis=1)
    is_old = np.nan_to_num(columns["age"][:, 0], nan=40.0) > 45
    target = is_old.astype(int) + (columns["town"][:, 0] == "Paris")
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    words = OneHotEncoder(handle_unknown="ignore")
    prepare = ColumnTransformer([("numbers", numbers, [0, 1]), ("words", words, [2, 3])])
    model = make_pipeline(prepare, LogisticRegression(max_iter=500)).fit(table, target)
    kinds = (FloatTensorType, FloatTensorType, StringTensorType, StringTensorType)
    _save(model, [(name, kind([None, 1])) for name, kind in zip(_COLUMNS, kinds, strict=True)], {}, path)


# Texts


def _draw_texts(rng: np.random.Generator, sizes: Sizes) -> Feeds:
    texts = [" ".join(rng.choice(_WORDS, rng.integers(1, 9))) for _ in range(sizes["batch"])]
    if len(texts) > 3:
        texts[1:4] = ["", "Unknown words, only: ünknown!", "RED  apple;APPLE"]
    return {"text": np.array(texts, object).reshape(-1, 1)}


def _write_texts(make: Callable[[], BaseEstimator], path: Path) -> None:
    texts = _draw_texts(np.random.default_rng(0), {"batch": _SAMPLES})["text"][:, 0]
    target = np.array([text.count("apple") - text.count("sour") > 0 for text in texts]).astype(int)
    vectorizer = make()
    model = make_pipeline(vectorizer, LogisticRegression()).fit(texts, target)
    # ONNX Runtime lacks skl2onnx's default locale where the system does.
    _save(model, [("text", StringTensorType([None, 1]))], {}, path, {id(vectorizer): {"locale": "C"}})


def _exports(estimator: _Estimator) -> list[Export]:
    return [
        Export(
            f"sklearn-{estimator.name}/{dtype}",
            f"{estimator.name} of scikit-learn, for inputs in {dtype}",
            partial(_write_table, estimator, dtype),
            partial(_draw_table, dtype, estimator.is_sparse),
            _SIZES,
        )
        for dtype in estimator.dtypes
    ]


_TEXTS: Mapping[str, Callable[[], BaseEstimator]] = {
    "tfidf": TfidfVectorizer,
    "tfidf-pairs": partial(TfidfVectorizer, ngram_range=(1, 2), sublinear_tf=True),
    "tfidf-pattern": partial(TfidfVectorizer, token_pattern="[a-zA-Z]+"),
    "counts": CountVectorizer,
    "counts-characters": partial(CountVectorizer, analyzer="char", ngram_range=(1, 2)),
}

EXPORTS = [
    *(export for estimator in _ESTIMATORS for export in _exports(estimator)),
    Export(
        "sklearn-columns",
        "Numbers and words of a table, imputed, scaled, and encoded",
        _write_columns,
        _draw_columns,
        _SIZES,
    ),
    *(
        Export(f"sklearn-text-{name}", "A classifier of texts", partial(_write_texts, make), _draw_texts, _SIZES)
        for name, make in _TEXTS.items()
    ),
]
"""The exports of this module."""
