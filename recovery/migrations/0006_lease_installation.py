from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("recovery", "0005_drills"),
    ]

    operations = [
        migrations.AddField(
            model_name="lease",
            name="installation",
            field=models.CharField(db_default="", max_length=32),
        ),
    ]
