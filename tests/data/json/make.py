#!/usr/bin/env python3
"""Write floats.txt, decimals.txt, writer.json and yaml.json beside this file; needs PyYAML."""
import json
import math
import os
import random
import struct
from fractions import Fraction

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
rng = random.Random(20240607)


def bits(v):
    return struct.unpack("<Q", struct.pack("<d", v))[0]


def double(b):
    return struct.unpack("<d", struct.pack("<Q", b & 2**64 - 1))[0]


def neighbours(v):
    b = bits(v)
    return [double(b - 1), v, double(b + 1)]


def exact(q):
    """A fraction whose denominator is a power of two, as a decimal."""
    digits, exponent = q.numerator, 0
    k = q.denominator.bit_length() - 1
    return "%de%d" % (digits * 5**k, exponent - k)


def middles(v):
    """The decimal exactly between v and the next double, and its neighbours a very little off."""
    q = (Fraction(v) + Fraction(double(bits(v) + 1))) / 2
    text = exact(q)
    mantissa, exponent = text.split("e")
    below = "%de%d" % (int(mantissa) * 10**5 - 1, int(exponent) - 5)
    above = "%de%d" % (int(mantissa) * 10**5 + 1, int(exponent) - 5)
    return [text, below, above]


def floats():
    out = [0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 2.2250738585072014e-308,
           9007199254740991.0, 9007199254740992.0, 9007199254740994.0, 1e16, 9999999999999998.0, 123456789012345680.0,
           0.0001, 0.00001, 0.1, 0.3, 1 / 3, 2 / 3, 100.0, 1e22, 1e23, 5e-5, 1.5, -2.5, 9.5367431640625e-07]
    for e in range(-323, 309):
        out += neighbours(float("1e%d" % e)) if e % 3 == 0 or abs(e) < 25 else [float("1e%d" % e)]
    for e in range(-1074, 1024):
        out += neighbours(2.0**e) if e % 8 == 0 and e > -1074 else [2.0**e] if e % 3 == 0 else []
    for k in range(50, 60):
        out += neighbours(2.0**k) + [2.0**k + 2]
    for _ in range(400):
        out.append(double(rng.getrandbits(64)))
        out.append(struct.unpack("<f", struct.pack("<f", rng.uniform(-1000, 1000)))[0])
        out.append(rng.randrange(10**rng.randrange(1, 19)) / 10**rng.randrange(0, 10))
        out.append(double(rng.getrandbits(52)))  # subnormal
    return out


def decimals():
    out = ["0", "-0", "0.0", "-0.0e5", "1", "+1", "1.", ".5", "-.5e1", "00012.5", "9007199254740993",
           "9007199254740993.0", "90071992547409930e-1", "9007199254740992.9999999999999999999999",
           "9007199254740993.0000000000000000000001", "5e-324", "2.4703282292062327e-324", "2.4703282292062328e-324",
           "1.7976931348623157e308", "1.7976931348623158e308", "1.7976931348623159e308", "17976931348623159e292",
           "1e309", "-1e309", "1e-400", "1e400", "1e99999999999999999999", "1e-99999999999999999999",
           "0e99999999999999999999", "2.2250738585072011e-308", "2.2250738585072012e-308", "1e22", "1e23", "8.5e22",
           "1" + "0" * 400 + "e-400", "0." + "0" * 400 + "1e401", "1" * 800, "9" * 400, "0." + "9" * 400,
           "1" + "0" * 800 + "1e-801", "nan", "NaN", "-nan", "inf", "Infinity", "-INFINITY", "+inf",
           "6.631236846766476e-316", "3.237883913302901289588352412501532174863037669423108059901297049552301970670676565786835742587799557860615776559838283435514391084153169252689190564396459577394618038928365305143463955100356696665629202017331344031730044369360205258345803431471660032699580731300954848363975548690010751530018881758184174569652173110473696022749934638425380623369774736560008997404060967498028389191878963968575439222206416981462690113342524002724385941651051293552601421155333430225237291523843322331326138431477823591142408800030775170625915670728657003151953664260769822494937951845801530895238439819708403389937873241463484205608000027270531106827387907791444918534771598750162812548862768493201518991668028251730299953143924168545708663913273994694463908672332763671875E-319"]
    for v in [1.0, 2.0**52, 2.0**53, 2.0**60, 1e15, 0.1, 1e-5, 5e-324, 1e-310, 2.2250738585072009e-308, 1e100, 1e300,
              8.98846567431158e307, 123456.789]:
        out += middles(v)
    for _ in range(60):
        out += middles(double(rng.getrandbits(63) % 0x7FE0000000000000))
        out += middles(double((1023 + rng.randrange(-30, 60)) << 52 | rng.getrandbits(52)))
    for _ in range(400):
        digits = "".join(rng.choice("0123456789") for _ in range(rng.randrange(1, 40)))
        point = rng.randrange(0, len(digits) + 1)
        out.append("%s.%se%d" % (digits[:point], digits[point:], rng.randrange(-345, 310)))
        out.append(digits)
        out.append("%se%d" % (digits[:19], rng.randrange(-30, 30)))
    return out


