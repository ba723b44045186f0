#!/usr/bin/env python3
"""Plants bugs into the text of the W4A16 kernel, one at a time, and demands that its emulated tests fail for each.

usage: mutants.py --source TOP --compiler 'g++ FLAGS...' [--only N] --objects OBJECT... -lLIBRARY...

Only the kernel's own translation unit is compiled anew; OBJECT... are all others of simt_test.
"""
import argparse
import concurrent.futures
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

KERNEL = "lib/kernels/cuda/w4a16_kernel.h"
UNPACK = "lib/kernels/cuda/w4a16_unpack.h"
# What is broken, the file, the text, and what it becomes. Each text stands there once.
MUTANTS = [
    ("no barrier before a stage is read", KERNEL,
     "sync_block();  // this stage is there for all, and all are done with the one filled next", ""),
    ("wait_group off by one", KERNEL, "cp_async_wait<C::kStages - 2>()", "cp_async_wait<C::kStages - 1>()"),
    ("the stage that is read is filled", KERNEL, "uint32_t use = 0, fill = (C::kStages - 1) * C::kStageBytes;",
     "uint32_t use = 0, fill = 0;"),
    ("no end of k", KERNEL, "left < 0 ? 0 : left < 16 ? left : 16;", "16;"),
    ("no end of the tokens", KERNEL, "row < left_rows ? row : left_rows", "row"),
    ("no end of the rows of W", KERNEL, "row_block < p.row_blocks ? row_block : p.row_blocks - 1", "row_block"),
    ("no end of out", KERNEL, "if (token >= p.m || column >= p.columns) continue;", "if (token >= p.m) continue;"),
    ("another swizzle", KERNEL, "row % 2 * kSwap", "row / 8 % 2 * kSwap"),
    ("the scale of a neighbouring row", KERNEL, "const int slot = 2 * i + pair % 2;", "const int slot = 2 * i;"),
    ("the meta block of the first group", KERNEL, "((chunk + part) >> group_shift)", "(0 * (chunk + part))"),
    ("no fence before the ticket", KERNEL, "  fence_device();\n  sync_block();\n  if (tid == 0)", "  sync_block();\n  if (tid == 0)"),
    ("no barrier before out is read", KERNEL, "  sync_block();\n  const int pieces", "  const int pieces"),
    ("no barrier after the last stage", KERNEL, "cp_async_wait<0>();\n  sync_block();", "cp_async_wait<0>();"),
    ("tickets are not reset", KERNEL, "0u - arrived - 1", "0u"),
    ("a lost sign", UNPACK, "kPlace = 0x81c081c0u", "kPlace = 0x01c081c0u"),
    ("zero points off by one", UNPACK, "kF16 ? 0x64006400u : 0x43004300u);\n}\n\ntemplate", "kF16 ? 0x64016401u : 0x43014301u);\n}\n\ntemplate"),
]


def try_mutant(arguments, mutant, folder):
    what, file, old, new = mutant
    for path in (pathlib.Path(arguments.source) / "lib/kernels/cuda").rglob("*.h"):
        to = folder / path.relative_to(arguments.source)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    text = (folder / file).read_text()
    if text.count(old) != 1:
        return f"{what}: its text stands {text.count(old)} times in {file}"
    (folder / file).write_text(text.replace(old, new))
    source = pathlib.Path(arguments.source)
    program = folder / "simt_test"
    build = [*shlex.split(arguments.compiler), "-std=c++20", "-O1", "-w", f"-I{folder}/lib", f"-I{source}/lib", f"-I{source}/include",
             f"-I{source}/tests/simt", str(source / "tests/simt/emulated_w4a16.cc"), *arguments.objects, "-o", str(program)]
    built = subprocess.run(build, capture_output=True, text=True)
    if built.returncode != 0:
        return f"{what}: does not compile: {built.stderr[:300]}"
    try:
        ran = subprocess.run([program, "--gtest_filter=W4A16.*", "--gtest_brief=1"], capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        return f"{what}: hangs"
    kinds = sorted({k for k in ("shared-race", "async-race", "global-race", "global-bounds", "shared-uninitialised", "async-unwaited")
                    if k in ran.stdout})
    print(f"{'caught' if ran.returncode else 'MISSED'}: {what} ({', '.join(kinds) or 'values'})", flush=True)
    return None if ran.returncode else f"{what}: not caught"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--only", type=int, action="append")
    parser.add_argument("--objects", nargs="+", required=True)
    arguments, libraries = parser.parse_known_args()
    arguments.objects += libraries
    chosen = [MUTANTS[i] for i in arguments.only] if arguments.only else MUTANTS
    with tempfile.TemporaryDirectory() as top, concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        jobs = []
        for i, mutant in enumerate(chosen):
            folder = pathlib.Path(top) / str(i)
            jobs.append(pool.submit(try_mutant, arguments, mutant, folder))
        problems = [problem for job in jobs if (problem := job.result())]
    for problem in problems:
        print("FAIL " + problem)
    print(f"{len(chosen) - len(problems)} of {len(chosen)} planted bugs caught")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
