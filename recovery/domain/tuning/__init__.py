"""What a configuration does to jobs whose worker goes: timing, prediction, findings, patches. Nothing is read here."""
