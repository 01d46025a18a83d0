"""Statistics of a torch tensor against torch's own four calls (max, min, mean, norm) on the same tensor.

Both sides use as many threads as they like. Each figure is the best of many rounds, and the two take turns, so that a
busy machine slows both. torch's idle threads are told to sleep (OMP_WAIT_POLICY=passive): else they keep spinning on the
cores that ours run on next, and what is measured is how long.
"""
import os
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch's OpenMP library is loaded

import torch

import msprobe

CASES = ((10**3, 20, 400, 200), (10**7, 3, 1, 15))  # elements, times faster to reach, calls per round, rounds
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def four_calls(tensor):
    tensor.max(), tensor.min(), tensor.mean(), tensor.norm()


def seconds(function, tensor, calls):
    start = time.perf_counter()
    for _ in range(calls):
        function(tensor)
    return (time.perf_counter() - start) / calls


def main():
    print(f"OMP_WAIT_POLICY={os.environ['OMP_WAIT_POLICY']} is how torch's idle threads wait")
    print(f"{'statistics against torch':28}{'torch us':>12}{'msprobe us':>12}{'ratio':>9}{'target':>9}")
    for elements, target, calls, rounds in CASES:
        for dtype in DTYPES:
            tensor = torch.randn(elements).to(dtype)
            ours = theirs = float("inf")
            for _ in range(rounds):
                theirs = min(theirs, seconds(four_calls, tensor, calls))
                ours = min(ours, seconds(msprobe.stats, tensor, calls))
            ratio = theirs / ours
            print(f"{str(dtype)[6:] + f' {elements:.0e}':28}{theirs * 1e6:12.2f}{ours * 1e6:12.2f}{ratio:8.1f}x"
                  f"{target:8}x  {'ok' if ratio >= target else 'MISSED'}")


if __name__ == "__main__":
    main()
