"""Alerting: detects problems, stores them as alerts and sends them to the notification channels."""
