#!/usr/bin/env python3
"""Print src/core/pow10_table.h: powers of ten as 128-bit significands, for core/number.

Entry k is 10**k * 2**-r rounded up, with r such that 2**127 <= entry < 2**128. Printing doubles (Schubfach) needs
k = -292 .. 324, reading them (Eisel-Lemire) k = -342 .. 308.
"""

FIRST, LAST = -342, 324


def significand(k):
    num, den = (10**k, 1) if k >= 0 else (1, 10**-k)
    shift = 128 - (num.bit_length() - den.bit_length())
    for s in (shift - 1, shift, shift + 1):
        scaled = -(-(num << s) // den) if s >= 0 else -(-num // (den << -s))
        if 1 << 127 <= scaled < 1 << 128:
            return scaled
    raise AssertionError(k)


def main():
    print("/* pow10_table.h - made by tools/pow10_table.py: 10^k as 128-bit significands, rounded up, high half first. */")
    print("/* clang-format off */")
    for k in range(FIRST, LAST + 1):
        g = significand(k)
        print("{0x%016x, 0x%016x}, /* %d */" % (g >> 64, g & (1 << 64) - 1, k))


if __name__ == "__main__":
    main()
