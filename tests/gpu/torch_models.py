"""Models of PyTorch. The test replaces @SITE@ by the folder of its packages, which are too large to install for a test,
and @GIB@ by a declaration.
"""

import faulthandler
import sys
import time

sys.path.append("@SITE@")

import torch
from stokehold import endpoint
from torch.utils.data import DataLoader, TensorDataset

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


def pinned_memory() -> None:
    torch.empty(1 << 28, pin_memory=True).to("cuda", non_blocking=True)
    torch.cuda.synchronize()


def cuda_graph() -> None:
    x = torch.ones(1024, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2
    graph.replay()
    assert y.sum().item() == 2048


def compiled() -> None:
    """Needs a C compiler on PATH."""
    x = torch.randn(1024, 1024, device="cuda")
    expected = torch.nn.functional.gelu(x) * 2
    found = torch.compile(lambda x: torch.nn.functional.gelu(x) * 2)(x)
    assert torch.allclose(found, expected, atol=1e-4)


def transformer() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=512, **sizes)).half().cuda()
    prompt = torch.tensor([[1, 2, 3]], device="cuda")
    answer = model.generate(prompt, max_new_tokens=8, min_new_tokens=8, do_sample=False)
    assert answer.shape == (1, 11)


def loader() -> None:
    """With processes of its own."""
    batches = DataLoader(TensorDataset(torch.arange(64)), batch_size=8, num_workers=2)
    assert sum(len(batch) for (batch,) in batches) == 64


def cupy() -> None:
    """Compiles a kernel when it runs."""
    import cupy

    assert int((cupy.arange(10) * 2).sum()) == 90


@endpoint(name="features", vram_gib=8, timeout_s=300, network=True)
def features() -> dict:
    """What models use besides plain tensors: the error of each, or `ok`. Without `network`, the loader waits for ever at
    L1.
    """
    outcomes = {}
    faulthandler.dump_traceback_later(60)
    for feature in (pinned_memory, cuda_graph, loader, cupy, transformer, compiled):
        started = time.monotonic()
        try:
            feature()
            outcomes[feature.__name__] = "ok"
        except Exception as error:
            outcomes[feature.__name__] = f"{type(error).__name__}: {error}"[:300]
        print(f"{feature.__name__}: {time.monotonic() - started:.1f} s", flush=True)
    faulthandler.cancel_dump_traceback_later()
    return outcomes
