"""What one rank does for the whole job now and then: evaluate, prepare data, save, report, or collect garbage.

It is read off the names of functions, of any framework: people name such functions by what they do.
"""

import re
from collections.abc import Sequence

from hangdog_models.stack import Frame

#: Words in a function's name that say what it is for. Words that operators have, too (`index_select`, `log_softmax`),
#: are left out.
_WORDS = {
    **dict.fromkeys(("eval", "evaluate", "evaluation", "evaluator", "validate", "validation"), "evaluates"),
    **dict.fromkeys(("predict", "prediction", "benchmark"), "evaluates"),
    **dict.fromkeys(("indexing", "tokenize", "tokenise", "tokenization", "preprocess", "download"), "prepares data"),
    **dict.fromkeys(("save", "checkpoint", "ckpt", "export"), "saves"),
    **dict.fromkeys(("upload", "publish"), "reports"),
    "garbage": "collects garbage",
}
#: What is made once, before training or beside it, and the verbs that say so.
_MADE, _MAKES = {"index", "indices", "dataset", "datasets", "vocab", "cache"}, {"build", "write", "create", "make"}
#: Libraries whose functions are part of every step, whatever their names.
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
#: Libraries of experiment tracking: one rank reports for all.
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
    """What a rank does for the whole job by its stack, and the index of the outermost function that says so; else None.

    A function called by a module of the network is part of a step, whatever its name.
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
