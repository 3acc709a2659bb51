"""Servers without a monitor: measured by a node_exporter or known to a Prometheus, told of as if by a monitor."""
