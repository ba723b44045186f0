#!/usr/bin/env python3
"""Plants bugs into the text of the W4A16, W4A4 and W4A8 kernels, one at a time, and demands that its emulated tests fail for each.

usage: mutants.py --source TOP --compiler 'g++ FLAGS...' [--only N] --objects OBJECT... -lLIBRARY...

Only the kernels' own translation units are compiled anew; OBJECT... are all others of simt_test.
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
W4A4 = "lib/kernels/cuda/w4a4_kernel.h"
W4A8 = "lib/kernels/cuda/w4a8_kernel.h"
QUANTIZE = "lib/kernels/cuda/quantize_kernel.h"
TESTS = {W4A4: "W4A4", QUANTIZE: "W4A4", W4A8: "W4A8"}
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
    ("no end of out", KERNEL, "e < 8 && column + e < p.columns", "e < 8"),
    ("another swizzle", KERNEL, "row % 2 * kSwap", "row / 8 % 2 * kSwap"),
    ("the scale of a neighbouring row", KERNEL, "const int slot = 2 * i + pair % 2;", "const int slot = 2 * i;"),
    ("the meta block of the first group", KERNEL, "((chunk + part) >> group_shift)", "(0 * (chunk + part))"),
    ("no fence before the ticket", KERNEL, "  fence_device();\n  sync_block();\n  if (tid == 0)", "  sync_block();\n  if (tid == 0)"),
    ("no barrier before out is read", KERNEL, "  sync_block();\n  const int pieces", "  const int pieces"),
    ("no barrier after the last stage", KERNEL, "cp_async_wait<0>();\n  sync_block();", "cp_async_wait<0>();"),
    ("tickets are not reset", KERNEL, "0u - arrived - 1", "0u"),
    ("a lost sign", UNPACK, "kPlace = 0x81c081c0u", "kPlace = 0x01c081c0u"),
    ("zero points off by one", UNPACK, "kF16 ? 0x64006400u : 0x43004300u);\n}\n\ntemplate", "kF16 ? 0x64016401u : 0x43014301u);\n}\n\ntemplate"),
    ("W4A4: no barrier before a stage is read", W4A4,
     "sync_block();  // this stage is there for all, and all are done with the one filled next", ""),
    ("W4A4: wait_group off by one", W4A4, "cp_async_wait<C::kStages - 2>()", "cp_async_wait<C::kStages - 1>()"),
    ("W4A4: the stage that is read is filled", W4A4, "uint32_t use = 0, fill = (C::kStages - 1) * C::kStageBytes;",
     "uint32_t use = 0, fill = 0;"),
    ("W4A4: no end of the rows", W4A4, "row < left_rows ? row : left_rows", "row"),
    ("W4A4: another swizzle", W4A4, "row / 2 % 4", "row / 4 % 4"),
    ("W4A4: scales of the rows without their exchange", W4A4, "operand_row(lane / 4 + 8 * (lane % 2)) * 16", "(lane / 4 + 8 * (lane % 2)) * 16"),
    ("W4A4: scales of the wrong lane", W4A4, "mma_block_scaled<C, kStep, 1>", "mma_block_scaled<C, kStep, 0>"),
    ("W4A4: scales of the first step", W4A4, "kStep * kScaleTileBytes : 0", "0 * kScaleTileBytes : 0"),
    ("W4A4: bytes of the first step", W4A4, "mma_mxfp4<2 * kStep, kLaneB>", "mma_mxfp4<0, kLaneB>"),
    ("W4A4: no barrier before out is read", W4A4, "  sync_block();\n  store_rows", "  store_rows"),
    ("W4A4: no end of out", W4A4, "e < 8 && column + e < columns", "e < 8"),
    ("W4A4: no end of the tokens of out", W4A4, "    if (row >= rows) break;\n", ""),
    ("W4A4: no barrier after the last stage", W4A4, "cp_async_wait<0>();\n  sync_block();", "cp_async_wait<0>();"),
    ("W4A4: scales of the first chunk", W4A4, "    scales += C::kScaleBytes;", ""),
    ("quantizer: no end of the columns", QUANTIZE, "row < p.m && column < p.k", "row < p.m"),
    ("quantizer: no end of the rows", QUANTIZE, "    if (row < p.m)\n", ""),
    ("quantizer: half a group's magnitude", QUANTIZE, "for (int mask = 1; mask < kLanes; mask *= 2)", "for (int mask = 2; mask < kLanes; mask *= 2)"),
    ("quantizer: scales of zeros are zero", QUANTIZE, "if (code == 0) code = 0x20;", ""),
    ("quantizer: 1.75 does not carry", QUANTIZE, "largest + 0x200000u", "largest"),
    ("quantizer: infinity is rounded", QUANTIZE, "const bool finite = largest < 0x7f800000u;", "const bool finite = largest <= 0x7f800000u;"),
    ("quantizer: words of one pass", QUANTIZE, "if (lane % kRowLanes == pass) mine = scales;", "if (lane % kRowLanes <= pass) mine = scales;"),
    ("W4A8: no barrier before a stage is read", W4A8,
     "sync_block();  // this stage is there for all, and all are done with the one filled next", ""),
    ("W4A8: wait_group off by one", W4A8, "cp_async_wait<C::kStages - 2>()", "cp_async_wait<C::kStages - 1>()"),
    ("W4A8: no end of the tokens", W4A8, "row < left_tokens ? row : left_tokens", "row"),
    ("W4A8: no end of the rows", W4A8, "row < left_rows ? row : left_rows", "row"),
    ("W4A8: another swizzle", W4A8, "(piece ^ row % 8) * 16", "(piece ^ row % 4) * 16"),
    ("W4A8: a wrong entry of the table", W4A8, "kSecond = 0x4c484440u", "kSecond = 0x4c484540u"),
    ("W4A8: signs of the other half", W4A8, "(word << 4 & kSigns)", "(word & kSigns)"),
    ("W4A8: scales of the first rows", W4A8, "row_tile % 2 == 1, sums", "false, sums"),
    ("W4A8: bytes of the first step", W4A8, "mma_mxfp8<kStep, 1>", "mma_mxfp8<0, 1>"),
    ("W4A8: no barrier before out is read", W4A8, "  sync_block();\n  store_rows", "  store_rows"),
    ("W4A8: no barrier after the last stage", W4A8, "cp_async_wait<0>();\n  sync_block();", "cp_async_wait<0>();"),
    ("W4A8: tokens are not scaled", W4A8, "s[0] * scale + bias0", "s[0] + bias0"),
    ("W4A8: scales of zeros are zero", W4A8, "if (scale == 0.0f) scale = 0x1p-23f;", ""),
    ("W4A8: a part of the row's magnitude", W4A8, "for (int mask = 1; mask < 32; mask *= 2)", "for (int mask = 2; mask < 32; mask *= 2)"),
    ("W4A8: no end of the columns", W4A8, "column + 8 <= p.k", "column <= p.k"),
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
             f"-I{source}/tests/simt", *(str(source / f"tests/simt/emulated_{kernel}.cc") for kernel in ("w4a16", "w4a4", "w4a8")), *arguments.objects, "-o", str(program)]
    built = subprocess.run(build, capture_output=True, text=True)
    if built.returncode != 0:
        return f"{what}: does not compile: {built.stderr[:300]}"
    try:
        ran = subprocess.run([program, f"--gtest_filter={TESTS.get(file, 'W4A16')}.*", "--gtest_brief=1"], capture_output=True, text=True, timeout=900)
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
