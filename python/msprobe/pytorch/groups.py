"""Which group a distributed call belongs to, and the how-many-th call of that group it is: what makes calls of several ranks one.

A group may have another name on each rank, and two groups may have the same ranks. So a group is known by its ranks, and among groups of the same
ranks by the order in which they were made, which is the same on all of them. Numbers of calls count within a step, on each rank, also calls that
a filter keeps out of the dump. Collectives are counted by group; messages by group, direction and peer, because no others are in step with each other.
"""

import contextlib
import functools
import inspect

import torch

from msprobe._core import probe
from msprobe.pytorch.describe import group_id, group_ranks

_NO_CALLS = ("get_", "is_", "new_", "init_", "destroy_", "set_")  # functions that ask or tell about groups
_ROOTS = ("src", "dst", "group_src", "group_dst")
_SENDS, _RECEIVES = ("send", "isend"), ("recv", "irecv")


@functools.lru_cache(None)
def _signature(function):
    return inspect.signature(function)


class Groups:
    """The groups of this process, and the calls that were made in them in this step."""

    def __init__(self):
        self._ids = {}  # (name, ranks) -> id
        self._counts = {}  # (id, ...) -> calls
        self._managers = {}  # group -> an object for torch's coalescing manager that is open for it: under it wait the calls that it puts off

    def step(self):
        self._counts.clear()
        self._managers.clear()

    def describe(self, function, call):
        """(what stands under "distributed" in the record of function(*call[0], **call[1]), what it waits for beside its handle or None);
        None: it has no group."""
        name, parameters = function.__name__, _signature(function).parameters
        if name.startswith(_NO_CALLS) or not ("group" in parameters or "p2p_op_list" in parameters):
            return None
        given = _signature(function).bind(*call[0], **call[1]).arguments
        if "p2p_op_list" in given:
            return {"messages": [self._message(op.op.__name__, op.group, {"dst": op.peer}) for op in given["p2p_op_list"]]}, None
        group = given.get("group")
        found = self._message(name, group, given) if name in _SENDS + _RECEIVES else self._collective(group, given)
        return found and (found, self._manager(group))

    def _manager(self, group):
        """The open coalescing manager of a group, None: there is none."""
        group = _or_world(group)
        state = getattr(getattr(torch.distributed.distributed_c10d, "_world", None), "pg_coalesce_state", {})
        return self._managers.setdefault(group, object()) if group in state else None

    def watch(self, manager, call):
        """torch's coalescing manager: the collectives inside it return at once, and are made where it ends."""
        group = _or_world(_signature(torch.distributed.distributed_c10d._coalescing_manager).bind(*call[0], **call[1] or {}).arguments.get("group"))
        return self._watched(manager, group)

    @contextlib.contextmanager
    def _watched(self, manager, group):
        try:
            with manager as made:
                yield made
        finally:
            put_off = self._managers.pop(group, None)
        if put_off is not None:
            probe.made(put_off, list(getattr(made, "works", ())))  # async_ops: what the program will wait for

    def _collective(self, group, given):
        found = self._group(group)
        if found is None:
            return None
        root = self._rank(group, given)
        if root is not None:
            found["root"] = root
        return self._count(found, ())

    def _message(self, name, group, given):
        found = self._group(group)
        if found is None:
            return None
        sends = name in _SENDS
        found["op"], found["peer"] = "send" if sends else "recv", self._rank(group, given)
        return self._count(found, (sends, found["peer"]))

    def _group(self, group):
        group = _or_world(group)
        ranks = group_ranks(group)
        return {"group_ranks": ranks, "group_id": self._id(group, tuple(ranks))} if ranks else None

    def _id(self, group, ranks):
        key = _name_of(group), ranks
        if key not in self._ids:
            for other in _made_before(group):
                self._name((_name_of(other), tuple(group_ranks(other))))
            self._name(key)
        return self._ids[key]

    def _name(self, key):
        if key not in self._ids and key[1]:
            same = sum(ranks == key[1] for _, ranks in self._ids)
            self._ids[key] = group_id(key[1]) + (".%d" % same if same else "")

    @staticmethod
    def _rank(group, given):
        """The root of a collective, or who is at the other end of a message, by its number in the job; None: there is none, or any."""
        word = next((word for word in _ROOTS if given.get(word) is not None), None)
        if word is None:
            return None
        if word.startswith("group_"):
            return torch.distributed.get_global_rank(_or_world(group), given[word])
        return int(given[word])

    def _count(self, found, what):
        key = (found["group_id"], *what)
        found["order"] = self._counts.get(key, 0)
        self._counts[key] = found["order"] + 1
        return found


def _or_world(group):
    return torch.distributed.group.WORLD if group is None else group


def _kept(what):
    """One of torch's dicts by group; {} in a torch that does not keep it."""
    return getattr(torch.distributed.distributed_c10d, what, None) or {}


def _name_of(group):
    return getattr(group, "group_name", None) or _kept("_pg_names").get(group)


def _made_before(group):
    """The groups of this process up to this one, in the order in which they were made."""
    made = list(_kept("_pg_group_ranks"))
    return made[:made.index(group)] if group in made else made
