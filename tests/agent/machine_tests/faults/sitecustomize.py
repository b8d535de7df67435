"""Breaks a program from outside: Python loads this at its start where PYTHONPATH names the folder, and torch is then not itself.

HANGDOG_TEST_FAULT says what breaks, HANGDOG_TEST_VICTIM in which process: one whose command line holds it.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, union-attr, method-assign"
# What it breaks is untyped.

import importlib.abc
import importlib.util
import os
import signal
import sys
import time
from pathlib import Path


def flip(tensor, at=7, bit=4):
    """Flips one bit of one element in place."""
    import torch

    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    flat = tensor.detach().view(integers[tensor.element_size()]).view(-1)
    flat[at % flat.numel()] ^= 1 << bit


def product(torch, every):
    real, calls = torch.mm, [0]

    def mm(*args, **named):
        made = real(*args, **named)
        calls[0] += 1
        if calls[0] % every == 0:
            flip(made)
        return made

    torch.mm = mm


def faint(torch):
    """The lowest bit of every product whose sums are rounded: within what any check of a sum must allow."""
    real = torch.mm

    def mm(*args, **named):
        made = real(*args, **named)
        if not torch.equal(made, made.round()):
            flip(made, bit=0)
        return made

    torch.mm = mm


def memory(torch):
    real = torch.Tensor.fill_

    def fill_(self, value):
        real(self, value)
        if self.dtype == torch.int64 and self.numel() > 1000:
            flip(self, at=999, bit=40)
        return self

    torch.Tensor.fill_ = fill_


def slow(torch):
    real = torch.mm

    def mm(*args, **named):
        began = time.perf_counter()
        made = real(*args, **named)
        if made.is_cuda:  # what was launched has not been computed yet
            torch.cuda.synchronize()
        until = began + 1.25 * (time.perf_counter() - began)  # 20 % fewer in the same time
        while time.perf_counter() < until:
            pass
        return made

    torch.mm = mm


def endless(torch):
    """The first product never comes to its end: a kernel waits before it, for a word of the host's that is never written."""
    real, kept = torch.mm, []

    def mm(*args, **named):
        if not args[0].is_cuda:
            loop()
        from gpu.trainers.device import Gpu

        kept.append(Gpu())  # its kernel reads a word of it
        kept[0].hang()
        return real(*args, **named)

    torch.mm = mm


def weight(torch):
    real = torch.nn.Module.load_state_dict

    def load_state_dict(self, state, *args, **named):
        loaded = real(self, state, *args, **named)
        flip(sorted(self.named_parameters())[1][1], bit=0)
        return loaded

    torch.nn.Module.load_state_dict = load_state_dict


def gradient(torch, every):
    real, calls = torch.Tensor.backward, [0]

    def backward(self, *args, **named):
        real(self, *args, **named)
        calls[0] += 1
        if calls[0] % every == 0:
            seen, layer = set(), [self.grad_fn]
            while layer:
                node = layer.pop()
                if node is None or node in seen:
                    continue
                seen.add(node)
                if hasattr(node, "variable"):
                    flip(node.variable.grad, bit=0)
                    return
                layer += [each for each, _ in node.next_functions]

    torch.Tensor.backward = backward


def transfer(torch, act):
    """Strikes what is sent to rank 0."""
    real = torch.distributed.batch_isend_irecv

    def batch_isend_irecv(ops):
        for op in ops:
            if op.op is torch.distributed.isend and op.peer == 0:
                act(op)
        return real(ops)

    torch.distributed.batch_isend_irecv = batch_isend_irecv


def damage(op):
    op.tensor = op.tensor.clone()
    flip(op.tensor)


def now(act):
    """What strikes at the first operation, whatever it is."""

    def arm(torch):
        real = torch.set_num_threads

        def set_num_threads(number):
            real(number)
            act()

        torch.set_num_threads = set_num_threads

    return arm


def stopped_in_transfer(op):
    os.kill(os.getpid(), signal.SIGSTOP)


def loop():
    while True:
        pass


def leave_others():
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)


FAULTS = {
    "product": lambda torch: product(torch, 1),
    "rare product": lambda torch: product(torch, 9),
    "faint product": faint,
    "memory": memory,
    "slow": slow,
    "endless product": endless,
    "weight": weight,
    "gradient": lambda torch: gradient(torch, 1),
    "rare gradient": lambda torch: gradient(torch, 3),
    "damaged transfer": lambda torch: transfer(torch, damage),
    "slow transfer": lambda torch: transfer(torch, lambda op: time.sleep(0.1)),
    "stopped in transfer": lambda torch: transfer(torch, stopped_in_transfer),
    "stopped": now(lambda: os.kill(os.getpid(), signal.SIGSTOP)),
    "loops": now(loop),
    "dies": now(lambda: os.kill(os.getpid(), signal.SIGSEGV)),
    "leaves others": now(leave_others),
}


#: What strikes when the program starts: those that never load torch, too.
AT_ONCE = {
    "stopped at once": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "loops at once": loop,
    "dies at once": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "leaves others at once": leave_others,
}


class Breaker(importlib.abc.MetaPathFinder):
    """Lets torch be loaded, and breaks it then."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        real = spec.loader.exec_module

        def exec_module(module):
            real(module)
            FAULTS[os.environ["HANGDOG_TEST_FAULT"]](module)

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("HANGDOG_TEST_FAULT") and os.environ["HANGDOG_TEST_VICTIM"] in Path("/proc/self/cmdline").read_text():
    if os.environ["HANGDOG_TEST_FAULT"] in AT_ONCE:
        AT_ONCE[os.environ["HANGDOG_TEST_FAULT"]]()
    else:
        sys.meta_path.insert(0, Breaker())
