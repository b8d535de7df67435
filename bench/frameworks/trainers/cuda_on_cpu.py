"""Megatron-Core has no CPU mode: what it asks of `torch.cuda` is answered by the CPU. To be imported before it."""

import torch

#: Functions that make tensors; `device="cuda"` is what they are asked for.
FACTORIES = ("arange", "empty", "full", "ones", "rand", "randn", "tensor", "zeros")


def _on_cpu(make):
    def made(*args, **kwargs):
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return make(*args, **kwargs)

    return made


def no_device(*_):
    raise AssertionError("no device")


def redirect() -> None:
    for name in FACTORIES:
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    cuda = torch.cuda
    cuda.current_device = lambda: "cpu"
    cuda.default_generators = {"cpu": torch.default_generator}
    cuda._lazy_call = lambda call, **_: call()
    for name in (
        "_lazy_init",
        "synchronize",
        "empty_cache",
        "set_device",
    ):  # each its own: the compiler wants no two names
        setattr(cuda, name, lambda *_, **__: None)
    cuda.get_device_properties = no_device
    cuda.manual_seed = lambda seed: torch.manual_seed(seed)
    cuda.get_rng_state = cuda.random.get_rng_state = lambda *_, **__: torch.get_rng_state()
    cuda.set_rng_state = cuda.random.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    kind = torch.Tensor.type
    torch.Tensor.type = lambda self, *to, **how: kind(self, *to, **how) if to else "torch.cuda.FloatTensor"
    torch.Tensor.cuda = lambda self, *_, **__: self
    torch.nn.Module.cuda = lambda self, *_, **__: self
