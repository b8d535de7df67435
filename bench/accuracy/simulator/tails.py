"""The native frames below the Python ones, by what a thread waits for (real-stacks.md section 2, recorded gloo jobs)."""

from functools import cache

from accuracy.simulator.faults.stalls import Stall
from accuracy.simulator.program import Code, Op
from hangdog_models.stack import Frame

_CUDA = "/usr/local/cuda/lib64/libcudart.so.12"
_DRIVER = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
_LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"
_CPU, _GPU, _PYTHON = (
    f"/opt/conda/lib/python3.10/site-packages/torch/lib/libtorch_{part}.so" for part in ("cpu", "cuda", "python")
)
_CPYTHON = "/opt/conda/lib/libpython3.10.so.1.0"

_TAILS = {
    "read": (("at::_ops::_local_scalar_dense::call", _CPU), ("at::native::_local_scalar_dense_cuda", _GPU),
             ("c10::cuda::memcpy_and_sync", _GPU), ("cudaMemcpyAsync", _CUDA), ("0x7f11c0a5b3d2", _DRIVER), ("clock_gettime", "[vdso]")),
    "synchronize": (("THCPModule_cudaSynchronize", _PYTHON), ("c10::cuda::device_synchronize", _GPU), ("cudaDeviceSynchronize", _CUDA),
                    ("0x7f11c0a41e07", _DRIVER), ("sched_yield", _LIBC)),
    "launch": (("at::_ops::mul_Tensor::call", _CPU), ("at::native::gpu_kernel_impl<at::native::BinaryFunctor<float, float, float>>", _GPU),
               ("cudaLaunchKernel", _CUDA), ("0x7f11c0b007aa", _DRIVER), ("sched_yield", _LIBC)),
    "nccl": (("c10d::ops::allreduce_", _CPU), ("c10d::ProcessGroupNCCL::WorkNCCL::wait", _GPU),
             ("c10d::ProcessGroupNCCL::WorkNCCL::synchronizeInternal", _GPU), ("cudaStreamSynchronize", _CUDA), ("0x7f11c0a41e07", _DRIVER)),
    "gloo": (("c10d::ProcessGroupGloo::AsyncWork::wait", _CPU), ("c10d::Work::wait", _CPU), ("std::condition_variable::wait", "/usr/lib/libstdc++.so.6"),
             ("pthread_cond_wait", _LIBC)),
    "gloo p2p": (("c10d::ProcessGroupGloo::RecvWork::wait", _CPU), ("gloo::transport::tcp::UnboundBuffer::waitRecv", _CPU),
                 ("pthread_cond_timedwait", _LIBC)),
    "reducer": (("THPEngine_run_backward", _PYTHON), ("torch::autograd::Engine::execute", _CPU), ("c10d::Reducer::finalize_backward", _CPU),
                ("std::condition_variable::wait", "/usr/lib/libstdc++.so.6"), ("pthread_cond_wait", _LIBC)),
    "backward": (("THPEngine_run_backward", _PYTHON), ("torch::autograd::python::PythonEngine::execute", _PYTHON),
                 ("torch::autograd::Engine::execute", _CPU), ("torch::autograd::ReadyQueue::pop", _CPU), ("pthread_cond_wait", _LIBC)),
    "compute": (("at::_ops::linear::call", _CPU), ("at::native::linear", _CPU)),
    "host": (("_PyEval_EvalFrameDefault", _CPYTHON),),
}  # fmt: skip


@cache
def _frames(name: str) -> tuple[Frame, ...]:
    return tuple(Frame(function, module.rsplit("/", 1)[-1], 0, module) for function, module in _TAILS[name])


@cache
def of_stall(functions: tuple[str, ...]) -> tuple[Frame, ...]:
    """Frames of C below what a host does by itself."""
    return tuple(Frame(function, "", 0, _LIBC if function.startswith("_") else _CPYTHON) for function in functions)


def tail(op: Op, why: str, stall: Stall | None, *, gloo: bool, blocking: bool) -> tuple[Frame, ...]:
    """The frames below the Python ones, outermost first, of a thread that is in `op` for the reason `why`."""
    if stall is not None:
        return of_stall(stall.native)
    backward = op.place.autograd is None and op.place.main[-1].function in ("_engine_run_backward", "custom_backward")
    if gloo and why == "collective":
        return _frames("reducer" if backward else "gloo p2p" if op.handle in ("p2p", "recv") else "gloo")
    if backward and why in ("launch", "collective", "compute"):
        return _frames("backward")  # C++ hooks launch from the autograd thread, which Python does not show
    if why == "device":
        return _frames("synchronize" if op.code is Code.SYNC else "read")
    names = {
        "collective": "nccl",
        "launch": "launch",
        "backward": "backward",
        "compute": "compute",
        "stopped": "compute",
    }
    return _frames(names.get(why, "host"))
