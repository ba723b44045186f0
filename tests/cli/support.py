"""Runs the program under test and reads and writes the files it works on; standard library only."""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest

BINARY = os.environ["CURVQ_BIN"]
MODELS = pathlib.Path(__file__).resolve().parent.parent / "data" / "models"


class CliTest(unittest.TestCase):
    """Each test has an empty directory self.dir."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.dir = pathlib.Path(temporary.name)

    def run_curvq(self, *arguments, status=0, env=None, **popen):
        """Runs curvq, checks its exit status and that errors are one line on stderr."""
        popen.setdefault("stdout", subprocess.PIPE)
        result = subprocess.run([BINARY, *map(str, arguments)], stderr=subprocess.PIPE, text=True,
                                env={**os.environ, **(env or {})}, timeout=600, check=False, **popen)
        self.assertEqual(result.returncode, status, f"{arguments}\n{result.stdout}\n{result.stderr}")
        return result

    def run_json(self, *arguments, status=0):
        """The one JSON object that --json prints."""
        text = self.run_curvq(*arguments, "--json", status=status).stdout
        return json.loads(text, parse_constant=lambda name: self.fail(f"{name} in the JSON"))

    def fails(self, *arguments, status, says):
        """Exit status, an empty stdout, and one error line that holds each of `says`."""
        result = self.run_curvq(*arguments, status=status)
        self.assertEqual(result.stdout, "")
        errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(errors), 1, result.stderr)
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(str(text), errors[0])

    def copy_model(self, name, to="model"):
        """A copy of a test model without the files that are not part of it."""
        target = self.dir / to
        extra = shutil.ignore_patterns("logits.safetensors", "wt2_*.safetensors", "README.md")
        shutil.copytree(MODELS / name, target, ignore=extra)
        return target

    def write(self, name, text):
        path = self.dir / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path


def read_safetensors(path):
    """{name: [dtype, shape, bytearray]}."""
    raw = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    data = raw[8 + length :]
    return {
        name: [info["dtype"], info["shape"], bytearray(data[slice(*info["data_offsets"])])]
        for name, info in header.items()
    }


def write_safetensors(path, tensors, metadata=None):
    header, offset = {"__metadata__": metadata or {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    body = b"".join(bytes(data) for _, _, data in tensors.values())
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + body)


def edit_tensors(model, change):
    """Rewrites model.safetensors (or a shard, or a bare file) after change(tensors)."""
    path = model / "model.safetensors" if model.is_dir() else model
    tensors = read_safetensors(path)
    change(tensors)
    write_safetensors(path, tensors)


def edit_json(path, change):
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def to_floats(dtype, data):
    """Values of a plain tensor."""
    data = bytes(data)
    if dtype == "BF16":
        words = struct.unpack(f"<{len(data) // 2}H", data)
        return list(struct.unpack(f"<{len(words)}f", struct.pack(f"<{len(words)}I", *[w << 16 for w in words])))
    code, size = {"F32": ("f", 4), "F16": ("e", 2), "F64": ("d", 8)}[dtype]
    return list(struct.unpack(f"<{len(data) // size}{code}", data))
