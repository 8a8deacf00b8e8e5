"""Serves model.gguf by llama.cpp's own HTTP server, on the CPU.

Usage: python server.py PORT [embeddings]
"""

import sys
import threading

import xllamacpp

parameters = xllamacpp.CommonParams()
parameters.model.path = "model.gguf"
parameters.model_alias = ["tiny"]
parameters.port = int(sys.argv[1])
parameters.n_parallel = 8
parameters.n_ctx = 8 * 8_192
parameters.cpuparams.n_threads = 1
parameters.warmup = False
parameters.verbosity = 2
parameters.endpoint_metrics = True
if sys.argv[2:] == ["embeddings"]:
    parameters.embedding = True
    parameters.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
server = xllamacpp.Server(parameters)
threading.Event().wait()
