"""--state and --resume: a run that is killed goes on where it was, and ends with the same bytes."""

import fcntl
import os
import random
import shutil
import signal
import subprocess
import time
import unittest

from support import BINARY, MODELS, CliTest, edit_json, edit_tensors

STORIES = MODELS / "stories260K"
IDS = f"{STORIES / 'wt2_ids_32x256.safetensors'}:calib_ids"
COMMON = ("--calibration", IDS, "--num-samples", "5", "--on-indivisible", "keep", "--threads", "1")
QUANTIZE = ("quantize", STORIES, *COMMON)


class State(CliTest):
    def setUp(self):
        super().setUp()
        self.state = self.dir / "state"

    def kill_after(self, seconds, *arguments):
        """Whether the run was killed: it may have been done before, or refused behind one that was killed as it ended."""
        process = subprocess.Popen([BINARY, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        errors = process.communicate()[1]
        if process.returncode > 0:
            self.assertIn("exists and is not empty", errors)
        return process.returncode < 0

    def kill_with_blocks(self, *arguments):
        """Kills a run as soon as it has finished a block."""
        process = subprocess.Popen([BINARY, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not list(self.state.rglob("stream.safetensors")):
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        self.assertEqual(process.wait(), -signal.SIGKILL)

    def files_of(self, directory):
        """Contents by name; of reports, which hold times, nothing."""
        return {
            path.relative_to(directory): b"" if path.name.endswith("report.json") else path.read_bytes()
            for path in directory.rglob("*") if path.is_file()
        }

    def test_killed_at_twenty_random_moments(self):
        best = (*QUANTIZE, "--preset", "best")
        begin = time.monotonic()
        self.run_curvq(*best, "--out", self.dir / "unbroken")
        whole = time.monotonic() - begin
        broken = (*best, "--out", self.dir / "broken", "--state", self.state, "--resume")
        draw, kills, blocks = random.Random(4), 0, set()

        def check():
            self.assertEqual(self.files_of(self.dir / "broken"), self.files_of(self.dir / "unbroken"))
            self.assertFalse(self.state.exists())
            shutil.rmtree(self.dir / "broken")

        while kills < 20 or (len(blocks) <= 2 and kills < 100):  # more where a busy machine is slower than at first
            if self.kill_after(draw.uniform(0, 0.8 * whole), *broken):
                kills += 1
                blocks.add(len(list(self.state.rglob("block-*"))))
            else:  # it was done before
                check()
        self.assertGreater(len(blocks), 2, "no run went on where one before was")
        if (self.dir / "broken").exists():  # the last one was killed behind its last step
            check()
        self.run_curvq(*broken)
        check()

    def test_every_way_of_compressing_goes_on(self):
        ways = {
            "rtn": (*QUANTIZE, "--method", "rtn"),
            "float": (*QUANTIZE, "--capture", "float", "--scheme", "int4", "--group-size", "32"),
            "prune": ("prune", STORIES, "--pattern", "2:4", "--preset", "best", *COMMON),
            "global": ("prune", STORIES, "--sparsity", "0.5", "--allocation", "global", *COMMON),
            "both": ("prune", STORIES, "--pattern", "2:4", "--scheme", "nvfp4", *COMMON),
        }
        for name, arguments in ways.items():
            with self.subTest(name):
                unbroken, broken = self.dir / f"{name}-unbroken", self.dir / name
                results = self.run_json(*arguments, "--out", unbroken)["results"]
                self.kill_with_blocks(*arguments, "--out", broken, "--state", self.state)
                resumed = self.run_json(*arguments, "--out", broken, "--state", self.state, "--resume")["results"]
                self.assertEqual(self.files_of(broken), self.files_of(unbroken))

                def without_times(value):
                    if isinstance(value, dict):
                        return {key: without_times(of) for key, of in value.items() if "seconds" not in key}
                    return [without_times(of) for of in value] if isinstance(value, list) else value

                self.assertEqual(without_times(resumed), without_times(results))

    def test_another_run_is_refused(self):
        out = ("--out", self.dir / "out", "--state", self.state)
        self.kill_with_blocks(*QUANTIZE, *out)
        before = self.files_of(self.state)
        self.fails(*QUANTIZE, *out, status=2, says=[self.state, "--resume"])
        resume = (*out, "--resume")
        self.fails(*QUANTIZE, *resume, "--scheme", "mxfp4", status=2, says=[self.state, "--scheme", "nvfp4", "mxfp4"])
        self.fails(*QUANTIZE, *resume, "--damping", "0.02", status=2, says=[self.state, "--damping", "0.02"])
        less = [*QUANTIZE, *resume]
        less[less.index("--num-samples") + 1] = "4"
        self.fails(*less, status=2, says=[self.state, "5 windows", "4 windows"])
        other = [*QUANTIZE, *resume]
        other[other.index(IDS)] = IDS.replace("calib_ids", "eval_ids")
        self.fails(*other, status=2, says=[self.state, "calibration"])
        model = self.copy_model("stories260K")

        def change(tensors):
            tensors["model.norm.weight"][2][0] ^= 1

        edit_tensors(model, change)
        self.fails("quantize", model, *COMMON, *resume, status=2, says=[self.state, "model"])
        edit_json(self.state / "run.json", lambda run: run.update(version="0"))
        self.fails(*QUANTIZE, *resume, status=2, says=[self.state, "version", "0"])
        edit_json(self.state / "run.json", lambda run: run.update(version="0.1.0"))
        after = self.files_of(self.state)
        self.assertEqual({name: before[name] for name in before if name.name != "run.json"},
                         {name: after[name] for name in after if name.name != "run.json"})
        more = [*QUANTIZE, *resume]
        more[more.index("--threads") + 1] = "2"
        self.run_curvq(*more)

    def test_bad_states(self):
        out = ("--out", self.dir / "out")
        self.fails(*QUANTIZE, *out, "--resume", status=2, says="--state")
        for both in (("same", "same/."), ("out", "out/state"), ("state/out", "state")):
            paths = [self.dir / name for name in both]
            self.fails(*QUANTIZE, "--out", paths[0], "--state", paths[1], "--overwrite", status=2, says="inside the other")
        self.assertEqual(list(self.dir.rglob("*")), [])
        self.state.mkdir()
        (self.state / "thesis.txt").write_text("mine")
        self.fails(*QUANTIZE, *out, "--state", self.state, status=2, says=[self.state, "other files"])
        (self.state / "thesis.txt").unlink()
        lock = os.open(self.state, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self.fails(*QUANTIZE, *out, "--state", self.state, status=2, says=[self.state, "another process"])
        os.close(lock)
        self.kill_with_blocks(*QUANTIZE, *out, "--state", self.state)
        for name in ("block-0.safetensors", "stream.safetensors", "run.json"):
            whole = (self.state / name).read_bytes()
            for damaged in (whole[: len(whole) // 2], b""):
                (self.state / name).write_bytes(damaged)
                self.fails(*QUANTIZE, *out, "--state", self.state, "--resume", status=3, says=name)
            (self.state / name).write_bytes(whole)
        self.run_curvq(*QUANTIZE, *out, "--state", self.state, "--resume")
        self.fails("quantize", STORIES / "model.safetensors", "--method", "rtn", "--state", self.state, "--out", self.dir / "x",
                   status=2, says="--state")


if __name__ == "__main__":
    unittest.main()
