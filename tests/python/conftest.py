import pytest


@pytest.fixture
def rng():
    """Random numbers that are the same in every run."""
    np = pytest.importorskip("numpy")
    return np.random.default_rng(20240607)
