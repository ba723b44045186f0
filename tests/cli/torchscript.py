"""Reads and rewrites the tensors of TorchScript files without LibTorch: a zip whose data.pkl names
storages that lie in data/."""

import collections
import io
import math
import pickle
import zipfile

SIZES = {"DoubleStorage": 8, "FloatStorage": 4, "HalfStorage": 2, "BFloat16Storage": 2, "LongStorage": 8}
DTYPES = {"DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16",
          "LongStorage": "I64"}

Tensor = collections.namedtuple("Tensor", "dtype shape data")  # row-major bytes


class Module:
    def __setstate__(self, state):
        self.__dict__.update(state)


def read_torchscript(path):
    """{"fc1.weight": Tensor} of every tensor that is an attribute, whatever module it is in."""
    with zipfile.ZipFile(path) as archive:
        top = archive.namelist()[0].split("/")[0]

        def rebuild(storage, offset, shape, strides, *_):
            kind, key = storage[1], storage[2]
            raw = archive.read(f"{top}/data/{key}")
            size = SIZES[kind]
            # Row-major elements of a strided view.
            places = [offset]
            for length, stride in zip(shape, strides):
                places = [place + i * stride for place in places for i in range(length)]
            data = b"".join(raw[size * place : size * (place + 1)] for place in places)
            assert len(data) == size * math.prod(shape)
            return Tensor(DTYPES[kind], list(shape), data)

        class Reader(pickle.Unpickler):
            def find_class(self, module, name):
                if name == "_rebuild_tensor_v2":
                    return rebuild
                if module == "collections":
                    return collections.OrderedDict
                if name.endswith("Storage"):
                    return name
                if module == "torch.jit._pickle":  # build_intlist and the like
                    return lambda data: data
                return type(name, (Module,), {})

            def persistent_load(self, pid):
                return pid

        root = Reader(io.BytesIO(archive.read(f"{top}/data.pkl"))).load()

    tensors = {}

    def walk(value, prefix):
        for name, item in vars(value).items():
            if isinstance(item, Tensor):
                tensors[prefix + name] = item
            elif isinstance(item, Module):
                walk(item, f"{prefix}{name}.")

    walk(root, "")
    return tensors


def rewrite_archive(source, target, change):
    """Copies a TorchScript file, change(name inside, bytes) giving what each part becomes."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            new.writestr(info, change(info.filename.split("/", 1)[1], old.read(info)))
