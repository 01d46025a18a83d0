"""Turns results recorded from mindstudio-probe 8.3.3 into what msprobe is expected to write.

usage: adapt.py RECORDED OUT

RECORDED holds `inputs/` (dumps), `expected/<case>/*.xlsx.json` and `expected_fuzzyfixed/` as the original wrote them.
Where the original departs from its own manual, the manual wins; every such rule is one function here, written against
the manual and not against msprobe's sources, so that the two check each other:

* texts: `Pass`, `Data_Name`, and the sentences of Err_message as the manual spells them, each once
* Result: a Warning when a relative error, |difference / bench|, exceeds 0.5, and when a statistic is NaN or infinite on
  one side only
* highlight: section 3.3 of the manual, in both modes, NaN included
* fuzzy matching: rows that only changed their order keep their partner
* numbers: the few cells where the original's arithmetic wraps, underflows or drops the imaginary part (ORACLE)
"""
import copy
import json
import math
import os
import sys
import tarfile

import torch

RECORDED, OUT = sys.argv[1:3]
METRICS = ["Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandths Err Ratio"]
STATS = ["Max", "Min", "Mean", "L2norm"]
RELS = ["MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr"]
ZERO_D = ("This is type of 0-d tensor, can not calculate 'Cosine', 'EucDist', 'One Thousandth Err Ratio' and "
          "'Five Thousandths Err Ratio'. ")
NAN_ABS = "Cannot compare by MaxAbsError, the data contains nan/inf/-inf in dump data."
NAN_REL = "Cannot compare by MaxRelativeError, the data contains nan/inf/-inf in dump data."

# Rows whose numbers the original gets wrong: bench zeroes in float16 (its guard of 2.2e-16 underflows to 0), uint8
# scalars (3 - 5 wraps to 254), int64 beyond 2^53 (differences get lost) and complex tensors (only the real parts are
# compared).
ORACLE = ("f16_zero_same.0.forward.output", "f32_f16_zero.0.forward.output", "f16_f32_zero.0.forward.output",
          "f16_zero_bench.0.forward.output", "scalar0d_u8.0.forward.output", "i64_big.0.forward.output",
          "c64.0.forward.output")


def recorded(case, name="compare_result_TS", root="expected"):
    with open(os.path.join(RECORDED, root, case, name + ".xlsx.json")) as f:
        rows = [r["v"] for r in json.load(f)["sheets"][0]["rows"]]
    header = ["Data_Name" if h == "Data_name" else h for h in rows[0]]
    return header, [dict(zip(header, ["" if v is None else v for v in r])) for r in rows[1:]]


def number(v):
    """A cell as a number, None when it is none."""
    if isinstance(v, bool):
        return None
    if isinstance(v, (int, float)):
        return float(v)
    text = v.strip().rstrip("%")
    try:
        return float(text)
    except ValueError:
        return None


def finite_or_inf(v):
    n = number(v)
    return None if n is None or math.isnan(n) else n


# ---- texts ---------------------------------------------------------------------------------------------------------


def adapt_message(text):
    for old, new in (("Shape of NPU and bench tensor do", "Shape of NPU and bench Tensor do"),
                     ("Dtype of NPU and bench tensor do", "Dtype of NPU and bench Tensor do"),
                     ("The position of inf", "The Position of inf")):
        text = text.replace(old, new)
    if ZERO_D in text:
        had = [m for m in (ZERO_D, NAN_ABS, NAN_REL) if m in text]
        text = "".join(had)
    return text


# ---- Result --------------------------------------------------------------------------------------------------------


def one_sided(npu, bench):
    """A number on one side, NaN or infinity on the other."""
    n, b = number(npu), number(bench)
    return n is not None and b is not None and math.isfinite(n) != math.isfinite(b)


def adapt_result(row):
    if row["Result"] == "N/A":
        return
    warn = False
    for stat, rel in zip(STATS, RELS):
        diff, error = row[stat + " diff"], row[rel]
        if number(diff) is None or math.isnan(number(diff)):
            continue
        warn |= abs(number(diff)) > 1e-10 if error == "N/A" else number(error) / 100 > 0.5
    warn |= any(one_sided(row["NPU " + s], row["Bench " + s]) for s in ("max", "min", "mean", "l2norm"))
    grad = "Requires_grad inconsistent. " if "Requires_grad inconsistent. " in row["Err_message"] else ""
    row["Result"] = "Warning" if warn else ""
    row["Err_message"] = ("Need double check api accuracy. " if warn else "") + grad


