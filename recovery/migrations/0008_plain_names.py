import json

from django.db import migrations

VERDICTS = {"held": "running", "doomed": "worker-lost", "ghost": "missing-data"}
CAUSES = {"deployed over": "replaced by a deployment"}
ALERTS = {"poison": "quarantine", "brake": "pause"}
MODES = {"observe": "dry-run", "act": "enabled"}
SCANNER, SETTING = ("relaunch-failed", "auto-retry"), ("relaunch_failed", "auto_retry")


def rename(apps, schema_editor):
    """Writes verdicts, causes, alerts, scanners and policies by their present names. The audit stays as it is."""

    def update(model, field, names):
        rows = apps.get_model("recovery", model).objects
        for former, now in names.items():
            rows.filter(**{field: former}).update(**{field: now})

    update("Incident", "kind", VERDICTS)
    update("Incident", "cause", CAUSES)
    update("Incident", "resolved_by", {"watchdog": "stalled-check"})
    update("Alert", "kind", ALERTS)
    update("BulkRun", "act", {"relaunch": "retry-execution"})
    update("ScanRun", "scanner", dict([SCANNER]))
    update("ScannerPause", "scanner", dict([SCANNER]))
    for layer in apps.get_model("recovery", "PolicyLayer").objects.all():
        try:
            written = json.loads(layer.written)
        except ValueError:
            continue  # it could not be read before either, and goes on withholding every scanner
        if isinstance(written, dict):
            now = {SETTING[1] if name == SETTING[0] else name: present(value) for name, value in written.items()}
            if now != written:
                layer.written = json.dumps(now, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
                layer.save(update_fields=["written"])


def present(terms):
    if isinstance(terms, dict) and terms.get("mode") in MODES:
        return {**terms, "mode": MODES[terms["mode"]]}
    return terms


class Migration(migrations.Migration):
    dependencies = [
        ("recovery", "0007_audit_seals"),
    ]

    operations = [
        migrations.RenameField("scanrun", "observes", "dry_run"),
        migrations.RunPython(rename, migrations.RunPython.noop, elidable=False),
    ]
