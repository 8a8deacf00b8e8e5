"""Starts SGLang, which serves OpenAI's API on 127.0.0.1, with the share of the GPU that is reserved for it."""

import argparse
import os
import sys


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--vram-mib", type=int, required=True, help="memory reserved on each GPU")
    parser.add_argument("--vram-fraction", type=float, required=True, help="the same as a share of the GPU")
    parser.add_argument("--reserved-mib", type=int, required=True, help="memory for all but weights and KV cache")
    options, rest = parser.parse_known_args()
    # SGLang's share is that of weights and KV cache alone. Activations and CUDA graphs come on top.
    total_mib = options.vram_mib / options.vram_fraction
    static = (options.vram_mib - options.reserved_mib) / total_mib
    command = [sys.executable, "-m", "sglang.launch_server", "--model-path", os.environ["STOKE_WEIGHTS"]]
    command += ["--host", "127.0.0.1", "--mem-fraction-static", f"{static:.3f}", *rest]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