# ---- numbers -------------------------------------------------------------------------------------------------------


def load(side, name):
    return torch.load(os.path.join(RECORDED, "inputs/main_tensor", side, "dump_tensor_data", name), weights_only=True)


def accuracy(cosine, max_abs):
    """Section 3.5 of the manual, for rows that were measured."""
    if isinstance(cosine, str):
        return "None"
    return "No" if cosine < 0.99 and max_abs > 0.001 or cosine < 0.9 or max_abs > 1 else "Yes"


def oracle(row):
    """The six metrics by their definitions, in float64 (complex128), relative errors in at least float32."""
    n, b = (load(s, f) for s, f in zip(("npu", "bench"), eval(row["Data_Name"])))
    wide = torch.complex128 if n.is_complex() else torch.float64
    kind = torch.promote_types(n.dtype, b.dtype)
    x, y = n.to(wide).flatten(), b.to(wide).flatten()
    integers = not n.is_complex() and not n.is_floating_point() and n.dtype != torch.uint8
    diff = (n.flatten() - b.flatten()).abs().to(wide) if integers else (x - y).abs()
    zero = torch.where(y == 0, 2.220446049250313e-16, 0.0)
    rel = ((x + zero) - (y + zero)).abs() / (y + zero).abs()
    largest = torch.finfo(kind).max if kind.is_floating_point else math.inf
    max_rel = rel.max().item()
    norm = lambda t: math.sqrt((t.abs() ** 2).sum().item())
    cosine = (x * y.conj()).real.sum().item() if n.is_complex() else (x * y).sum().item()
    values = [cosine / (norm(x) * norm(y)), norm(diff), round(diff.max().item(), 12),
              "inf" if max_rel > largest else round(max_rel, 12),
              round((rel < 0.001).double().mean().item(), 12), round((rel < 0.005).double().mean().item(), 12)]
    values[0] = round(values[0], 6) if values[0] > 0.9999 else round(values[0], 12)
    if n.dim() == 0:
        values = ["unsupported", "unsupported", values[2], values[3], "unsupported", "unsupported"]
    row.update(zip(METRICS, values))
    row["Accuracy Reached or Not"] = accuracy(values[0], values[2])
    row["Err_message"] = row["Err_message"].replace(NAN_REL, "")


# ---- highlight -----------------------------------------------------------------------------------------------------


def part(row):
    """Which part of its call a row is: in, out or neither."""
    words = row["NPU Name"].split(".")
    return "in" if {"input", "kwargs", "parameters"} & set(words) else "out" if "output" in words else ""


def call_of(row):
    name = row["NPU Name"]
    for word in (".input.", ".output.", ".parameters.", ".kwargs."):
        if word in name:
            return name[:name.index(word)]
    return name


