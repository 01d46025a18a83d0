"""Which process of a distributed run this is."""

from msprobe.core.signals import give_back


def _ask(question):
    """A function of mindspore.communication, when communication was initialised; None: it was not, or it cannot tell."""
    try:
        from mindspore import communication

        return getattr(communication, question)() if communication.GlobalComm.INITED else None
    except Exception as e:
        give_back(e)
        return None


def current_rank():
    """Its number in the whole job, which names its folder."""
    return _ask("get_rank")


def world_size():
    return _ask("get_group_size") or 1


def is_selected(ranks, alone=None):
    """The key rank counts the processes of each machine from 0 (manual 001). alone: what a process counts as that has no rank."""
    if not ranks:
        return True
    found = next((rank for rank in (_ask("get_local_rank"), current_rank()) if rank is not None), alone)
    return found in ranks
