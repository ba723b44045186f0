"""curvq hessian and curvq bench hvp: against exact answers (tests/data/curvature), and how they fail."""

import json
import math
import os
import struct
import subprocess
import unittest

from support import BINARY, MODELS, CliTest, read_safetensors, to_floats, write_safetensors

CURVATURE = MODELS.parent / "curvature"
DIGITS = MODELS.parent / "digits"
NETS = {"conv_tanh_ce": "cross_entropy", "deep_linear_mse": "mse", "mlp_relu_mse": "mse", "mlp_tanh_ce": "cross_entropy",
        "softmax_n1": "cross_entropy"}
OPERATORS = {"hessian": "hessian", "ggn": "ggn", "fisher": "fisher_true", "empirical-fisher": "fisher_emp"}
TOKENS = f"{MODELS / 'stories260K' / 'wt2_ids_32x256.safetensors'}:calib_ids"
MLP = (CURVATURE / "mlp_tanh_ce" / "logits.pt", "--data", CURVATURE / "mlp_tanh_ce" / "data.safetensors")
ONE_THREAD = ("--threads", "1")


def golden(net):
    return json.loads((CURVATURE / net / "golden.json").read_text())


def golden_tensor(net, name):
    dtype, _, data = read_safetensors(CURVATURE / net / "golden.safetensors")[name]
    return to_floats(dtype, data)


class Exact(CliTest):
    def check(self, arguments, net, operator):
        truth = golden(net)["matrices"][OPERATORS[operator]]
        count = min(10, golden(net)["num_params"])
        results = self.run_json("hessian", *arguments, "--operator", operator, "--exact", "--what",
                                "trace,diagonal,eigen,density,blocks", "--per", "tensor", "--top-k", count, *ONE_THREAD)["results"]
        scale = truth["fro"]  # of which rounding is a share
        self.assertEqual(results["trace"]["stderr"], 0)
        self.assertAlmostEqual(results["trace"]["value"], truth["trace"], delta=1e-9 * scale)
        self.assertAlmostEqual(results["frobenius_norm"]["value"], truth["fro"], delta=1e-9 * scale)
        found = [pair["value"] for pair in results["top_eigenvalues"]]
        self.assertEqual(len(found), count)
        for value, expected in zip(found, truth["top10_by_magnitude"]):
            self.assertAlmostEqual(value, expected, delta=1e-9 * scale)
        for value, expected in zip(results["diagonal"]["values"], golden_tensor(net, OPERATORS[operator] + "_diag")):
            self.assertAlmostEqual(value, expected, delta=1e-9 * scale)
        for row, expected in zip(results["blocks"]["frobenius"], truth["block_fro"]):
            for value, norm in zip(row, expected):
                self.assertAlmostEqual(value, norm, delta=1e-9 * scale)
        self.assertAlmostEqual(sum(layer["trace"]["value"] for layer in results["layers"]), truth["trace"], delta=1e-9 * scale)
        return results

    def test_torchscript_nets(self):
        for net, loss in NETS.items():
            for operator in OPERATORS:
                with self.subTest(net=net, operator=operator):
                    results = self.check((CURVATURE / net / "logits.pt", "--data", CURVATURE / net / "data.safetensors", "--loss",
                                          loss), net, operator)
                    self.assertAlmostEqual(results["loss_value"], golden(net)["loss_mean"], places=12)
                    self.assertEqual(results["dtype"], "float64")

    def test_model_directory(self):
        net = CURVATURE / "llama_tiny_ce"
        arguments = (net, "--data", net / "data.safetensors", "--dtype", "float64", "--chunk-size", "3")
        self.check(arguments, "llama_tiny_ce", "hessian")
        self.check((*arguments, "--checkpoint"), "llama_tiny_ce", "ggn")


