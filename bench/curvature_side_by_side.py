#!/usr/bin/env python3
"""Hessian products, top eigenvalues and traces by curvq and by PyTorch's packages, side by side.

    scripts/setup-client .deps/peer bench/peer-requirements.txt
    .deps/peer/bin/python bench/curvature_side_by_side.py tests/data/digits/digits_mlp_script.pt --data tests/data/digits/data.safetensors
    .deps/peer/bin/python bench/curvature_side_by_side.py SmolLM2-135M --data ids.safetensors:eval --num-samples 1 --max-length 129

Everything takes turns, round by round, each program on one thread, and is measured in its own CPU seconds; medians count.
Results are checked: products must agree on a quadratic form, traces within their errors; how far each eigenvalue is off, of one
found to a thousandth of the tolerance, is in its row. A peer's eigenvalue is measured twice: asked for as curvq's is, and with
the cheapest of its settings whose error is below the tolerance, which only hindsight tells. Needs the packages of
peer-requirements.txt. Writes bench/results/curvature-MODEL.json.

Of the peers, PyHessian keeps the graph of one batch, as curvq does where all samples are one chunk; the others make it anew
for each product. Making it is counted for all of them in `eigen` and `trace`.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import time
import warnings
from functools import partial

warnings.filterwarnings("ignore")

import curvlinops  # noqa: E402
import hessian_eigenthings as eigenthings  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from curvature_models import digits, language_model  # noqa: E402
from pyhessian import hessian as PyHessian  # noqa: E402
from pyhessian.utils import hessian_vector_product  # noqa: E402
from scipy.sparse.linalg import LinearOperator, eigsh  # noqa: E402
from side_by_side import machine  # noqa: E402

TOP = pathlib.Path(__file__).resolve().parent.parent
EIGENVALUE_TOLERANCE = 1e-3


class Curvq:
    """`curvq bench WHAT`, which does a round when it is told to."""

    def __init__(self, options, what, rounds, *more):
        command = [options.curvq, "bench", what, options.model, "--data", options.data, "--num-samples", options.num_samples]
        command += ["--rounds", rounds, "--threads", 1, "--json", "--wait", "--progress", "none", *more]
        if pathlib.Path(options.model).is_dir():
            command += ["--max-length", options.max_length]
        self.process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def round(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        for line in self.process.stderr:
            if line == "round\n":
                return
        raise SystemExit(f"curvq ended with status {self.process.wait()}")

    def results(self) -> dict:
        output, errors = self.process.communicate()
        if self.process.returncode != 0:
            raise SystemExit(errors)
        return json.loads(output)["results"]


class Peers:
    """What the packages do for one model, loss and batch."""

    def __init__(self, net, x, y):
        net.eval()
        self.net, self.x, self.y = net, x, y
        self.loss = torch.nn.CrossEntropyLoss()
        self.parameters = list(net.parameters())
        self.size = sum(p.numel() for p in self.parameters)
        generator = torch.Generator().manual_seed(0)
        self.v = [torch.randn(p.shape, generator=generator) for p in self.parameters]
        self.flat = torch.cat([v.flatten() for v in self.v])

    def is_large(self):
        return self.size > 10**7

    def value(self):
        return self.loss(self.net(self.x), self.y)

    def forward(self):
        with torch.no_grad():
            return self.value()

    def gradient(self, create_graph=False):
        return torch.autograd.grad(self.value(), self.parameters, create_graph=create_graph)

    def product(self, gradient, keep):
        return torch.autograd.grad(gradient, self.parameters, self.v, retain_graph=keep)

    def pyhessian(self):
        self.net.zero_grad(set_to_none=True)  # PyHessian adds its gradient to what is there
        return PyHessian(self.net, self.loss, data=(self.x, self.y), cuda=False)

    def curvlinops(self, operator=curvlinops.HessianLinearOperator):
        return operator(
            self.net, self.loss, self.parameters, [(self.x, self.y)], check_deterministic=False, batch_size_fn=lambda x: x.shape[0]
        )

    def eigenthings(self):
        return eigenthings.HessianOperator(self.net, [(self.x, self.y)], eigenthings.supervised_loss(self.loss))

    def eigenthings_ggn(self):
        of_output = eigenthings.supervised_loss_of_output(self.loss)
        return eigenthings.GGNOperator(self.net, [(self.x, self.y)], eigenthings.supervised_forward, of_output)

    # Each of the following gives {name: work}. hvp's return v^T H v where they multiply, the others' take a seed and return a
    # value and the products it took.
    def hvp(self):
        def form(product):
            flat = product if torch.is_tensor(product) else torch.cat([p.flatten() for p in product])
            return (flat @ self.flat).item()

        kept = self.gradient(create_graph=True)  # PyHessian makes the same
        linops, things = self.curvlinops(), self.eigenthings()
        works = {
            "forward": self.forward,
            "gradient": self.gradient,
            "torch, graph kept": lambda: form(self.product(kept, True)),
            "torch, graph rebuilt": lambda: form(self.product(self.gradient(create_graph=True), False)),
            "PyHessian": lambda: form(hessian_vector_product(kept, self.parameters, self.v)),
            "curvlinops": lambda: form(linops @ self.flat),
            "hessian-eigenthings": lambda: form(things.matvec(self.flat)),
        }
        if not self.is_large():  # 15 GB for 135 M parameters
            linops_ggn, things_ggn = self.curvlinops(curvlinops.GGNLinearOperator), self.eigenthings_ggn()
            works["curvlinops, GGN"] = lambda: form(linops_ggn @ self.flat)
            works["hessian-eigenthings, GGN"] = lambda: form(things_ggn.matvec(self.flat))
        return works

    def eigen(self):
        """{name: {setting: work}}, the cheapest setting first; the last is what 1e-3 would be asked for with."""

        def pyhessian(tolerance, seed):
            torch.manual_seed(seed)
            of_batch = self.pyhessian()
            with counted(of_batch) as count:
                values, _ = of_batch.eigenvalues(maxIter=500, tol=tolerance)
            return values[0], count[0]

        def linops(tolerance, seed):
            operator, count = self.curvlinops().to_scipy(), [0]

            def product(v):
                count[0] += 1
                return operator @ v.astype(np.float32)

            matrix = LinearOperator((self.size, self.size), matvec=product, dtype=np.float32)
            start = np.random.default_rng(seed).standard_normal(self.size).astype(np.float32)
            basis = min(20, (2**31 - 1) // self.size)  # more than 2^31 entries in the basis, 20 by default, crash its BLAS
            values = eigsh(matrix, k=1, ncv=basis, which="LM", tol=tolerance, return_eigenvectors=False, v0=start)
            return float(values[0]), count[0]

        def things(steps, seed):
            found = eigenthings.lanczos(self.eigenthings(), k=1, max_iter=steps, tol=EIGENVALUE_TOLERANCE, seed=seed)
            return found.eigenvalues[0].item(), int(found.iterations)

        # A product of a language model takes seconds, and its power iteration hundreds of them where eigenvalues are close.
        tolerances = (1e-3, 1e-4) if self.is_large() else (1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6)
        steps_tried = (4, 8, 12, 20) if self.is_large() else (3, 4, 5, 6, 7, 8, 10, 12, 16, 20)
        return {
            "PyHessian": {f"tol {tol:g}": partial(pyhessian, tol) for tol in tolerances},
            "curvlinops with scipy's eigsh": {"tol 0.001": partial(linops, EIGENVALUE_TOLERANCE)},
            # It takes the steps that it is told, by default 2; 20 are scipy's.
            "hessian-eigenthings": {f"{steps} steps": partial(things, steps) for steps in steps_tried},
        }

    def trace(self, probes):
        def pyhessian(seed):
            torch.manual_seed(seed)
            samples = self.pyhessian().trace(maxIter=probes, tol=0.0)
            return np.mean(samples), probes

        def linops(seed):
            torch.manual_seed(seed)
            return curvlinops.hutchinson_trace(self.curvlinops(), probes).item(), probes

        def things(seed):
            return eigenthings.hutchinson(self.eigenthings(), num_samples=probes, seed=seed).estimate, probes

        return {"PyHessian": pyhessian, "curvlinops": linops, "hessian-eigenthings": things}


class counted:
    """Counts PyHessian's products while it is entered."""

    def __init__(self, _):
        self.module, self.count = sys.modules["pyhessian.hessian"], [0]

    def __enter__(self):
        self.original = self.module.hessian_vector_product

        def product(*arguments):
            self.count[0] += 1
            return self.original(*arguments)

        self.module.hessian_vector_product = product
        return self.count

    def __exit__(self, *_):
        self.module.hessian_vector_product = self.original


