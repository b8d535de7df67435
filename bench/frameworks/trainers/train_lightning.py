"""Lightning: its Trainer with strategy `ddp`; without torchrun it starts its other ranks itself."""

import os

import lightning
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader
from user_code import FOLDER, Between, Shards

LENGTH, VOCABULARY = 32, 128


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Embedding(VOCABULARY, 128), nn.Linear(128, 512), nn.GELU(), nn.Linear(512, VOCABULARY)
        )

    def training_step(self, tokens, index):
        return nn.functional.cross_entropy(self.layers(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    def train_dataloader(self):
        return DataLoader(Shards(self.global_rank, 8, LENGTH + 1, VOCABULARY), batch_size=None, num_workers=1)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


class Duties(lightning.Callback):
    def on_train_start(self, trainer, module):
        self.between = Between(
            trainer.global_rank,
            trainer.strategy.barrier,
            lambda value: dist.all_reduce(torch.tensor([value])),
            lambda file: torch.save(module.state_dict(), file),
            evaluate=lambda: module.log("val_loss", torch.tensor(1.0), sync_dist=True),
        )

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if self.between.steps():
            trainer.should_stop = True


def main():
    lightning.seed_everything(1)
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ["FRAMEWORKS_WORLD"]),
        max_epochs=-1,
        callbacks=[Duties()],
        default_root_dir=FOLDER,
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Model())
    trainer.strategy.barrier()


if __name__ == "__main__":
    main()
