from django.db import migrations

FORMER, NOW = "once", "idempotency"


def rename(apps, schema_editor):
    """Lets machine tokens with the scope `once` do the same under its present name."""
    for token in apps.get_model("dashboard", "MachineToken").objects.filter(scopes__contains=FORMER):
        words = [NOW if word == FORMER else word for word in token.scopes.split()]
        if words != token.scopes.split():
            token.scopes = " ".join(words)
            token.save(update_fields=["scopes"])


class Migration(migrations.Migration):
    dependencies = [
        ("dashboard", "0003_accounts"),
    ]

    operations = [
        migrations.RunPython(rename, migrations.RunPython.noop, elidable=False),
    ]