def highlight(rows, real):
    red, yellow = {}, {}
    err = "MaxAbsErr" if real else "Max diff"
    usable = lambda r: all(finite_or_inf(r[c]) is not None for c in ("NPU max", "Bench max", err))

    def max_rel(r):
        if real:
            return finite_or_inf(r["MaxRelativeErr"])
        return abs(number(r[err])) / max(0.01, abs(number(r["Bench max"])))

    for i, r in enumerate(rows):
        reds, yellows = red.setdefault(i, []), yellow.setdefault(i, [])
        bad = [number(r[c]) for c in ("NPU max", "NPU min")]
        if any(v is not None and not math.isfinite(v) for v in bad):
            reds.append("maximum or minimum is nan, -inf, or inf")
        elif finite_or_inf(r[err]) is not None and abs(number(r[err])) > 1e10:
            reds.append("maximum absolute error exceeds 1e+10")
        if part(r) == "out" and usable(r):
            if not real and max_rel(r) > 0.5:
                reds.append("maximum relative error exceeds 0.5")
            for q in rows:
                if call_of(q) != call_of(r) or part(q) != "in" or not usable(q):
                    continue
                a, b = abs(number(q[err])), abs(number(r[err]))
                if a > 1 and b > 1 and b >= a and math.log10(b) - math.log10(a) >= 1:
                    yellows.append("maximum absolute error of both input/parameters and output exceed 1, with the "
                                   "output larger by an order of magnitude")
                if real:
                    a, b = (finite_or_inf(t["One Thousandth Err Ratio"]) for t in (q, r))
                    if a is not None and b is not None:
                        if a > 0.9 and b < 0.6:
                            reds.append("The input/parameter's one thousandth err ratio exceeds 0.9, while the "
                                        "output's is below 0.6")
                        elif a - b > 0.1:
                            yellows.append("The output's one thousandth err ratio decreases by more than 0.1 "
                                           "compared to the input/parameter's")
                a, b = max_rel(q), max_rel(r)
                if a is not None and b is not None and b > 0.1 and a < 0.01:
                    yellows.append("The output's maximum relative error exceeds 0.1, while the input/parameter's is "
                                   "below 0.01")
                if real:
                    a, b = (finite_or_inf(t["Cosine"]) for t in (q, r))
                    if a is not None and b is not None and a - b > 0.1:
                        yellows.append("The output's cosine decreases by more than 0.1 compared to the "
                                       "input/parameter's")
        if str(r["Requires_grad Consistent"]) == "False":
            yellows.append("requires_grad is inconsistent")
    fills = {}
    for i, r in enumerate(rows):
        reasons = list(dict.fromkeys(red[i] or yellow[i]))
        if reasons:
            fills[i] = "red" if red[i] else "yellow"
            r["Err_message"] = "\n".join(([r["Err_message"]] if r["Err_message"] else []) + reasons)
    return fills


# ---- tables --------------------------------------------------------------------------------------------------------


def mode_of(header):
    return "real" if "Cosine" in header else "stat" if "Max diff" in header else "md5"


def adapt(header, rows):
    mode = mode_of(header)
    for r in rows:
        if mode == "md5":
            r["Result"] = "Pass" if r["Result"] == "pass" else r["Result"]
            continue
        r["Err_message"] = adapt_message(r["Err_message"].split("\n")[0])
        if mode == "stat":
            adapt_result(r)
        elif any(name in r["NPU Name"] for name in ORACLE) and r["Bench Name"] != "N/A":
            oracle(r)
    return header, rows


def restore_order(rows, strict):
    """Fuzzy matching: what the original lost because it only changed its place has its namesake as partner."""
    by_name = {r["NPU Name"]: r for r in strict}
    for i, r in enumerate(rows):
        if r["NPU Name"].startswith("Torch.zzz") and r["Bench Name"] == "N/A":
            rows[i] = copy.deepcopy(by_name[r["NPU Name"]])


def save(name, header, rows, fills=None):
    with open(os.path.join(OUT, "expected", name + ".json"), "w") as f:
        f.write('{"columns": %s,\n"fills": %s,\n"rows": [\n' % (json.dumps(header), json.dumps(fills or {})))
        f.write(",\n".join(json.dumps([r[h] for h in header]) for r in rows))
        f.write("\n]}\n")


def save_changes(name, base, rows, fills):
    """Only what differs from the table called base, whose rows are given."""
    cells = {}
    for i, (a, b) in enumerate(zip(base[1], rows)):
        changed = {h: b[h] for h in b if a.get(h) != b[h]}
        if changed:
            cells[i] = changed
    assert len(base[1]) == len(rows)
    with open(os.path.join(OUT, "expected", name + ".json"), "w") as f:
        f.write('{"base": %s,\n"fills": %s,\n"cells": {\n' % (json.dumps(base[0]), json.dumps(fills)))
        f.write(",\n".join('"%d": %s' % (i, json.dumps(c)) for i, c in cells.items()))
        f.write("\n}}\n")


