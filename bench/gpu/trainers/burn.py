"""Multiplies matrices for some seconds: `python -m gpu.trainers.burn cuda:0 SECONDS`. Prints a line when it begins and one with its rate."""

import json
import sys
import time

import torch

#: Products between two looks at the clock.
_TOGETHER = 20


def main() -> None:
    device, seconds = sys.argv[1], float(sys.argv[2])
    on_gpu = device.startswith("cuda")
    torch.set_num_threads(1)
    size, kind = (8192, torch.bfloat16) if on_gpu else (256, torch.float32)
    left = torch.rand(size, size, device=device).to(kind)
    product = left @ left
    print(json.dumps({"begins": time.monotonic()}), flush=True)
    began, products = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        for _ in range(_TOGETHER):
            torch.mm(left, left, out=product)
        if on_gpu:
            torch.cuda.synchronize()
        products += _TOGETHER
    rate = 2 * size**3 * products / (time.monotonic() - began) / 1e12
    print(json.dumps({"TFLOP/s": round(rate, 3)}), flush=True)


if __name__ == "__main__":
    main()
