"""Kafka's assignors, exact to the partition, and one that is optimal, as pure functions.

`REGISTRY` holds them by name; `get_assignor` looks one up, a user's plug-in
too, and `load_plugin` makes one from a user's own function. Importing this
package imports neither Spark nor numpy.
"""

from __future__ import annotations

from assignors.cooperative_sticky import assign_cooperative_sticky
from assignors.errors import AssignorError, PluginError, UnknownAssignorError
from assignors.java_order import utf16_sorted
from assignors.model import (
    NO_GENERATION,
    Assignment,
    AssignorMemory,
    Subscription,
    TopicMetadata,
    TopicPartition,
)
from assignors.plugins import find_plugins, get_assignor, load_plugin
from assignors.range import assign_range
from assignors.registry import REGISTRY, Assignor
from assignors.roundrobin import assign_roundrobin
from assignors.sticky import assign_sticky
from assignors.user_data import encode_cooperative_user_data, encode_sticky_user_data

__all__ = [
    "NO_GENERATION",
    "REGISTRY",
    "Assignment",
    "Assignor",
    "AssignorError",
    "AssignorMemory",
    "PluginError",
    "Subscription",
    "TopicMetadata",
    "TopicPartition",
    "UnknownAssignorError",
    "assign_cooperative_sticky",
    "assign_range",
    "assign_roundrobin",
    "assign_sticky",
    "encode_cooperative_user_data",
    "encode_sticky_user_data",
    "find_plugins",
    "get_assignor",
    "load_plugin",
    "utf16_sorted",
]