def seconds_of(work, times=1):
    begin = time.process_time()
    for _ in range(times):
        result = work()
    return (time.process_time() - begin) / times, result


def take_turns(ours, peers, rounds, times=1, seeded=True, warm=False):
    """CPU seconds and results of each peer, a list of rounds."""
    seconds, results = {name: [] for name in peers}, {name: [] for name in peers}
    for index in range(1 if warm else 0, rounds + 1):
        if index > 0:  # the first warms up; curvq does so by itself
            for program in ours:
                program.round()
        for name, work in peers.items():
            took, result = seconds_of((lambda work=work: work(index)) if seeded else work, times if index > 0 else 1)
            if index > 0:
                seconds[name].append(took)
                results[name].append(result)
    return {name: statistics.median(taken) for name, taken in seconds.items()}, results


def measure_hvp(options, peers):
    ours = Curvq(options, "hvp", options.hvp_rounds)
    works = peers.hvp()
    once = max(1e-6, seconds_of(works["gradient"])[0])
    seconds, forms = take_turns([ours], works, options.hvp_rounds, max(1, round(0.01 / once)), seeded=False)
    truth = forms["torch, graph rebuilt"][0]
    for name in ("torch, graph kept", "PyHessian", "curvlinops", "hessian-eigenthings"):
        assert abs(forms[name][0] - truth) <= 1e-3 * abs(truth), (name, forms[name][0], truth)
    curvq = ours.results()
    for name, key in (("forward", "forward"), ("gradient", "gradient"), ("graph kept", "hvp"), ("graph rebuilt", "hvp_rebuilt"),
                      ("GGN", "ggn")):
        seconds[f"curvq, {name}"] = curvq[f"{key}_seconds"]
    rows = [
        {"what": "hvp", "by": name, "seconds": taken, "over_gradient": taken / seconds["gradient"], "over_forward": taken / seconds["forward"]}
        for name, taken in seconds.items()
    ]
    return rows, {"memory": curvq["memory"], "finite_difference_error": curvq["finite_difference_error"],
                  "own_hvp_over_gradient": curvq["hvp_over_gradient"], "own_hvp_over_forward": curvq["hvp_over_forward"]}


