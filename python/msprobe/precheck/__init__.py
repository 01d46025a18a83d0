"""Each API of a dump, run on a device and beside it on the CPU in higher precision: run_ut and run_overflow_check.

Which calls are run is decided here; how a call is run again is msprobe.replay's; what is measured, judged and written is
C's (msprobe/precheck.h).
"""
