"""One rank of the demo's job, tensor x data x pipeline parallel, of any size and with duties."""

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from hangdog.demo.job.train import MESH, DemoTrainer
from live.trainers.duties import Duties
from live.trainers.outset import begin


class Combined(DemoTrainer, Duties):
    def predict(self, batch: Tensor) -> float:
        losses: list[Tensor] = []
        inputs = (batch[:, :-1].contiguous(),) if self.stage == 0 else ()
        if self.stage == self.stages - 1:
            self.schedule.eval(*inputs, target=batch[:, 1:].contiguous(), losses=losses)
        else:
            self.schedule.eval(*inputs)
        return float(torch.stack(losses).mean()) if losses else 0.0


def main() -> None:
    outset = begin()
    mesh = init_device_mesh("cpu", tuple(outset.sizes[dim] for dim in MESH), mesh_dim_names=MESH)
    Combined(outset.folder, outset.shape, mesh).run(outset.batches)


if __name__ == "__main__":
    main()
