#!/usr/bin/env python3
"""Opens what `convert` writes in the programs it is written for, and compares logits, greedy ids and token ids.

    python3 tools/scripts/check_exports.py [--bin build/bin] [--models DIR...] [--keep DIR]

Optional: needs torch, transformers, safetensors and numpy; llama_cpp (llama-cpp-python) for GGUF, which is left out
where it is not installed. Without --models, small random models of every kind are made: gains, shifts and the
constants of tapered norms are all away from their trivial values. One line a check; exit code 1 if one fails.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, ImageGPTForCausalImageModeling

try:
    from llama_cpp import Llama
except ImportError:
    Llama = None

WIDTH, HEADS, LAYERS, CONTEXT = 64, 4, 3, 64
TEXT = "Once upon a time, there was a little girl named Lily. She had 12 red balls; didn't she?\n\nThe end."
TOLERANCE = 2e-4  # of max(1, max |logit|)
# llama.cpp keeps keys and values, and a table of GELU, in f16.
GGUF_TOLERANCE = {"f32": 2e-3, "bf16": 2e-2, "f16": 2e-3}


class Programs:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def run(self, name, *arguments):
        command = [str(self.folder / name), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def logits(self, model, row, scratch):
        """[len(row), V]: the last logits of every beginning of the row."""
        ids = scratch / "ids.json"
        ids.write_text(json.dumps([row[: i + 1] for i in range(len(row))]))
        return np.array(json.loads(self.run("evaluate", "--model", model, "--ids", ids, "--json"))["last_logits"])

    def greedy(self, model, prompt, count):
        ids = ",".join(map(str, prompt))
        return json.loads(self.run("generate", "--model", model, "--ids", ids, "--greedy", "--max-tokens", count, "--json"))["ids"]

    def encode(self, tokenizer, text, scratch):
        file = scratch / "text.txt"
        file.write_text(text)
        return json.loads(self.run("tokenizer", "encode", "--tokenizer", tokenizer, "--input", file))


def config_of(arch, variant, vocab_size):
    is_llama = arch == "llama"
    site = {"baseline": ("plain", "plain"), "internal": ("tapered", "plain"), "all": ("tapered", "tapered")}[variant]
    return {
        "model_type": "taper", "arch": arch, "vocab_size": vocab_size, "context": CONTEXT, "width": WIDTH,
        "layers": LAYERS, "heads": HEADS, "kv_heads": HEADS // 2 if is_llama else HEADS, "head_size": WIDTH // HEADS,
        "mlp_hidden": 96 if is_llama else 4 * WIDTH, "norm": "layer" if arch == "gpt2" else "rms", "eps": 1e-5,
        "block_norms": site[0], "final_norm": site[1], "positions": "rotary" if is_llama else "learned",
        "rope_theta": 10000.0, "activation": "gelu_tanh", "is_gated_mlp": is_llama, "has_bias": arch == "gpt2",
        "has_head_bias": False, "is_tied": True, "attention_scale": 0.0, "gate": 1.0 if variant == "baseline" else 0.0,
        "step": 100,
    }  # fmt: skip


def tensors_of(config, rng):
    tensors = {}

    def add(name, *shape, mean=0.0, deviation=0.1):
        tensors[name] = np.asarray(mean + deviation * rng.standard_normal(shape), dtype=np.float32)

    def norm(name, site):
        for suffix in ("", "_tilde") if site == "tapered" else ("",):
            add(f"{name}.gamma{suffix}", WIDTH, mean=1.0, deviation=0.3)
            if config["norm"] == "layer":
                add(f"{name}.beta{suffix}", WIDTH)
        if site == "tapered":
            add(f"{name}.c", mean=0.8, deviation=0.1)

    def linear(name, rows, columns):
        add(f"{name}.weight", rows, columns)
        if config["has_bias"]:
            add(f"{name}.bias", rows)

    inner, kv = HEADS * config["head_size"], config["kv_heads"] * config["head_size"]
    add("wte.weight", config["vocab_size"], WIDTH, deviation=0.4)
    if config["positions"] == "learned":
        add("wpe.weight", CONTEXT, WIDTH, deviation=0.2)
    for layer in range(LAYERS):
        block = f"h.{layer}."
        norm(block + "norm1", config["block_norms"])
        norm(block + "norm2", config["block_norms"])
        linear(block + "attn.qkv", inner + 2 * kv, WIDTH)
        linear(block + "attn.out", WIDTH, inner)
        for part in ("gate", "up") if config["is_gated_mlp"] else ("up",):
            linear(block + "mlp." + part, config["mlp_hidden"], WIDTH)
        linear(block + "mlp.down", WIDTH, config["mlp_hidden"])
    norm("norm_f", config["final_norm"])
    return tensors


def make_models(programs, folder):
    text = folder / "train.txt"
    text.write_text((TEXT + "\n<|endoftext|>\n") * 20)
    programs.run("tokenizer", "train", "--input", text, "--vocab-size", 300, "--output", folder / "tokenizer")
    vocab_size = len(json.loads((folder / "tokenizer" / "vocab.json").read_text()))
    models = []
    for arch in ("taper", "gpt2", "llama"):
        for variant in ("baseline", "internal", "all"):
            model = folder / f"{arch}-{variant}"
            model.mkdir()
            config = config_of(arch, variant, vocab_size)
            (model / "config.json").write_text(json.dumps(config))
            save_file(tensors_of(config, np.random.default_rng(7)), model / "model.safetensors")
            for file in (folder / "tokenizer").iterdir():
                (model / file.name).write_bytes(file.read_bytes())
            models.append(model)
    return models


class Checker:
    def __init__(self, programs, scratch):
        self.programs, self.scratch, self.failures = programs, scratch, 0

    def report(self, what, form, difference, allowed, same_greedy, same_tokens):
        holds = difference <= allowed and same_greedy and same_tokens
        self.failures += not holds
        verdict = "ok  " if holds else "FAIL"
        print(f"{verdict} {what:34} logits differ by {difference:.2e} of {allowed:.2e} allowed; greedy "
              f"{'equal' if same_greedy else 'DIFFER'}; tokens {'equal' if same_tokens else 'DIFFER'}; {form}", flush=True)  # fmt: skip

    def prepare(self, model):
        vocab_size = json.loads((model / "config.json").read_text())["vocab_size"]
        self.row = np.random.default_rng(3).integers(0, vocab_size, 24).tolist()
        self.want = self.programs.logits(model, self.row, self.scratch)
        self.greedy = self.programs.greedy(model, self.row[:6], 12)
        self.tokens = self.programs.encode(model, TEXT, self.scratch)
        self.greatest = max(1.0, np.abs(self.want).max())

    def convert(self, model, to, name, *options):
        output = self.scratch / name
        said = self.programs.run("convert", "--model", model, "--to", to, "--output", output, "--json", *options)
        return output, json.loads(said)["form"]

    def check_hf(self, model, route):
        name = f"{model.name} hf {route}"
        folder, form = self.convert(model, "hf", name.replace(" ", "-"), "--route", route)
        kind = ImageGPTForCausalImageModeling if route == "imagegpt" else AutoModelForCausalLM
        opened = kind.from_pretrained(folder, dtype=torch.float32, trust_remote_code=True).eval()
        with torch.no_grad():
            got = opened(torch.tensor([self.row])).logits[0].numpy()
            opened.generation_config.eos_token_id = None
            prompt = torch.tensor([self.row[:6]])
            greedy = opened.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=12, pad_token_id=0)  # fmt: skip
        tokens = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)(TEXT)["input_ids"]
        self.report(name, form, np.abs(got - self.want).max(), TOLERANCE * self.greatest,
                    greedy[0, 6:].tolist() == self.greedy, tokens == self.tokens)  # fmt: skip

    def check_gguf(self, model, dtype):
        name = f"{model.name} gguf {dtype}"
        file, form = self.convert(model, "gguf", name.replace(" ", "-") + ".gguf", "--dtype", dtype)
        llama = Llama(str(file), logits_all=True, verbose=False, n_ctx=CONTEXT)
        llama.eval(self.row)
        got = np.array(llama._scores[: len(self.row)])
        llama.reset()
        greedy, ids = [], self.row[:6]
        for _ in range(12):
            llama.eval(ids)
            ids = [int(np.argmax(llama._scores[-1]))]
            greedy += ids
        tokens = llama.tokenize(TEXT.encode(), add_bos=False, special=False)
        # Half the bits may tip a choice.
        same_greedy = greedy == self.greedy if dtype == "f32" else True
        self.report(name, form, np.abs(got - self.want).max(), GGUF_TOLERANCE[dtype] * self.greatest, same_greedy, tokens == self.tokens)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default="build/bin", help="folder of the programs")
    parser.add_argument("--models", nargs="*", type=pathlib.Path, default=[], help="native folders with a tokenizer, instead of random ones")
    parser.add_argument("--keep", type=pathlib.Path, help="where the exports stay")
    options = parser.parse_args()
    programs = Programs(options.bin)
    with tempfile.TemporaryDirectory() as temporary:
        scratch = options.keep or pathlib.Path(temporary)
        scratch.mkdir(parents=True, exist_ok=True)
        checker = Checker(programs, scratch)
        for model in options.models or make_models(programs, scratch):
            checker.prepare(model)
            config = json.loads((model / "config.json").read_text())
            routes = ["automatic", "custom"] + (["imagegpt"] if config["arch"] == "taper" and config["block_norms"] == config["final_norm"] else [])  # fmt: skip
            for route in routes:
                checker.check_hf(model, route)
            has_graph = config["arch"] != "llama" or config["block_norms"] == config["final_norm"]
            for dtype in ("f32", "f16", "bf16") if Llama and has_graph else ():
                checker.check_gguf(model, dtype)
    if Llama is None:
        print("llama_cpp is not installed: GGUF files were not opened")
    print(f"{checker.failures} failed")
    return 1 if checker.failures else 0


if __name__ == "__main__":
    sys.exit(main())
