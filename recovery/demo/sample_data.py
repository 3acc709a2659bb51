"""Invented customers and what they buy; the payloads hold the kind of secrets that real ones do."""

from __future__ import annotations

from typing import Any

from recovery.demo.runtime import CHANCE

NAMES = (
    "Ada Lindqvist",
    "Bram de Wit",
    "Chiara Fontana",
    "Dmitri Sokolov",
    "Elif Yıldız",
    "Fumiko Arai",
    "Grâce Mbeki",
)
GOODS = ("desk lamp", "travel mug", "wool blanket", "bicycle bell", "notebook", "rain jacket")


def customer() -> dict[str, Any]:
    name = CHANCE.choice(NAMES)
    return {"id": CHANCE.randrange(1000, 9999), "name": name, "email": f"{name.split()[0].lower()}@example.com"}


def order() -> dict[str, Any]:
    lines = [{"article": article, "amount": CHANCE.randint(1, 3)} for article in CHANCE.sample(GOODS, 2)]
    return {"order": f"A-{CHANCE.randrange(10_000, 99_999)}", "customer": customer(), "lines": lines}


def payment() -> dict[str, Any]:
    """Returns a payment with everything in it that must not reach a viewer's screen."""
    return {
        **order(),
        "amount": round(CHANCE.uniform(5, 400), 2),
        "currency": "EUR",
        "card": {"number": "4242424242424242", "cvc": "123", "holder": "Test Card"},
        "apiKey": f"demo_key_{CHANCE.randbytes(12).hex()}",
        "headers": {"Authorization": f"Bearer {CHANCE.randbytes(16).hex()}", "Accept": "application/json"},
        "password": "correct horse battery staple",
    }
