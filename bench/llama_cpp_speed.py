#!/usr/bin/env python3
"""Decoding and prefill of `curvq generate` beside llama.cpp and what `curvq plan --speed` predicts, in processor time.

    PYTHON bench/llama_cpp_speed.py CHECKPOINT [--engines packed-a8,...] [--threads 1] [--rounds 5] [--json FILE]

PYTHON has llama-cpp-python (0.3.36), built natively; on AMX not by GCC 12, whose build stops with an illegal instruction.
CHECKPOINT: INT4 in symmetric groups of 32 (`curvq quantize --scheme int4 --group-size 32`), which `curvq convert` makes a Q4_0
GGUF of without rounding again; embeddings and head stay as they are stored. Rounds of all alternate, the best of each counts.
curvq's time of a token is the difference of the best runs that write many and few tokens, that of a prompt the difference of
runs with a long and a short one, so that loading does not count; llama.cpp is timed around its calls. Both programs have the
same codes and the same head. Each round predicts anew, from limits it measures, and the median of the rounds' ratios counts.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import llama_cpp

TOP = pathlib.Path(__file__).resolve().parents[1]
TEXT = (TOP / "tests/data/wikitext-sentences/calibration.txt").read_text()
PROMPT_TOKENS, FEW, MANY = 512, 8, 136


class LlamaCpp:
    def __init__(self, path, threads):
        self.model = llama_cpp.Llama(str(path), n_ctx=1024, n_batch=PROMPT_TOKENS, n_ubatch=PROMPT_TOKENS, n_threads=threads,
                                     n_threads_batch=threads, logits_all=False, verbose=False)

    def prompt(self):
        ids = self.model.tokenize(TEXT.encode(), add_bos=False)[:PROMPT_TOKENS]
        return ids, self.model.detokenize(ids).decode()

    def prefill(self, ids):
        self.model.reset()
        begin = time.process_time()
        self.model.eval(ids)
        return time.process_time() - begin

    def decode(self, ids):
        self.model.reset()
        self.model.eval(ids[:4])
        begin = time.process_time()
        for _ in range(MANY - FEW):
            self.model.eval([self.model.sample(temp=0.0)])
        return (time.process_time() - begin) / (MANY - FEW)


class Curvq:
    def __init__(self, binary, checkpoint, engine, threads):
        self.words = [binary, "generate", checkpoint, "--engine", engine, "--threads", str(threads), "--ignore-eos", "--json"]
        inputs = engine.removeprefix("packed").removeprefix("-") or "float32"
        self.plan = [binary, "plan", checkpoint, "--speed", "--inputs", inputs, "--threads", str(threads), "--json",
                     "--prompt-tokens", str(PROMPT_TOKENS), "--context-tokens", str((FEW + MANY) // 2)]

    def seconds(self, prompt, tokens):
        """Processor seconds of a run, and the tokens of its prompt."""
        with tempfile.TemporaryFile("w+") as out:
            child = subprocess.Popen([*self.words, "--prompt", prompt, "--max-new-tokens", str(tokens)], stdout=out,
                                     env={**os.environ, "OMP_WAIT_POLICY": "passive"})
            _, status, usage = os.wait4(child.pid, 0)
            if status != 0:
                sys.exit(f"{' '.join(self.words)}: failed")
            out.seek(0)
            return usage.ru_utime + usage.ru_stime, len(json.load(out)["results"]["prompt_ids"])

    def predicted(self):
        """Tokens a second of decoding and of the prompt, on this machine."""
        plan = json.loads(subprocess.run(self.plan, stdout=subprocess.PIPE, check=True).stdout)["results"]["machines"][0]
        return plan["decode_tokens_per_second"], plan["prefill_tokens_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--engines", default="packed,packed-bf16,packed-a15,packed-a8")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--curvq", default=str(TOP / "build/release/bin/curvq"))
    parser.add_argument("--json")
    args = parser.parse_args()
    engines = {name: Curvq(args.curvq, args.checkpoint, name, args.threads) for name in args.engines.split(",")}
    taken, tokens = {}, {}

    def keep(name, what, seconds):
        taken.setdefault(name, {}).setdefault(what, []).append(seconds)

    def chosen(choose, name):
        """Seconds of a token in decoding and in a prompt."""
        runs = {what: choose(seconds) for what, seconds in taken[name].items()}
        if "many" not in runs:
            return {"decode": runs["decode"], "prefill": runs["prefill"] / PROMPT_TOKENS}
        return {"decode": (runs["many"] - runs["few"]) / (MANY - FEW),
                "prefill": (runs["long"] - runs["few"]) / (tokens["long"] - tokens["few"])}

    with tempfile.TemporaryDirectory() as directory:
        gguf = pathlib.Path(directory) / "q4_0.gguf"
        subprocess.run([args.curvq, "convert", args.checkpoint, "--out", gguf, "--layout", "gguf", "--quiet"], check=True)
        peer = LlamaCpp(gguf, args.threads)
        ids, text = peer.prompt()
        for _ in range(args.rounds):
            keep("llama.cpp", "prefill", peer.prefill(ids))
            keep("llama.cpp", "decode", peer.decode(ids))
            for name, engine in engines.items():
                for what, prompt, count in (("few", "The", FEW), ("many", "The", MANY), ("long", text, FEW)):
                    seconds, tokens[what] = engine.seconds(prompt, count)
                    keep(name, what, seconds)
                for what, rate in zip(("predicted decode", "predicted prefill"), engine.predicted()):
                    keep(name, what, 1 / rate)
    theirs, rows = chosen(min, "llama.cpp"), []
    for name in taken:
        row, best = {"name": name}, chosen(min, name)
        for what in ("decode", "prefill"):
            row |= {f"{what}_tokens_per_second": 1 / best[what], f"{what}_ratio": theirs[what] / best[what]}
            if name in engines:
                predicted = taken[name][f"predicted {what}"]
                ratios = [predicted[i] / chosen(lambda seconds: seconds[i], name)[what] for i in range(args.rounds)]
                row |= {f"{what}_over_predicted": statistics.median(ratios), f"{what}_over_predicted_by_round": ratios}
        rows.append(row)
    heads = ("decode, tokens/s", "over llama.cpp", "over predicted", "prefill of 512", "over llama.cpp", "over predicted")
    print(f"{'':12}" + "".join(f"{head:>17}" for head in heads))
    for row in rows:
        print(f"{row['name']:12}" + "".join(
            f"{row[f'{what}_tokens_per_second']:17.1f}{row[f'{what}_ratio']:17.2f}{row.get(f'{what}_over_predicted', 1):17.2f}"
            for what in ("decode", "prefill")))
    if args.json:
        document = {"checkpoint": args.checkpoint, "threads": args.threads, "rounds": args.rounds,
                    "llama_cpp_python": llama_cpp.__version__, "rows": rows}
        pathlib.Path(args.json).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
