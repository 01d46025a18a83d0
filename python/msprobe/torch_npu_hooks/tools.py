"""torch_npu.hooks.tools: compare two dumps; also `python -m msprobe.torch_npu_hooks.tools --npu_pkl ... --bench_pkl ... --out_path ... [--shape]`."""

import argparse

from msprobe._core import compare as _compare
from msprobe.pytorch import legacy
from msprobe.core.log import log

_LEVELS = {"DEBUG": log.debug, "INFO": log.info, "WARNING": log.warning, "ERROR": log.error}


def compare(npu_pkl, bench_pkl, output_csv, shape_flag=False):
    """Write Cosine, RMSE and MAPE of what both files recorded to output_csv. shape_flag: types and shapes must agree for two operators to match."""
    if legacy.current() is not None:
        legacy.current().flush()
    (pair,), _ = _compare(npu_pkl, bench_pkl, output_file=output_csv, shapes=bool(shape_flag), advisor=False, form="hooks",
                          log=lambda level, text: _LEVELS.get(level, log.info)("%s", text))
    if pair["error"]:
        raise RuntimeError(pair["error"])


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m msprobe.torch_npu_hooks.tools", description="Compare two dumps of torch_npu.hooks.")
    parser.add_argument("--npu_pkl", required=True, help="the file of the NPU's run")
    parser.add_argument("--bench_pkl", required=True, help="the file of the run that is taken for right")
    parser.add_argument("--out_path", required=True, help="the csv file to write")
    parser.add_argument("--shape", action="store_true", help="types and shapes must agree, too")
    given = parser.parse_args(arguments)
    compare(given.npu_pkl, given.bench_pkl, given.out_path, given.shape)


if __name__ == "__main__":
    main()
