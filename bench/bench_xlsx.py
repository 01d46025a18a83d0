"""xlsx: rows per second against openpyxl in the same run, and the memory that a million rows take.

    bench_xlsx.py [--quick]

Needs openpyxl and build/release/bench/bench_xlsx. Both write the same table of 27 columns; each figure is the best of
three runs, and the runs alternate, so that a busy machine slows both. Exit status 1 when a target is missed.
"""
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import openpyxl

PROGRAM = Path(__file__).resolve().parent.parent / "build" / "release" / "bench" / "bench_xlsx"
ROWS, OPENPYXL_ROWS, LARGE = 50_000, 5_000, 1_000_000
TARGET_RATIO, TARGET_MB = 10, 64


def rows_of_the_table(n):
    random.seed(1)
    for r in range(n):
        name = f"Functional.linear.{r}.forward.input.0"
        yield ([name, name, "torch.float32", "torch.float32", "[16, 1024]", "[16, 1024]", "True", "True"]
               + [random.random() * 100 for _ in range(16)] + [True, "Warning", ""])


def with_openpyxl(path):
    """Rows per second of openpyxl's fastest way, its write-only mode."""
    rows = list(rows_of_the_table(OPENPYXL_ROWS))
    start = time.perf_counter()
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("Sheet1")
    for row in rows:
        sheet.append(row)
    book.save(path)
    return OPENPYXL_ROWS / (time.perf_counter() - start)


def with_program(path, rows, *how):
    """Rows per second and peak memory in MB."""
    out = subprocess.run([PROGRAM, path, str(rows), *how], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    return float(out[2]), float(out[4])


def main():
    quick = "--quick" in sys.argv[1:]
    ours, lxw, openpyxl_rate = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bench.xlsx")
        for _ in range(1 if quick else 3):
            openpyxl_rate.append(with_openpyxl(path))
            ours.append(with_program(path, ROWS)[0])
            lxw.append(with_program(path, ROWS, "lxw")[0])
        memory = None if quick else with_program(path, LARGE)
    ratio = max(ours) / max(openpyxl_rate)
    print(f"xlsx, 27 columns: {max(ours):.0f} rows/s; openpyxl (write_only) {max(openpyxl_rate):.0f}; "
          f"libxlsxwriter alone {max(lxw):.0f} ({max(lxw) / max(openpyxl_rate):.1f}x openpyxl)")
    good = ratio >= TARGET_RATIO
    print(f"  ratio to openpyxl {ratio:.1f}x  (target {TARGET_RATIO}x)  {'ok' if good else 'MISSED'}")
    if memory is not None:
        fits = memory[1] < TARGET_MB
        print(f"  {LARGE} rows: {memory[0]:.0f} rows/s, peak {memory[1]:.1f} MB  (target < {TARGET_MB} MB)  "
              f"{'ok' if fits else 'MISSED'}")
        good = good and fits
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
