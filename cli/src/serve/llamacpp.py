"""Runs llama.cpp's HTTP server, which serves OpenAI's API on 127.0.0.1."""

import argparse
import os
import signal
from pathlib import Path

import xllamacpp


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="file in the folder of the weights")
    parser.add_argument("--name", required=True, help="the model's name in requests")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--parallel", type=int, required=True, help="sequences at once")
    parser.add_argument("--ctx-size", type=int, required=True, help="tokens of all sequences together")
    parser.add_argument("--gpu-layers", type=int, default=-1, help="layers on the GPU; -1 for all")
    parser.add_argument("--lora", help="LoRA adapter for every answer: a file in the folder of the weights")
    options = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = str(Path(os.environ["STOKE_WEIGHTS"], options.model))
    params.model_alias = {options.name}
    params.hostnames = ["127.0.0.1"]
    params.port = options.port
    params.n_parallel = options.parallel
    params.n_ctx = options.ctx_size
    params.n_gpu_layers = options.gpu_layers
    params.endpoint_metrics = True
    # Warnings and errors: info is several lines per request.
    params.verbosity = 2
    if options.lora:
        adapter = str(Path(os.environ["STOKE_WEIGHTS"], options.lora))
        params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(adapter, 1.0)]
    # A sequence that is longer than its share fails, instead of losing its beginning.
    params.ctx_shift = False
    # Returns when the model is loaded; its threads serve until the process is terminated.
    server = xllamacpp.Server(params)
    while server:
        signal.pause()


if __name__ == "__main__":
    main()
