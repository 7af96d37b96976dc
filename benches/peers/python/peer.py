"""PyTorch and onnxruntime as engines that are compared: a line of JSON in, a line of JSON out.

    peer.py ENGINE FOLDER THREADS

ENGINE is torch, torch-compiled, onnx or onnx-int8; FOLDER has config.json and model.safetensors. onnxruntime has no variable that
lowers its choice of instructions: PEERS_AVX2 names a folder for a copy of it that doesn't find more than AVX2.
"""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import sys
import time
import warnings

engine, folder, threads = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
out = sys.stdout
sys.stdout = sys.stderr  # what libraries print is no answer

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

warnings.filterwarnings("ignore")
torch.set_num_threads(threads)
torch.set_grad_enabled(False)
config = json.loads((folder / "config.json").read_text())
width, heads = config["hidden_size"], config["num_attention_heads"]


class Linear(torch.nn.Module):
    def __init__(self, weights, name):
        super().__init__()
        self.weight = torch.nn.Parameter(weights[name + ".weight"])
        self.bias = torch.nn.Parameter(weights[name + ".bias"])

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


class Norm(Linear):
    def forward(self, x):
        return F.layer_norm(x, (width,), self.weight, self.bias, config["layer_norm_eps"])


class Layer(torch.nn.Module):
    def __init__(self, weights, i):
        super().__init__()
        name = f"encoder.layer.{i}."
        self.q, self.k, self.v = (Linear(weights, f"{name}attention.self.{x}") for x in ("query", "key", "value"))
        self.attended = Linear(weights, name + "attention.output.dense")
        self.attended_norm = Norm(weights, name + "attention.output.LayerNorm")
        self.up = Linear(weights, name + "intermediate.dense")
        self.down = Linear(weights, name + "output.dense")
        self.norm = Norm(weights, name + "output.LayerNorm")

    def forward(self, x):
        split = lambda x: x.unflatten(-1, (heads, width // heads)).transpose(1, 2)
        attended = F.scaled_dot_product_attention(split(self.q(x)), split(self.k(x)), split(self.v(x)))
        x = self.attended_norm(x + self.attended(attended.transpose(1, 2).flatten(2)))
        return self.norm(x + self.down(F.gelu(self.up(x))))


class Encoder(torch.nn.Module):
    def __init__(self, weights):
        super().__init__()
        table = lambda name: torch.nn.Parameter(weights[f"embeddings.{name}_embeddings.weight"])
        self.words, self.places, self.types = table("word"), table("position"), table("token_type")
        self.norm = Norm(weights, "embeddings.LayerNorm")
        self.layers = torch.nn.ModuleList(Layer(weights, i) for i in range(config["num_hidden_layers"]))

    def forward(self, tokens):
        x = F.embedding(tokens, self.words) + self.places[: tokens.shape[1]] + self.types[0]
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x)
        return F.normalize(x.mean(1))


encoder = Encoder(load_file(folder / "model.safetensors")).eval()


# How onnxruntime 1.31 finds instructions beyond those of AVX2, in four functions each, and what doesn't find them.
QUESTIONS = {
    # `test reg, 0x10000`, a jump, and `test al, 0xe0`: whether the processor has AVX-512F, and the system its registers. No bit is tested.
    "AVX-512": (rb"(\xf7[\xc0-\xc7])\x00\x00\x01\x00(\x74.{1,8}\xa8\xe0)", bytes(4)),
    # `mov eax, 7`, `mov ecx, 1`, `cpuid`, `test al, 0x10`: AVX-VNNI, and what is newer. A list of features that is empty is asked for.
    "AVX-VNNI": (rb"(\xb8\x07\x00\x00\x00\xb9)\x01\x00\x00\x00(\x0f\xa2\xa8\x10)", b"\x7f\0\0\0"),
    # `not reg`, and `test reg, 0x60000`: whether the system lacks registers of AMX. All bits are tested, some of which it lacks.
    "AMX": (rb"(\xf7[\xd0-\xd7].?\xf7[\xc0-\xc7])\x00\x00\x06\x00(\x0f\x85)", b"\xff" * 4),
}


def lower(folder):
    """Copies onnxruntime, lets its questions to the processor find nothing beyond AVX2, and has the copy imported."""
    package = pathlib.Path(importlib.util.find_spec("onnxruntime").origin).parent
    copy = folder / "onnxruntime"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(package, copy)
    (library,) = (copy / "capi").glob("onnxruntime_pybind11_state*.so")
    code = library.read_bytes()
    for name, (question, by) in QUESTIONS.items():
        code, found = re.subn(question, lambda found: found[1] + by + found[2], code, flags=re.DOTALL)
        assert found == 4, f"{found} tests for {name}, where 1.31 has 4: is this another version?"
    library.write_bytes(code)
    sys.path.insert(0, str(folder))


def exported(int8):
    """The session of onnxruntime, from a file that is written once."""
    import onnxruntime

    path = folder.parent / f"encoder-{torch.__version__}.onnx"
    if not path.exists():
        dimensions = {0: torch.export.Dim("batch", max=64), 1: torch.export.Dim("tokens", max=512)}
        example = torch.zeros((2, 16), dtype=torch.int64)
        torch.onnx.export(encoder, (example,), path, dynamic_shapes=(dimensions,), dynamo=True, external_data=False)
    if int8:
        from onnxruntime.quantization import quantize_dynamic

        small = path.with_suffix(".int8.onnx")
        if not small.exists():
            quantize_dynamic(path, small)
        path = small
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


if engine in ("torch", "torch-compiled"):
    forward = torch.compile(encoder) if engine == "torch-compiled" else encoder
    embed = lambda sentences: forward(torch.tensor(sentences)).numpy()
else:
    import numpy

    if "PEERS_AVX2" in os.environ:
        lower(pathlib.Path(os.environ["PEERS_AVX2"], engine))
    session = exported(engine == "onnx-int8")
    name = session.get_inputs()[0].name
    embed = lambda sentences: session.run(None, {name: numpy.array(sentences, dtype=numpy.int64)})[0]

for line in sys.stdin:
    request = json.loads(line)
    seconds = []
    for _ in range(request["repeat"]):
        start = time.perf_counter()
        vectors = embed(request["sentences"])
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds, "vectors": vectors.tolist()}), file=out, flush=True)
