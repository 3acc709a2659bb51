import json

from django.db import migrations

VERDICTS = {"held": "running", "doomed": "worker-lost", "ghost": "missing-data"}
CAUSES = {"deployed over": "replaced by a deployment"}
ALERTS = {"poison": "quarantine", "brake": "pause"}
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
    update("ScanRun", "scanner", dict([SCANNER]))
    update("ScannerPause", "scanner", dict([SCANNER]))
    for layer in apps.get_model("recovery", "PolicyLayer").objects.filter(written__contains=SETTING[0]):
        try:
            written = json.loads(layer.written)
        except ValueError:
            continue  # it could not be read before either, and goes on withholding every scanner
        if isinstance(written, dict) and SETTING[0] in written:
            written = {SETTING[1] if name == SETTING[0] else name: value for name, value in written.items()}
            layer.written = json.dumps(written, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
            layer.save(update_fields=["written"])


class Migration(migrations.Migration):
    dependencies = [
        ("recovery", "0007_audit_seals"),
    ]

    operations = [
        migrations.RunPython(rename, migrations.RunPython.noop, elidable=False),
    ]
