"""curvq hessian in several processes, each with a part of the samples."""

import json
import os
import signal
import socket
import subprocess
import time
import unittest

from support import BINARY, MODELS, CliTest, read_safetensors, to_floats

CURVATURE = MODELS.parent / "curvature"
WHAT = "trace,diagonal,eigen,density,blocks"


def net(name):
    return [str(CURVATURE / name / "logits.pt"), "--data", str(CURVATURE / name / "data.safetensors")]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


class Processes(CliTest):
    def start(self, rank, size, port, arguments):
        environment = os.environ | {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        return subprocess.Popen([BINARY, "hessian", *arguments, "--threads", "1"], env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run_all(self, size, arguments):
        port = free_port()
        processes = [self.start(rank, size, port, arguments) for rank in range(size)]
        results = [process.communicate(timeout=120) for process in processes]
        for process, (_, errors) in zip(processes, results):
            self.assertEqual(process.returncode, 0, errors)
        for output, _ in results[1:]:
            self.assertEqual(output, "")
        return json.loads(results[0][0])["results"]

    def assert_close(self, ours, truth, where=""):
        if isinstance(truth, dict):
            self.assertEqual(set(ours) - {"processes", "stats"}, set(truth) - {"stats"}, where)
            for key, value in truth.items():
                if key != "stats":
                    self.assert_close(ours[key], value, f"{where}.{key}")
        elif isinstance(truth, list):
            self.assertEqual(len(ours), len(truth), where)
            for i, (x, y) in enumerate(zip(ours, truth)):
                self.assert_close(x, y, f"{where}[{i}]")
        elif isinstance(truth, float) and not where.endswith(("residual", "stderr", "mass_error")):
            self.assertAlmostEqual(ours, truth, delta=1e-6 * max(1, abs(truth)), msg=where)

    def test_several_give_what_one_gives(self):
        for name, size in (("mlp_tanh_ce", 2), ("conv_tanh_ce", 3)):
            with self.subTest(net=name):
                stats = [self.dir / f"{name}-{i}.safetensors" for i in range(2)]
                arguments = [*net(name), "--what", WHAT, "--json", "--tol", "1e-10"]
                one = self.run_json("hessian", *arguments[:-3], "--tol", "1e-10", "--stats", stats[0], "--threads", "1")["results"]
                several = self.run_all(size, [*arguments, "--stats", str(stats[1])])
                self.assertEqual(several["processes"], size)
                self.assert_close(several, one)
                self.assertTrue(stats[1].exists())
        self.assertEqual(sorted(path.suffix for path in self.dir.iterdir()), [".safetensors"] * 4)

    def test_exact_and_other_operators(self):
        for operator in ("ggn", "fisher", "empirical-fisher"):
            arguments = [*net("mlp_tanh_ce"), "--what", "trace,eigen", "--exact", "--operator", operator]
            one = self.run_json("hessian", *arguments, "--threads", "1")["results"]
            several = self.run_all(2, [*arguments, "--json"])
            self.assertAlmostEqual(several["trace"]["value"] / one["trace"]["value"], 1, delta=1e-12)

    def test_kfac_factors(self):
        llama = CURVATURE / "llama_tiny_ce"
        for name, size, arguments in (
            ("mlp", 2, [*net("mlp_tanh_ce"), "--what", "kfac,trace", "--label-draws", "3"]),
            ("conv", 3, [*net("conv_tanh_ce"), "--what", "kfac", "--exact"]),
            ("llama", 2, [str(llama), "--data", str(llama / "data.safetensors"), "--what", "kfac", "--dtype", "float64"]),
        ):
            with self.subTest(name):
                files = [self.dir / f"{name}-{i}.safetensors" for i in range(2)]
                one = self.run_json("hessian", *arguments, "--stats", files[0], "--threads", "1")["results"]
                several = self.run_all(size, [*arguments, "--stats", str(files[1]), "--json"])
                self.assertEqual(several["processes"], size)
                self.assert_close(several, one)
                # The labels are those that one process draws, so that nothing but rounding differs.
                truth, found = map(read_safetensors, files)
                self.assertEqual(set(found), set(truth))
                self.assertIn("kfac", one)
                for tensor, (dtype, shape, data) in truth.items():
                    self.assertEqual(found[tensor][:2], [dtype, shape])
                    expected, values = to_floats(dtype, data), to_floats(dtype, found[tensor][2])
                    scale = max(map(abs, expected))
                    for value, right in zip(values, expected):
                        self.assertAlmostEqual(value, right, delta=1e-12 * scale, msg=tensor)

    def test_one_that_does_not_come(self):
        begin = time.monotonic()
        alone = self.start(0, 2, free_port(), [*net("mlp_tanh_ce"), "--timeout", "3"])
        output, errors = alone.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertEqual((alone.returncode, output), (5, ""), errors)
        self.assertIn("rank 0 of 2", errors)

    def test_one_that_dies_ends_the_others(self):
        port = free_port()
        arguments = [*net("mlp_tanh_ce"), "--what", "trace", "--probes", "10000000", "--timeout", "20"]
        processes = [self.start(rank, 2, port, arguments) for rank in range(2)]
        time.sleep(4)
        self.assertIsNone(processes[0].poll())
        processes[1].send_signal(signal.SIGKILL)
        processes[1].communicate()
        begin = time.monotonic()
        _, errors = processes[0].communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 25)
        self.assertEqual(processes[0].returncode, 5, errors)
        self.assertIn("a process is gone", errors)

    def test_wrong_environment(self):
        for changes, says in (({"RANK": "2"}, "RANK"), ({"RANK": "x"}, "RANK"), ({"MASTER_PORT": ""}, "MASTER_PORT"),
                              ({"WORLD_SIZE": "0"}, "WORLD_SIZE")):
            environment = os.environ | {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"} | changes
            result = subprocess.run([BINARY, "hessian", *net("mlp_tanh_ce")], env=environment, text=True, capture_output=True, timeout=60)
            self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
            self.assertIn(says, result.stderr)
        port = free_port()
        processes = [self.start(rank, 2, port, [*net("softmax_n1"), "--num-samples", "1", "--timeout", "20"]) for rank in range(2)]
        for process in processes:
            _, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 2, errors)
            self.assertIn("fewer than the 2 processes", errors)


if __name__ == "__main__":
    unittest.main()