def cheapest(settings, truth, seeds):
    """The first of the settings that is as near to the truth as the tolerance from every seed: what a user with hindsight takes."""
    for name, work in settings.items():
        if all(abs(work(seed)[0] - truth) <= EIGENVALUE_TOLERANCE * abs(truth) for seed in range(1, seeds + 1)):
            return name
    return list(settings)[-1]


def measure_eigen(options, peers):
    settings = {peer: of_peer for peer, of_peer in peers.eigen().items() if peer.split()[0] in options.peers}
    truth, _ = settings["curvlinops with scipy's eigsh"]["tol 0.001"](0)
    works = {}
    for peer, of_peer in settings.items():
        chosen = cheapest(of_peer, truth, options.rounds)
        works[f"{peer}, {chosen}"] = of_peer[chosen]
    if not peers.is_large() and "hessian-eigenthings" in settings:
        works.setdefault("hessian-eigenthings, 20 steps", settings["hessian-eigenthings"]["20 steps"])
    if "PyHessian" in settings:
        works.setdefault("PyHessian, tol 0.001", settings["PyHessian"]["tol 0.001"])
    ours = Curvq(options, "eigen", options.rounds, "--tol", EIGENVALUE_TOLERANCE)
    seconds, results = take_turns([ours], works, options.rounds, warm=True)  # by the search
    curvq = ours.results()
    truth = curvq["value"]
    rows = [{"what": "eigen", "by": "curvq", "seconds": curvq["seconds"], "products": curvq["products"], "error": curvq["largest_error"]}]
    for name, found in results.items():
        errors = [abs(value - truth) / abs(truth) for value, _ in found]
        products = statistics.median(count for _, count in found)
        rows.append({"what": "eigen", "by": name, "seconds": seconds[name], "products": products, "error": max(errors)})
    for row in rows:
        row["over_curvq"] = row["seconds"] / curvq["seconds"]
    return rows, {"eigenvalue": truth}


