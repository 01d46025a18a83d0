"""ptdbg_ascend: the older front end, kept so that scripts written for it run unchanged."""
