"""Servers without a monitor: samples from a node_exporter or a Prometheus, stored like those of a monitor."""