def measure_trace(options, peers):
    ways = [("curvq", [])]
    if options.deflate > 0:
        ways.append((f"curvq --deflate {options.deflate}", ["--deflate", options.deflate]))
    programs = [Curvq(options, "trace", options.rounds, "--probes", options.probes, *more) for _, more in ways]
    seconds, results = take_turns(programs, peers.trace(options.probes), options.rounds, warm=peers.is_large())
    ours = [program.results() for program in programs]
    curvq = ours[0]
    one_percent = (curvq["stderr"] / (0.01 * curvq["value"])) ** 2  # of `probes`; the peers' probes are of the same distribution
    rows = [
        {"what": "trace", "by": name, "seconds": of["seconds"], "products": of["products"],
         "seconds_to_one_percent": of["seconds_to_one_percent"]}
        for (name, _), of in zip(ways, ours)
    ]
    for name in results:
        rows.append({"what": "trace", "by": name, "seconds": seconds[name], "products": options.probes,
                     "seconds_to_one_percent": seconds[name] * one_percent})
        mean = statistics.mean(float(value) for value, _ in results[name])
        error = curvq["stderr"] / len(results[name]) ** 0.5
        assert abs(mean - curvq["value"]) <= 6 * error, (name, mean, curvq["value"], error)
    for row in rows:
        row["over_curvq"] = row["seconds_to_one_percent"] / min(of["seconds_to_one_percent"] for of in ours)
    return rows, {"trace": curvq["value"], "stderr": curvq["stderr"]}


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--num-samples", type=int, default=0)
    parser.add_argument("--max-length", type=int, default=129)
    parser.add_argument("--rounds", type=int, default=5, help="of eigen and trace")
    parser.add_argument("--hvp-rounds", type=int, default=21)
    parser.add_argument("--probes", type=int, default=30)
    parser.add_argument("--deflate", type=int, default=8, help="vectors of a second way of curvq's; 0: none (they take memory)")
    parser.add_argument("--peers", type=lambda text: text.split(","), default=["PyHessian", "curvlinops", "hessian-eigenthings"],
                        help="of eigen; curvlinops, by scipy, is needed")
    parser.add_argument("--measure", type=lambda text: text.split(","), default=["hvp", "eigen", "trace"])
    parser.add_argument("--curvq", default=TOP / "build/release/bin/curvq")
    parser.add_argument("--out", type=pathlib.Path)
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    torch.set_num_threads(1)
    path = pathlib.Path(options.model)
    load = (options.model, options.data, options.num_samples)
    peers = Peers(*(language_model(*load, options.max_length) if path.is_dir() else digits(*load)))
    result = {
        "model": path.resolve().name,
        "date": datetime.date.today().isoformat(),
        "commit": subprocess.run(["git", "-C", TOP, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip(),
        "machine": machine(),
        "torch": torch.__version__,
        "parameters": peers.size,
        "samples": len(peers.x),
        "rounds": options.rounds,
        "rows": [],
    }
    out = options.out or TOP / f"bench/results/curvature-{path.resolve().stem}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    for what in options.measure:
        measure = {"hvp": measure_hvp, "eigen": measure_eigen, "trace": measure_trace}[what]
        rows, more = measure(options, peers)
        result["rows"] += rows
        result |= more
        for row in rows:
            print(" ".join(f"{key} {value:.4g}," if isinstance(value, float) else f"{value}," for key, value in row.items()), flush=True)
        out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