class Estimates(CliTest):
    def test_trace_eigenvalues_and_density(self):
        truth = golden("mlp_tanh_ce")["matrices"]["hessian"]
        document = self.run_json("hessian", *MLP, "--what", "trace,diagonal,eigen,density,blocks", "--probes", "200", "--top-k", "3",
                                 "--tol", "1e-8", "--seed", "4", *ONE_THREAD)
        results = document["results"]
        self.assertEqual(document["command"], "hessian")
        trace = results["trace"]
        self.assertEqual(trace["probes"], 200)
        self.assertLess(abs(trace["value"] - truth["trace"]), 4 * trace["stderr"])
        self.assertAlmostEqual(trace["stderr"], truth["hutchinson_std_one_probe_rademacher"] / math.sqrt(200), delta=0.3 * trace["stderr"])
        self.assertEqual(len(results["top_eigenvalues"]), 3)
        for pair, expected in zip(results["top_eigenvalues"], truth["top10_by_magnitude"]):
            self.assertTrue(pair["converged"])
            self.assertAlmostEqual(pair["value"], expected, delta=1e-7)
        density = results["density"]
        self.assertAlmostEqual(sum(density["weights"][0]), 1, places=9)
        step = density["at"][1] - density["at"][0]
        self.assertAlmostEqual(sum(density["density"]) * step, 1, delta=0.02)
        self.assertEqual([layer["name"] for layer in results["layers"]], ["fc1", "fc2", "fc3"])
        self.assertEqual(sum(layer["parameters"] for layer in results["layers"]), 224)

    def test_same_seed_same_numbers_and_another_another(self):
        value = lambda seed, *more: self.run_json("hessian", *MLP, "--what", "trace", "--seed", seed, *more,
                                                  *ONE_THREAD)["results"]["trace"]["value"]
        self.assertEqual(value(1), value(1))
        self.assertNotEqual(value(1), value(2))
        self.assertAlmostEqual(value(1), value(1, "--chunk-size", "5"), places=9)

    def test_deflation_makes_errors_smaller(self):
        truth = golden("mlp_tanh_ce")["matrices"]["hessian"]["trace"]
        plain, less = (self.run_json("hessian", *MLP, "--what", "trace", "--deflate", n, *ONE_THREAD)["results"]["trace"] for n in (0, 6))
        self.assertLess(less["stderr"], 0.5 * plain["stderr"])
        self.assertLess(abs(less["value"] - truth), 4 * less["stderr"])

    def test_probes_of_their_own_give_layers_smaller_errors(self):
        run = lambda *more: self.run_json("hessian", *MLP, "--what", "trace", "--probes", "50", *more, *ONE_THREAD)["results"]["layers"]
        shared, own = run(), run("--probe-per-block")
        for ours, others in zip(own, shared):
            self.assertLess(ours["trace"]["stderr"], others["trace"]["stderr"])

    def test_some_parameters(self):
        results = self.run_json("hessian", *MLP, "--what", "trace", "--exact", "--parameters", "fc3.*", "--ignore", "*.bias",
                                "--per", "tensor", *ONE_THREAD)["results"]
        self.assertEqual([layer["name"] for layer in results["layers"]], ["fc3.weight"])
        diagonal = golden_tensor("mlp_tanh_ce", "hessian_diag")[188:220]
        self.assertAlmostEqual(results["trace"]["value"], sum(diagonal), places=10)

    def test_language_model_on_tokens(self):
        results = self.run_json("hessian", MODELS / "stories260K", "--data", TOKENS,
                                "--num-samples", "2", "--max-length", "33", "--what", "trace,eigen", "--operator", "ggn", "--probes",
                                "4", "--top-k", "1", *ONE_THREAD)["results"]
        self.assertEqual(results["loss_terms"], 64)
        self.assertGreater(results["trace"]["value"], results["top_eigenvalues"][0]["value"])
        self.assertEqual(results["parameters"], 260032)

    def test_text_has_a_table_by_layer_and_progress_goes_to_stderr(self):
        result = self.run_curvq("hessian", *MLP, "--progress", "plain", *ONE_THREAD)
        for part in ["trace ", "eigenvalue", "std. error", "fc1", "fc3", "224 parameters"]:
            self.assertIn(part, result.stdout)
        self.assertIn("trace", result.stderr)
        self.assertNotIn("%", result.stdout)


