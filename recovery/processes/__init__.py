"""Running other programs as children: none outlives its parent, each ends in order, and a dead one comes back."""
