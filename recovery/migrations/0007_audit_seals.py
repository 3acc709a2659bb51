from django.db import migrations, models

from recovery import signing


def mark(apps, schema_editor):
    """Signs the end of the chain as it is: what was written before is fixed by its hashes up to there."""
    head = apps.get_model("recovery", "AuditHead").objects.first()
    if head is not None:
        head.marked = head.number
        head.mark = signing.sign_with_id("audit mark", head.hash.encode(), head.number)
        head.save()


class Migration(migrations.Migration):
    dependencies = [
        ("recovery", "0006_lease_installation"),
    ]

    operations = [
        migrations.AddField("auditentry", "seal", models.CharField(default="", max_length=80)),
        migrations.AddField("audithead", "marked", models.BigIntegerField(default=0)),
        migrations.AddField("audithead", "mark", models.CharField(default="", max_length=80)),
        migrations.RunPython(mark, migrations.RunPython.noop, elidable=False),
    ]