def tables():
    os.makedirs(os.path.join(OUT, "expected"), exist_ok=True)
    for mode in ("tensor", "stat", "md5"):
        case = "main_" + mode
        header, rows = adapt(*recorded(case))
        save(case, header, rows)
        colour = lambda t: {} if mode == "md5" else highlight(t, mode == "tensor")
        coloured = copy.deepcopy(rows)
        save_changes(case + "_hl", (case, rows), coloured, colour(coloured))
        _, fuzzy = adapt(*recorded(case + "_f", root="expected" if mode == "tensor" else "expected_fuzzyfixed"))
        stack = {r["NPU Name"]: r["NPU_Stack_Info"] for r in rows}
        restore_order(fuzzy, rows)
        for r in fuzzy:
            assert r["NPU_Stack_Info"] == stack[r["NPU Name"]]
        save_changes(case + "_f", (case, rows), fuzzy, {})
        coloured = copy.deepcopy(fuzzy)
        save_changes(case + "_f_hl", (case, rows), coloured, colour(coloured))
        save_changes(case + "_dm", (case, rows), adapt(*recorded(case + "_dm"))[1], {})
    header, rows = adapt(*recorded("hl_stat"))
    save("hl_stat", header, rows, highlight(rows, False))
    save("debug_tensor", *adapt(*recorded("debug_tensor", "debug_compare_result_TS")))
    for rank in (0, 1):
        header, rows = adapt(*recorded("multi_stat", "compare_result_rank%d_TS" % rank))
        save("multi_stat.rank%d" % rank, header, rows, highlight(rows, False))


# ---- dumps ---------------------------------------------------------------------------------------------------------


def add_checksums(value, md5):
    if isinstance(value, dict):
        for k in value:
            if isinstance(md5, dict) and k in md5:
                add_checksums(value[k], md5[k])
        if isinstance(md5, dict) and "md5" in md5:
            value["md5"] = md5["md5"]
    elif isinstance(value, list):
        for v, m in zip(value, md5):
            add_checksums(v, m)


def write_dump(path, doc):
    """One record per line."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    head = {k: v for k, v in doc.items() if k != "data"}
    with open(path, "w") as f:
        f.write(json.dumps(head)[:-1] + ', "data": {\n')
        f.write(",\n".join("%s: %s" % (json.dumps(k), json.dumps(v)) for k, v in doc["data"].items()))
        f.write("\n}}\n")


def dumps():
    """The three modes of `main` are one file whose leaves have a file's name and a checksum; tests leave out keys."""
    read = lambda *p: json.load(open(os.path.join(RECORDED, "inputs", *p)))
    for side in ("npu", "bench"):
        doc, md5 = read("main_tensor", side, "dump.json"), read("main_md5", side, "dump.json")
        for name in md5["data"]:
            add_checksums(doc["data"][name], md5["data"][name])
        write_dump(os.path.join(OUT, "main", side + ".json"), doc)
        write_dump(os.path.join(OUT, "hl_stat", side, "dump.json"), read("hl_stat", side, "dump.json"))
        write_dump(os.path.join(OUT, "debug_tensor", side, "debug.json"), read("debug_tensor", side, "debug.json"))
        for rank in ("rank0", "rank1"):
            place = (side, "step0", rank)
            write_dump(os.path.join(OUT, "multi_stat", *place, "dump.json"), read("multi_stat", *place, "dump.json"))
            with open(os.path.join(OUT, "multi_stat", *place, "stack.json"), "w") as f:
                json.dump(read("multi_stat", *place, "stack.json"), f)
    for form, case in (("by_name", "main_tensor"), ("grouped", "main_stat")):
        with open(os.path.join(OUT, "main", "stack.%s.json" % form), "w") as f:
            json.dump(read(case, "npu", "stack.json"), f)
    root = os.path.join(RECORDED, "inputs")
    files = sorted(os.path.relpath(os.path.join(d, f), root) for c in ("main_tensor", "debug_tensor")
                   for d, _, fs in os.walk(os.path.join(root, c)) for f in fs if "dump_tensor_data" in d)
    with tarfile.open(os.path.join(OUT, "tensors.tar.xz"), "w:xz", preset=9) as t:
        for f in files:
            info = tarfile.TarInfo(f)
            info.size = os.path.getsize(os.path.join(root, f))
            t.addfile(info, open(os.path.join(root, f), "rb"))


tables()
dumps()
