#!/usr/bin/env python3
"""The bar for the machine code of the W4A16, W4A4 and W4A8 kernels: reads it out of compiled objects and compares it with the
committed figures. Fails on spills, on missing tensor-core instructions, and on more instructions, registers or shared memory
than committed.

usage: sass_bar.py --figures FILE.inc [--write] OBJECT...

--write replaces the figures by what was found. Needs cuobjdump and nvdisasm of any toolkit from 13.0 on (PyPI:
nvidia-cuda-cuobjdump, nvidia-cuda-nvdisasm); without them it says so and exits with 77.
"""
import argparse
import re
import shutil
import subprocess
import sys

SKIPPED = 77
FORMATS = ["nvfp4", "mxfp4", "int4_group32", "int4_group64"]
# Instructions of a warp in one chunk of 32 x 64 NVFP4 weights (few tokens; float16 takes three more a word to unpack), and
# a tensor-core instruction (the largest tile).
MOST_A_DECODE_CHUNK = {"bf16": 190, "f16": 200}
MOST_AN_HMMA = 4.8
# Of the block-scaled kernels (sm_120): a warp's 64 x 64 (W4A8: 64 x 32) outputs by 128 columns are 64 tensor-core instructions, each
# with at most so many around it; two blocks a multiprocessor leave 255 registers.
BLOCK_SCALED = {"w4a4": ("OMMA", 2.6), "w4a8": ("QMMA", 5.1)}
BLOCK_SCALED_MMA, MOST_REGISTERS = 64, 255
# Those that the half-rate integer pipe executes.
INTEGER = {"LOP3", "SHF", "PRMT", "IADD3", "LEA", "ISETP", "IMNMX", "VIMNMX", "VIADD", "SEL", "MOV", "FLO", "POPC", "VIADDMNMX", "IADD"}
BLOCK_SCALED_NAME = re.compile(r"\d(w4a4|w4a8|quantize|quantize_rows)_kernelI(.*)EEv")
NAME = re.compile(r"w4a16_kernel.*W4FormatE(\d)ELb(\d)ELi(\d+)ELi(\d+)ELi(\d+)ELi(\d+)E")


