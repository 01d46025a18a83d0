"""msprobe: a precision debugger for deep-learning training."""

__version__ = "0.1.0"