class Memory(CliTest):
    ARGUMENTS = ("hessian", MODELS / "stories260K", "--data", TOKENS, "--max-length",
                 "128", "--num-samples", "16", "--what", "trace", "--probes", "2", *ONE_THREAD)

    def peak(self, *more):
        process = subprocess.Popen([BINARY, *map(str, self.ARGUMENTS), *more], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        self.assertEqual(status, 0)
        return usage.ru_maxrss * 1024

    def test_dry_run_predicts_the_peak(self):
        ggn, fisher = ("--operator", "ggn"), ("--operator", "fisher")
        for more in ((), ("--chunk-size", "4"), ("--checkpoint",), ggn, (*ggn, "--checkpoint"), fisher, (*fisher, "--checkpoint"),
                     ("--deflate", "4")):
            with self.subTest(more):
                memory = self.run_json(*self.ARGUMENTS, *more, "--dry-run")["results"]["memory"]
                self.assertAlmostEqual(self.peak(*more) / memory["total_bytes"], 1, delta=0.2)

    def test_max_memory_makes_chunks_or_gives_up(self):
        memory = self.run_json(*self.ARGUMENTS, "--dry-run")["results"]["memory"]
        half = memory["total_bytes"] - memory["graph_bytes"] // 2
        chunks = self.run_json(*self.ARGUMENTS, "--dry-run", "--max-memory", half)["results"]["memory"]
        self.assertLess(chunks["chunk_size"], 16)
        self.assertLessEqual(chunks["total_bytes"], half)
        self.fails(*self.ARGUMENTS, "--max-memory", "1M", status=5, says=["--max-memory is 1.05 MB", "--checkpoint"])


class Failures(CliTest):
    def test_options(self):
        self.fails("hessian", MLP[0], status=2, says="--data")
        self.fails("hessian", *MLP, "--probes", "1", status=2, says=["--probes", "2"])
        self.fails("hessian", *MLP, "--what", "trace,everything", status=2, says=["everything", "density"])
        self.fails("hessian", *MLP, "--top-k", "225", status=2, says=["--top-k 225", "224"])
        self.fails("hessian", *MLP, "--parameters", "fc9.*", status=2, says=["fc9.*", "fc1.weight"])
        self.fails("hessian", *MLP, "--num-samples", "25", status=2, says=["25", "24 samples"])
        self.fails("hessian", *MLP, "--checkpoint", status=2, says="--checkpoint")
        self.fails("hessian", self.dir / "none.pt", *MLP[1:], status=2, says="none.pt")
        self.fails("hessian", *MLP, "--deflate", "2", "--probe-per-block", status=2, says=["--deflate", "--probe-per-block"])

    def test_files(self):
        self.fails("hessian", self.write("bad.pt", "no zip"), *MLP[1:], status=3, says=["bad.pt", "TorchScript"])
        self.fails("hessian", MLP[0], "--data", self.dir / "none.safetensors", status=5, says="none.safetensors")
        self.fails("hessian", MLP[0], "--data", self.write("text.txt", "words"), status=3, says=["text.txt", "x and y", "model directory"])
        tensors = read_safetensors(MLP[2])
        path = self.dir / "data.safetensors"

        def with_data(change, status, says):
            changed = {name: [dtype, shape, bytearray(data)] for name, (dtype, shape, data) in tensors.items()}
            change(changed)
            write_safetensors(path, changed)
            self.fails("hessian", MLP[0], "--data", path, status=status, says=says)

        with_data(lambda t: t.pop("y"), 3, ["data.safetensors", "y"])
        with_data(lambda t: t["x"][2].__setitem__(slice(8, 16), struct.pack("<d", math.nan)), 4, ["x of the data", "element 1"])
        with_data(lambda t: t["y"][2].__setitem__(slice(0, 8), struct.pack("<q", 4)), 2, ["target 4", "4 classes"])
        with_data(lambda t: t.__setitem__("x", ["F64", [24, 5], bytes(24 * 5 * 8)]), 3, ["logits.pt"])
        with_data(lambda t: t["y"][2].__setitem__(slice(0, 24 * 8), struct.pack("<q", -1) * 24), 2, "every target is ignored")
        with_data(lambda t: t.__setitem__("y", ["I64", [3], bytes(24)]), 2, ["24 inputs", "3 targets"])


class Bench(CliTest):
    def test_default_problem(self):
        results = self.run_json("bench", "hvp", "--rounds", "20", *ONE_THREAD)["results"]
        self.assertEqual((results["parameters"], results["samples"]), (6570, 1437))
        self.assertLess(results["finite_difference_error"], 0.05)
        # Bounds of sanity only: the machine may be busy.
        self.assertGreater(results["hvp_over_gradient"], 0.5)
        self.assertLess(results["hvp_over_gradient"], 4)
        self.assertGreater(results["hvp_rebuilt_over_gradient"], results["hvp_over_gradient"])
        # Memory does not depend on what else runs.
        for ours, by_hand in (("hvp_bytes", "double_backward_bytes"), ("hvp_kept_bytes", "double_backward_kept_bytes")):
            self.assertLess(results["memory"][ours], 1.1 * results["memory"][by_hand])

    def test_estimators(self):
        eigen = self.run_json("bench", "eigen", "--rounds", "2", *ONE_THREAD)["results"]
        self.assertLess(eigen["largest_error"], 1e-3)
        self.assertLess(eigen["products"], 20)
        plain, deflated = (self.run_json("bench", "trace", "--rounds", "2", "--deflate", n, *ONE_THREAD)["results"] for n in (0, 8))
        self.assertEqual((plain["products"], deflated["products"]), (30, 38))
        self.assertLess(abs(plain["value"] - deflated["value"]), 4 * plain["stderr"])
        self.assertLess(deflated["stderr"], plain["stderr"])

    def test_factors(self):
        arguments = ("bench", "factors", MODELS / "stories260K", "--data", TOKENS, "--num-samples", "4", "--rounds", "2", *ONE_THREAD)
        results = self.run_json(*arguments)["results"]
        # By hand: 64 x 64 queries and outputs, 64 x 32 keys and values, 3 x 64 x 172; scores and values of 256 tokens; inputs of
        # 64, 64, 64 and 172.
        forward = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 172 + 2 * 64 * 256)
        self.assertAlmostEqual(results["bound_without_head"], 1 + (3 * 64**2 + 172**2) / forward, places=9)
        self.assertAlmostEqual(results["bound"], 1 + 5 * (3 * 64**2 + 172**2) / (5 * forward + 2 * 64 * 512), places=9)
        self.assertEqual(results["tokens"], 4 * 256)
        self.assertIn("bound by operations", self.run_curvq(*arguments).stdout)

    def test_rounds_in_turns(self):
        process = subprocess.Popen([BINARY, "bench", "eigen", "--rounds", "2", "--wait", "--progress", "none", "--json", *ONE_THREAD],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        output, errors = process.communicate("\n\n", timeout=120)
        self.assertEqual((process.returncode, errors.count("round\n")), (0, 2), errors)
        self.assertEqual(json.loads(output)["results"]["rounds"], 2)
        self.fails("bench", "eigen", "--rounds", "2", "--wait", status=2, says="--wait")

    def test_model_and_data(self):
        text = self.run_curvq("bench", "hvp", DIGITS / "digits_cnn_script.pt", "--data", DIGITS / "data.safetensors", "--num-samples",
                              "50", "--rounds", "20", *ONE_THREAD).stdout
        for part in ["gradients", "H v, graph rebuilt", "38,282", "50 samples"]:
            self.assertIn(part.replace(",", "") if part == "38,282" else part, text)

    def test_usage(self):
        self.fails("bench", "hvq", status=2, says="hvq")
        self.fails("bench", "hvp", "--data", DIGITS / "data.safetensors", status=2, says="MODEL")
        self.fails("bench", "hvp", "--rounds", "3", status=2, says="20")
        self.fails("bench", "factors", status=2, says="model directory")


if __name__ == "__main__":
    unittest.main()
