"""A Java HashMap followed node by node, as far as its iteration order goes.

Most orders need no more than java_order's sorting by bucket. This is for tables
where a bucket becomes a red-black tree: every insertion into a tree puts the new
key behind its tree parent and the root in front, so the order depends on the
tree's shape.

Source: java.util.HashMap and HashMap.TreeNode of OpenJDK 17, without removal.
"""

from __future__ import annotations

from typing import Any

TREEIFY_AT = 8
"""A bucket that holds this many keys becomes a tree with the next one."""

_UNTREEIFY_AT = 6
# Below this table size a bucket that is full makes the table grow instead.
_LEAST_TREE_CAPACITY = 64


class Node:
    """One key, in a bucket's list and perhaps in its tree."""

    __slots__ = ("compare", "hash", "is_red", "key", "left", "parent", "right")

    def __init__(self, key: Any, hash_: int, compare: Any) -> None:
        """Take a key, its spread hash, and what sorts like its `compareTo`."""
        self.key, self.hash, self.compare = key, hash_, compare
        self.parent: Node | None = None
        self.left: Node | None = None
        self.right: Node | None = None
        self.is_red = False

    def precedes(self, other: Node) -> bool:
        """Say whether this node goes left of the other one."""
        return bool((self.hash, self.compare) < (other.hash, other.compare))


class _Bin:
    """One bucket: its nodes in iteration order, and the root when it is a tree."""

    __slots__ = ("nodes", "root")

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.root: Node | None = None

    def treeify(self) -> None:
        self.root = None
        for node in self.nodes:
            node.left = node.right = node.parent = None
            node.is_red = False
            self._insert(node)
        self._move_root_to_front()

    def add_to_tree(self, node: Node) -> None:
        parent = self._insert(node)
        self.nodes.insert(self.nodes.index(parent) + 1, node)
        self._move_root_to_front()

    def _move_root_to_front(self) -> None:
        if self.root is not None:
            self.nodes.remove(self.root)
            self.nodes.insert(0, self.root)

    def _insert(self, node: Node) -> Any:
        if self.root is None:
            self.root = node
            return None
        at: Node | None = self.root
        parent = self.root
        goes_left = False
        while at is not None:
            parent, goes_left = at, node.precedes(at)
            at = at.left if goes_left else at.right
        node.parent = parent
        if goes_left:
            parent.left = node
        else:
            parent.right = node
        self._rebalance(node)
        return parent

    def _rebalance(self, node: Node) -> None:
        node.is_red = True
        # A red node is never the root, so a red parent has a parent.
        while (parent := node.parent) and parent.is_red and (grandparent := parent.parent):
            on_left = parent is grandparent.left
            uncle = grandparent.right if on_left else grandparent.left
            if uncle is not None and uncle.is_red:
                uncle.is_red = parent.is_red = False
                grandparent.is_red = True
                node = grandparent
                continue
            if node is (parent.right if on_left else parent.left):
                self._rotate(parent, to_left=on_left)
                parent = node
            parent.is_red = False
            grandparent.is_red = True
            self._rotate(grandparent, to_left=not on_left)
            break
        if self.root is not None:
            self.root.is_red = False

    def _rotate(self, top: Node, *, to_left: bool) -> None:
        rising = top.right if to_left else top.left
        if rising is None:
            return
        inner = rising.left if to_left else rising.right
        if to_left:
            top.right, rising.left = inner, top
        else:
            top.left, rising.right = inner, top
        if inner is not None:
            inner.parent = top
        rising.parent, top.parent = top.parent, rising
        if rising.parent is None:
            self.root = rising
        elif rising.parent.left is top:
            rising.parent.left = rising
        else:
            rising.parent.right = rising


class Bins:
    """The table of a HashMap, followed insertion by insertion."""

    def __init__(self, capacity: int) -> None:
        """Start empty, with `capacity` buckets, a power of two."""
        self.table: list[_Bin | None] = [None] * capacity
        self._size = 0

    def add(self, node: Node) -> None:
        """Insert a new key as `put` does: behind its bucket's others, growing afterwards."""
        index = node.hash & (len(self.table) - 1)
        bin_ = self.table[index]
        if bin_ is None:
            self.table[index] = _Bin([node])
        elif bin_.root is not None:
            bin_.add_to_tree(node)
        else:
            bin_.nodes.append(node)
            if len(bin_.nodes) > TREEIFY_AT:
                self._treeify_or_grow(bin_)
        self._size += 1
        self.grow_if_full()

    def compute(self, node: Node) -> None:
        """Insert a new key as `computeIfAbsent` does: before its bucket's others."""
        index = node.hash & (len(self.table) - 1)
        bin_ = self.table[index]
        if bin_ is None:
            self.table[index] = _Bin([node])
        elif bin_.root is not None:
            bin_.add_to_tree(node)
        else:
            bin_.nodes.insert(0, node)
            # One key earlier than with put, because Java counts differently here.
            if len(bin_.nodes) >= TREEIFY_AT:
                self._treeify_or_grow(bin_)
        self._size += 1

    def grow_if_full(self) -> None:
        """Grow a table filled beyond three quarters; `computeIfAbsent` asks before it looks."""
        if self._size * 4 > len(self.table) * 3:
            self._grow()

    def keys(self) -> list[Any]:
        """List the keys in iteration order."""
        return [node.key for bin_ in self.table if bin_ for node in bin_.nodes]

    def _treeify_or_grow(self, bin_: _Bin) -> None:
        if len(self.table) < _LEAST_TREE_CAPACITY:
            self._grow()
        else:
            bin_.treeify()

    def _grow(self) -> None:
        bit = len(self.table)
        self.table += [None] * bit
        for index in range(bit):
            bin_ = self.table[index]
            if bin_ is None:
                continue
            low = [node for node in bin_.nodes if not node.hash & bit]
            high = [node for node in bin_.nodes if node.hash & bit]
            for half, at in ((low, index), (high, index + bit)):
                self.table[at] = _Bin(half) if half else None
            if bin_.root is None:
                continue
            for half, other, at in ((low, high, index), (high, low, index + bit)):
                split = self.table[at]
                if split is None or len(half) <= _UNTREEIFY_AT:
                    continue
                if other:
                    split.treeify()
                else:  # the whole bucket went one way: the tree stays as it is
                    split.root = bin_.root
