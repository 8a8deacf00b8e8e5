"""Models of PyTorch. The test replaces @SITE@ by the folder of its packages, which are too large to install for a test, and
@GIB@ by a declaration.
"""

import sys

sys.path.append("@SITE@")

import torch
from stokehold import endpoint

GIB = 1 << 30


class Model:
    """Holds a product of matrices on the GPU, and as much memory as it is asked for."""

    def setup(self) -> None:
        self.matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
        self.blocks = []

    def predict(self, gib: int) -> dict:
        while len(self.blocks) < gib:
            self.blocks.append(torch.ones(GIB, device="cuda", dtype=torch.uint8))
        norm = (self.matrix @ self.matrix).float().norm().item()
        return {
            "name": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "reserved_mib": torch.cuda.memory_reserved() >> 20,
            "norm": norm,
        }


Small = endpoint(name="small", vram_gib=4)(type("Small", (Model,), {}))
Left = endpoint(name="left", vram_gib=@GIB@)(type("Left", (Model,), {}))
Right = endpoint(name="right", vram_gib=@GIB@)(type("Right", (Model,), {}))
