"""Which functions say that a rank does something for all."""

import pytest

from hangdog_models.diagnosis.observe.duties import TRACKS, duty
from hangdog_models.stack import Frame


@pytest.mark.parametrize(
    ("function", "does"),
    [
        ("_validate", "evaluates"),
        ("evaluation_loop", "evaluates"),
        ("runEvaluation", "evaluates"),
        ("save_checkpoint", "saves"),
        ("build_index_mapping", "prepares data"),
        ("tokenize_function", "prepares data"),
        ("upload_folder", "reports"),
        ("GarbageCollection.run", "collects garbage"),
        # of operators and of every step
        ("index_select", ""),
        ("log_softmax", ""),
        ("retrieval_step", ""),
        ("medieval", ""),
        ("write_metrics", ""),
        ("get_dataset_batch", ""),
        ("collect_rollouts", ""),
    ],
)
def test_a_function_says_it_by_a_word_of_its_name(function: str, does: str) -> None:
    found = duty([Frame("<module>", "train.py"), Frame(function, "code.py")])
    assert found == ((does, 1) if does else None)


def test_libraries_that_are_part_of_every_step_say_nothing() -> None:
    assert duty([Frame("save", "torch/autograd/function.py"), Frame("evaluate", "libc", module="libc.so")]) is None


@pytest.mark.parametrize(
    "file", ["torch/utils/tensorboard/writer.py", "wandb/sdk/wandb_run.py", "mlflow/tracking/fluent.py"]
)
def test_a_library_that_keeps_measurements_says_so_itself(file: str) -> None:
    assert duty([Frame("train_step", "a.py"), Frame("log", file), Frame("put", "queue.py")]) == (TRACKS, 1)


def test_what_a_module_calls_is_part_of_a_step() -> None:
    module = Frame("_call_impl", "torch/nn/modules/module.py")
    assert duty([Frame("train_step", "a.py"), module, Frame("preprocess", "experts.py")]) is None
    assert duty([Frame("evaluate", "a.py"), module, Frame("forward", "model.py")]) == ("evaluates", 0)


def test_the_outermost_one_counts() -> None:
    stack = [Frame("evaluate", "a.py"), Frame("save_predictions", "a.py")]
    assert duty(stack) == ("evaluates", 0)