def writer_cases():
    values = [None, True, False, 0, -1, 2**63 - 1, -2**63, 2**64 - 1, 10**30, "", "abc", "\"\\/\b\f\n\r\t\x00\x1f\x7f",
              "caf\u00e9 \u4e2d\u6587 \U0001F600 \U0010FFFF \uffff \u2028", [], {}, [[]], [{}], {"a": {}, "b": []},
              [1, 2, [3, [4, []], {}]], {"a": 1, "b": [1, {"c": None}], "": {"\u00e9\n": [True, False]}},
              [1.5, -0.0, 1e16, 1e-05, math.nan, math.inf, -math.inf],
              {"task": "statistics", "data": {"Torch.add.0.forward": {"input_args": [{"Max": 1.0, "shape": [2, 3]}],
                                                                      "input_kwargs": {}, "output": []}}}]
    cases = []
    for v in values:
        cases.append({"text": json.dumps(v, ensure_ascii=False, separators=(",", ":")),
                      "written": {str(n): json.dumps(v, indent=None if n < 0 else n) for n in (-1, 0, 1, 2, 4)}})
    return cases


PLAIN = """
null Null NULL ~ nULL none None
true True TRUE tRUE false False FALSE yes Yes YES no No NO on On ON off Off OFF y n Y N
0 -0 +0 1 -1 +1 12 007 010 -010 08 09 0o17 0b101 -0b11 0b2 0b 0x1F 0xabcDEF -0x10 0x 0xg 0x_ff 1_000 1_0_ _1 +1_0
123456789012345678901234567890 -9223372036854775808 18446744073709551615 0xffffffffffffffff 0_ 00 -00 0_7
190:20:30 1:30 -1:30 1:60 1:5 1:59:59 0:30 12:30:45 1:2:3:4 1: 1:a 1_0:30 1:30.5 -1:30.25 0:30.5 190:20:30.15 1:30. 1:30._5
1.5 -1.5 +1.5 1. .5 -.5 +.5 1.5e3 1.5e+3 1.5E-3 1e5 1e+5 1.e+5 .5e+1 .5e1 1_000.5 1._5 1.5_0 1.5e+ 1.5e+1_0 . .. ._5 ._ 5._
.inf .Inf .INF -.inf +.inf .iNF .nan .NaN .NAN -.nan .Nan inf nan Infinity NaN
1.7976931348623159e+308 4.9e-324 1.e-400 0.1 0.30000000000000004 123456789.123456789 00.5 08.5 1.2.3 1-2 1+1 --1 +-1
Torch.add.0.forward Functional.relu.0.forward.input.0 torch.float32 a=b <tag> a#b a:b -a ?a :a http://x.y/z
""".split()

DOCUMENTS = [
    "", "# only a comment\n", "---\n", "--- \n...\n", "~", "a", "- a\n- b\n", "-\n-\n", "a:\nb:\n", "{}", "[]",
    "[a, 'b', \"c\"]", "{a: 1, b: [1, 2], c: {}}", "a: 1\nb:\n  c: 2\n  d:\n  - 3\n  - e: 4\n    f: 5\n",
    "- - 1\n  - 2\n- - 3\n", "'1': '2'\n\"3\": \"true\"\n", "a: |\n  text\n  more\nb: >\n  folded\n  line\n",
    "a: |-\n  x\n", "a: \"\\u00e9\\t\\x41\\n\"\n", "a: 'it''s'\n", "a: b c d\n", "a: multi\n  line plain\n",
    "\u4e2d\u6587: caf\u00e9 \U0001F600\n", "a: !!str 12\nb: !!int \"12\"\nc: !!float 1.5\nd: !!bool yes\ne: !!null ''\n",
    "a: !!str\nb: !!float 12\nc: ! 12\n", "&x a: &y 1\n", "%YAML 1.1\n---\na: 1\n...\n",
    "ms_api: Functional.abs\npt_api: Torch.abs\nms_args: [0, 1]\npt_args: [0, 1]\n",
    "- ms_api: Functional.custom_ms\n  ms_args:\n  - 0\n  - 2\n", "Functional.relu.0.forward.input.0: Functional.relu.1\n",
    "compare_index:\n- Max diff\napi:\n- Distributed.all_reduce\n", "a:   # comment\n  - 1 # one\n", "? a\n: b\n",
    "a: [1,\n  2,\n  3]\n", "{a, b: }\n", "- !!seq [1]\n- !!map {a: 1}\n", "\ufeffa: 1\n", "a: \"x\n  y\"\n",
]

# refused by safe_load too
WRONG = ["a: b: c\n", "[1, 2", "{a: 1", "a: 'x", "\ta: 1\n", "a: *x\n", "- a\nb\n", "a: 1\n---\nb: 2\n", "!!python/object:x.Y {}",
         "!foo 1", "a: !!int x\n", "a: !!bool maybe\n", "key: @x\n", "a: `x`\n", "%YAML 3.0\n---\na\n", "a: \"\\q\"\n",
         "? [a]\n: 1\n", "a\x01b\n"]


def yaml_cases():
    cases = []
    for text in ["a: %s\n" % word for word in PLAIN] + DOCUMENTS:
        try:
            value = yaml.safe_load(text)
        except Exception as e:  # e.g. 0x_: it looks like a number, and int() then refuses it
            print("left out:", repr(text), type(e).__name__)
            continue
        cases.append({"yaml": text, "json": json.dumps(value)})
    for text in WRONG:
        try:
            yaml.safe_load(text)
        except Exception:
            cases.append({"yaml": text, "json": None})
        else:
            raise SystemExit("not wrong: %r" % text)
    return cases


def write(name, text):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as f:
        f.write(text)


def main():
    write("floats.txt", "".join("%016x %r\n" % (bits(v), v) for v in floats()))
    write("decimals.txt", "".join("%s %016x\n" % (t, bits(float(t))) for t in decimals()))
    write("writer.json", json.dumps(writer_cases(), indent=1))
    write("yaml.json", json.dumps(yaml_cases(), indent=1))


if __name__ == "__main__":
    main()
