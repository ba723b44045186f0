"""TorchScript files that curvq writes, in the Python of the clients: torch runs them, compressed-tensors reads the packed layers
beside them, and hooks of torch see the inputs that rounding was told of."""

import importlib.util
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationConfig
from compressed_tensors.quantization.lifecycle.forward import dequantize
from safetensors.torch import load_file, save_file

DIGITS = pathlib.Path(__file__).resolve().parents[2] / "tests/data/digits"
SCHEMES = {"nvfp4": [], "mxfp4": [], "int4": ["--group-size", "16"], "int8": [], "fp8": []}
NETS = ("mlp", "cnn")


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = torch.nn.Linear(64, 64), torch.nn.Linear(64, 32), torch.nn.Linear(32, 10)

    def forward(self, x):
        return self.fc3(torch.tanh(self.fc2(torch.tanh(self.fc1(x)))))


class Cnn(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.fc1, self.fc2 = torch.nn.Linear(512, 64), torch.nn.Linear(64, 10)

    def forward(self, x):
        x = torch.relu(self.conv2(torch.relu(self.conv1(x.view(-1, 1, 8, 8)))))
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def unpacked(config, tensors):
    """{layer: weight} of every layer that config.json calls quantized, in float32, by compressed-tensors."""
    weights = {}
    for group in QuantizationConfig.model_validate(config).config_groups.values():
        compressor = BaseCompressor.get_value_from_registry(str(getattr(group.format, "value", group.format)))
        for layer in group.targets:
            local = {name[len(layer) + 1 :]: value for name, value in tensors.items()
                     if name.startswith(layer + ".") and name != layer + ".bias"}
            if group.weights.type == "float" and group.weights.num_bits == 4:
                # What decompress() does, but in float32 instead of bfloat16.
                rows, half = local["weight_packed"].shape
                weights[layer] = dequantize(
                    x_q=unpack_fp4_from_uint8(local["weight_packed"], rows, 2 * half, dtype=torch.float32),
                    scale=compressor._decompress_scale(local["weight_scale"], torch.float32),
                    args=group.weights, global_scale=local.get("weight_global_scale"), dtype=torch.float32)
            else:
                weights[layer] = compressor.decompress(local, group)["weight"]
    return weights


class TorchScript(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        data = load_file(DIGITS / "data.safetensors")
        self.x, self.y = data["x"], data["y"]
        self.seen = 1024
        save_file({"x": self.x[: self.seen].clone()}, self.dir / "seen.safetensors")
        save_file({"x": self.x[self.seen :].clone(), "y": self.y[self.seen :].clone()}, self.dir / "others.safetensors")

    def curvq(self, *arguments):
        command = [os.environ["CURVQ_BIN"], *map(str, arguments), "--json", "--threads", "1"]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["results"]

    def quantize(self, net, scheme, *more):
        return self.curvq("quantize", DIGITS / f"digits_{net}_script.pt", "--out", self.dir / "out", "--overwrite", "--scheme", scheme,
                          *SCHEMES[scheme], "--on-indivisible", "keep", "--calibration", self.dir / "seen.safetensors", *more)

    def test_torch_runs_what_is_written(self):
        for net in NETS:
            original = torch.jit.load(DIGITS / f"digits_{net}_script.pt").eval()
            for scheme in SCHEMES:
                with self.subTest(net=net, scheme=scheme):
                    results = self.quantize(net, scheme)
                    module = torch.jit.load(self.dir / "out" / "model.pt").eval()
                    self.assertEqual(module.code, original.code)
                    x, y = self.x[self.seen :], self.y[self.seen :]
                    with torch.no_grad():
                        log_q, log_p = (torch.log_softmax(m(x).double(), -1) for m in (module, original))
                    found = self.curvq("eval", self.dir / "out" / "model.pt", "--data", self.dir / "others.safetensors", "--reference",
                                       DIGITS / f"digits_{net}_script.pt")
                    # Float32 sums in another order.
                    self.assertAlmostEqual(found["loss_value"], torch.nn.functional.nll_loss(log_q, y).item(), delta=1e-5)
                    self.assertAlmostEqual(found["kl_mean"], (log_p.exp() * (log_p - log_q)).sum(-1).mean().item(), delta=1e-5)
                    self.assertAlmostEqual(found["accuracy"], (log_q.argmax(-1) == y).double().mean().item(), delta=1.5 / len(y))
                    self.check_packed(module, original, results)

    def check_packed(self, module, original, results):
        config = json.loads((self.dir / "out" / "config.json").read_text())
        tensors = load_file(self.dir / "out" / "model.safetensors")
        state, before = module.state_dict(), original.state_dict()
        weights = unpacked(config["quantization_config"], tensors)
        self.assertEqual(set(weights), {layer["name"] for layer in results["layers"]})
        for name, value in state.items():
            layer = name.removesuffix(".weight")
            if layer in weights:
                self.assertTrue(torch.equal(value.flatten(1), weights[layer]), name)
                self.assertEqual(list(value.shape), config["torchscript"]["convolutions"].get(layer, list(value.shape)))
            else:
                self.assertTrue(torch.equal(value, before[name]), name)
                self.assertTrue(torch.equal(value, tensors[name]), name)

    def inputs_of(self, module, layer):
        """[rows, cols] that reach a layer, by a hook."""
        rows = []

        def hook(of_layer, arguments):
            x = arguments[0]
            if isinstance(of_layer, torch.nn.Conv2d):
                x = torch.nn.functional.unfold(x, of_layer.kernel_size, padding=of_layer.padding, stride=of_layer.stride).transpose(1, 2)
            rows.append(x.flatten(0, -2))

        handle = module.get_submodule(layer).register_forward_pre_hook(hook)
        with torch.no_grad():
            module(self.x[: self.seen])
        handle.remove()
        return torch.cat(rows)

    def test_rounding_sees_the_inputs_that_hooks_see(self):
        for net, make in (("mlp", Mlp), ("cnn", Cnn)):
            original = torch.jit.load(DIGITS / f"digits_{net}_script.pt").state_dict()
            for capture in ("float", "sequential"):
                with self.subTest(net=net, capture=capture):
                    results = self.quantize(net, "int4", "--capture", capture)
                    written = torch.jit.load(self.dir / "out" / "model.pt").state_dict()
                    module = make().eval()
                    module.load_state_dict(original)
                    layers, stats = {}, {}
                    for layer in results["layers"]:
                        name = layer["name"] + ".weight"
                        rows = self.inputs_of(module, layer["name"]).double()
                        hessian = 2 / len(rows) * rows.T @ rows
                        before, after = (state[name].flatten(1).double() for state in (original, written))
                        error = before - after
                        expected = torch.trace(error @ hessian @ error.T) / torch.trace(before @ hessian @ before.T)
                        self.assertAlmostEqual(layer["relative_error"] / expected.item(), 1, delta=1e-4)
                        layers[name] = original[name].flatten(1).contiguous()
                        stats[layer["name"] + ".hessian"] = hessian
                        if capture == "sequential":
                            module.get_submodule(layer["name"]).weight.data = written[name]
                    save_file(layers, self.dir / "layers.safetensors")
                    save_file(stats, self.dir / "stats.safetensors")
                    from_bare = self.curvq("quantize", self.dir / "layers.safetensors", "--stats", self.dir / "stats.safetensors",
                                           "--scheme", "int4", "--group-size", "16", "--out", self.dir / "bare.safetensors",
                                           "--overwrite")
                    errors = {layer["name"]: layer["relative_error"] for layer in from_bare["layers"]}
                    ours, bare = load_file(self.dir / "out" / "model.safetensors"), load_file(self.dir / "bare.safetensors")
                    for layer in results["layers"]:
                        name = layer["name"]
                        self.assertTrue(torch.equal(ours[name + ".weight_scale"], bare[name + ".weight_scale"]))
                        # Ties of Hessians that are summed in another order, and what follows them in a row.
                        a, b = (tensors[name + ".weight_packed"].view(torch.uint8) for tensors in (ours, bare))
                        same = torch.stack([(a ^ b) & 15 == 0, (a ^ b) & 240 == 0]).double().mean().item()
                        self.assertGreater(same, 0.99, name)
                        self.assertAlmostEqual(errors[name] / layer["relative_error"], 1, delta=0.01)


class RealModel(unittest.TestCase):
    """silero-vad's: two nets behind a branch, methods beside forward, LSTM cells, a short-time Fourier transform as a convolution."""

    def test_silero_vad(self):
        package = importlib.util.find_spec("silero_vad").submodule_search_locations[0]
        path = pathlib.Path(package) / "data" / "silero_vad.jit"
        original = torch.jit.load(path).eval()
        state = original.state_dict()
        convolutions = {name: module for name, module in original.named_modules() if module.original_name == "Conv1d"}
        self.assertEqual(len(convolutions), 10)
        run = lambda *arguments: json.loads(subprocess.run([os.environ["CURVQ_BIN"], *map(str, arguments), "--json"], check=True,
                                                           capture_output=True, text=True).stdout)["results"]
        inspected = run("inspect", path)
        self.assertEqual({tensor["name"] for tensor in inspected["tensors"]} & set(state), set(state))
        layers = {layer["name"]: layer for layer in inspected["architecture"]["layers"]}
        kept = {name for name, layer in layers.items() if "kept" in layer}
        self.assertEqual(set(layers) - kept, set(convolutions))
        self.assertEqual(kept, {name for name in state if name.endswith("forward_basis_buffer")})
        for name in convolutions:
            self.assertEqual(layers[name]["weight_shape"], list(state[name + ".weight"].shape))
            self.assertEqual(layers[name]["groups"], 1)
        with tempfile.TemporaryDirectory() as folder:
            run("quantize", path, "--out", f"{folder}/out", "--scheme", "int8", "--method", "rtn")
            rounded = torch.jit.load(f"{folder}/out/model.pt").eval()
        after = rounded.state_dict()
        self.assertEqual({name for name in state if not torch.equal(state[name], after[name])},
                         {name + ".weight" for name in convolutions})
        for name in convolutions:
            weight, values = (state_dict[name + ".weight"].flatten(1).double() for state_dict in (state, after))
            step = weight.abs().amax(1, keepdim=True) / 127.5
            # Half a step, and what float32 makes of the scale and of its products.
            self.assertTrue(torch.all((weight - values).abs() <= (0.5 + 127.5 * 2**-23) * step), name)
        with torch.no_grad():
            for rate, length in ((16000, 512), (8000, 256)):
                self.assertTrue(0 <= rounded(torch.sin(torch.arange(length) / 9).view(1, length), rate).item() <= 1)


if __name__ == "__main__":
    unittest.main()
