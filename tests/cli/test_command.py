"""The command as it was installed by `make build`."""
import subprocess


def test_the_command_runs(msprobe):
    assert subprocess.run([msprobe], stdin=subprocess.DEVNULL, capture_output=True, timeout=60).returncode in (0, 2)
