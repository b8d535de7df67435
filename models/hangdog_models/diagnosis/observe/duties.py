"""What one rank does for all now and then, as its functions are called: it evaluates, prepares data, saves, reports, or tidies up.

No framework is asked for: people name such functions by what they do, in every framework and in their own code.
"""

import re
from collections.abc import Sequence

from hangdog_models.stack import Frame

#: Words of a function's name that say what it is for. A word that operators bear as well (`index_select`, `log_softmax`) is none.
_WORDS = {
    **dict.fromkeys(("eval", "evaluate", "evaluation", "evaluator", "validate", "validation"), "evaluates"),
    **dict.fromkeys(("predict", "prediction", "benchmark"), "evaluates"),
    **dict.fromkeys(("indexing", "tokenize", "tokenise", "tokenization", "preprocess", "download"), "prepares data"),
    **dict.fromkeys(("save", "checkpoint", "ckpt", "export"), "saves"),
    **dict.fromkeys(("upload", "publish"), "reports"),
    "garbage": "collects garbage",
}
#: What is made once, before training or beside it, where a name says that it is made.
_MADE, _MAKES = {"index", "indices", "dataset", "datasets", "vocab", "cache"}, {"build", "write", "create", "make"}
#: Libraries whose functions are part of every step, whatever they are called.
_PLUMBING = (
    "torch/",
    "numpy/",
    "jax/",
    "jaxlib/",
    "triton/",
    "asyncio/",
    "concurrent/",
    "importlib/",
    "multiprocessing/",
)
#: Libraries that keep what an experiment measures: one rank tells them for all.
_TRACKERS = (
    "torch/utils/tensorboard/",
    "tensorboard/",
    "tensorboardX/",
    "wandb/",
    "mlflow/",
    "aim/",
    "comet_ml/",
    "clearml/",
    "neptune/",
)
TRACKS = "writes down what was measured"
#: What calls the modules of a network, and backward.
_OF_A_STEP = ("torch/nn/modules/module.py", "torch/autograd/", "flax/", "torch/_tensor.py")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def duty(frames: Sequence[Frame]) -> tuple[str, int] | None:
    """What a stack says that its rank does for all, and the index of the outermost function that says so.

    What a module of the network calls is part of a step, whatever its name.
    """
    for at, frame in enumerate(frames):
        if frame.file.startswith(_OF_A_STEP):
            return None
        if frame.file.startswith(_TRACKERS):
            return TRACKS, at
        if frame.native or frame.file.startswith(_PLUMBING):
            continue
        words = [word.lower() for word in _WORD.findall(frame.function)]
        does = next((_WORDS[word] for word in words if word in _WORDS), None)
        if does is None and not (_MADE.isdisjoint(words) or _MAKES.isdisjoint(words)):
            does = "prepares data"
        if does is not None:
            return does, at
    return None