def read_sass(path):
    """{(kernel, architecture): [(address, opcode, full, operands)]} and {...: resources}."""
    def run(*options):
        return subprocess.run(["cuobjdump", *options, path], check=True, capture_output=True, text=True).stdout

    code, resources = {}, {}
    architecture = current = None
    for line in run("-sass").splitlines():
        if match := re.search(r"arch = sm_(\w+)", line):
            architecture = match[1]
        elif match := re.search(r"Function : (\S+)", line):
            current = code.setdefault((match[1], architecture), [])
        elif current is not None and (match := re.match(
                r"\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_]+)((?:\.[A-Za-z0-9_]+)*)(.*?);", line)):
            current.append((int(match[1], 16), match[2], match[2] + match[3], match[4]))
    for line in run("-res-usage").splitlines():
        if match := re.search(r"arch = sm_(\w+)", line):
            architecture = match[1]
        elif match := re.search(r"Function (\S+?):", line):
            current = (match[1], architecture)
        elif "REG:" in line:
            resources[current] = {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", line)}
    return code, resources


def main_loop(instructions, tensor_core="HMMA"):
    """The shortest backward branch's body that holds the most tensor-core instructions."""
    best = []
    for address, opcode, _, operands in instructions:
        target = re.search(r"0x([0-9a-f]+)", operands)
        if opcode != "BRA" or target is None or int(target[1], 16) >= address:
            continue
        body = [i for i in instructions if int(target[1], 16) <= i[0] <= address]
        count = lambda b: sum(i[1] == tensor_core for i in b)
        if count(body) > count(best) or (count(body) == count(best) > 0 and len(body) < len(best)):
            best = body
    return best


def spills_of(label, instructions, used):
    spills = sum(i[1] in ("LDL", "STL") for i in instructions)
    if spills or used.get("STACK", 0) or used.get("LOCAL", 0):
        return [f"{label}: spills: {spills} local loads and stores, stack {used.get('STACK')}"]
    return []


def block_scaled_problems(code, resources):
    """What is wrong with the W4A4 and W4A8 kernels and their quantizers, and how many there are."""
    problems, found = [], 0
    for (name, architecture), instructions in code.items():
        match = BLOCK_SCALED_NAME.search(name)
        if match is None:
            continue
        found += 1
        used = resources[(name, architecture)]
        label = f"{match[1]} {match[2]} {architecture}"
        problems += spills_of(label, instructions, used)
        if match[1] not in BLOCK_SCALED or not architecture.startswith("120"):
            continue  # elsewhere the products stop at once
        opcode, most = BLOCK_SCALED[match[1]]
        body = main_loop(instructions, opcode)
        mma = sum(i[1] == opcode for i in body)
        total = sum(i[1] != "NOP" for i in body)
        if mma != BLOCK_SCALED_MMA:
            problems.append(f"{label}: {mma} {opcode} in the main loop, {BLOCK_SCALED_MMA} wanted")
        elif total / mma > most:
            problems.append(f"{label}: {total / mma:.2f} instructions an {opcode}, at most {most} are allowed")
        if used["REG"] > MOST_REGISTERS:
            problems.append(f"{label}: {used['REG']} registers, at most {MOST_REGISTERS} are allowed")
        if not any(i[2].startswith("LDGSTS.E.BYPASS.128") for i in body):
            problems.append(f"{label}: no asynchronous 16-byte copies in the main loop")
    return problems, found


def figures_of(path):
    """Rows {(format, type, tokens, architecture): figures}, what is wrong whatever the figures say, and kernels without figures."""
    rows = {}
    code, resources = read_sass(path)
    problems, others = block_scaled_problems(code, resources)
    for (name, architecture), instructions in code.items():
        match = NAME.search(name)
        if match is None:
            continue
        kind, f16, tiles, stage_chunks, _, _ = map(int, match.groups())
        key = (FORMATS[kind], "f16" if f16 else "bf16", 8 * tiles, architecture)
        used = resources[(name, architecture)]
        body = main_loop(instructions)
        hmma = sum(i[1] == "HMMA" for i in body)
        total = sum(i[1] != "NOP" for i in body)
        label = " ".join(map(str, key))
        problems += spills_of(label, instructions, used)
        if hmma != 8 * tiles * stage_chunks:
            problems.append(f"{label}: {hmma} HMMA in the main loop, {8 * tiles * stage_chunks} wanted")
        if not any(i[2].startswith("LDGSTS.E.BYPASS.128") for i in body):
            problems.append(f"{label}: no asynchronous 16-byte copies in the main loop")
        per_chunk = total / stage_chunks
        if key[0] == "nvfp4" and tiles <= 2 and per_chunk > MOST_A_DECODE_CHUNK[key[1]]:
            problems.append(f"{label}: {per_chunk} instructions a chunk, at most {MOST_A_DECODE_CHUNK[key[1]]} are allowed")
        if tiles == 12 and hmma and total / hmma > MOST_AN_HMMA:
            problems.append(f"{label}: {total / hmma:.2f} instructions an HMMA, at most {MOST_AN_HMMA} are allowed")
        integer = sum(i[1] in INTEGER for i in body)
        rows[key] = (stage_chunks, total, integer, hmma, used["REG"])
    return rows, problems, others


def read_figures(path):
    rows = {}
    for line in open(path):
        if match := re.match(r"CURVQ_W4A16_FIGURE\((.*)\)", line):
            fields = [field.strip().strip('"') for field in match[1].split(",")]
            rows[(fields[0], fields[1], int(fields[2]), fields[3])] = tuple(map(int, fields[4:]))
    return rows


def write_figures(path, rows):
    header = [line for line in open(path) if line.startswith("//")]
    with open(path, "w") as file:
        file.writelines(header)
        for key in sorted(rows, key=lambda k: (FORMATS.index(k[0]), k[1], k[2], int(re.sub(r"\D", "", k[3])))):
            strings = f'"{key[0]}", "{key[1]}", {key[2]}, "{key[3]}", '
            file.write(f"CURVQ_W4A16_FIGURE({strings}{', '.join(map(str, rows[key]))})\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", required=True)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("objects", nargs="+")
    arguments = parser.parse_args()
    if not shutil.which("cuobjdump") or not shutil.which("nvdisasm"):
        print("SASS BAR NOT RUN: no cuobjdump and nvdisasm on PATH; they come with the CUDA toolkit, or from PyPI as "
              "nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm", file=sys.stderr)
        return SKIPPED
    rows, problems, others = {}, [], 0
    for path in arguments.objects:
        found, wrong, more = figures_of(path)
        rows.update(found)
        problems += wrong
        others += more
    if arguments.write:
        write_figures(arguments.figures, rows)
    committed = read_figures(arguments.figures)
    if not rows or not others:
        problems.append("not all kernels are in the objects")
    names = ("chunks a stage", "instructions", "integer instructions", "HMMA", "registers")
    for key, values in rows.items():
        label = " ".join(map(str, key))
        if key not in committed:
            problems.append(f"{label}: no committed figure; run with --write")
            continue
        for name, value, limit in zip(names, values, committed[key]):
            if value > limit:
                problems.append(f"{label}: {value} {name}, committed are {limit}")
    for problem in problems:
        print("FAIL " + problem)
    print(f"{len(rows) + others} kernels, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
