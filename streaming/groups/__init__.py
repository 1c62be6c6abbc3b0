"""Events advance groups: their turns, what moved, how even it is, which alerts it makes."""
