"""Test what model calls cost."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from genai_prices.data import providers

from placet.chat.messages import Usage
from placet.chat.prices import DEFAULT_PRICES, Price, pricer


def test_pricer_uses_either_name_of_the_model():
    price = pricer([Price("qwen", *[Decimal(2)] * 4, since=date(2026, 1, 1))], "qwen")
    usage = Usage(input_tokens=1_000_000)
    assert price(("qwen.gguf", "qwen"), usage, 0) == 2
    assert price(("claude", "claude"), usage, 0) is None
    assert price(("", ""), Usage(), 500_000) == 1


KINDS = ("input", "output", "cache_read", "cache_write")


def test_default_prices_match_genai_prices() -> None:
    """Each by model, the size of the prompt above which it holds, and the kind of token."""
    (vendor,) = [one for one in providers if one.id == "anthropic"]
    models = {model.id: model.prices for model in vendor.models}
    ours, theirs = {}, {}
    for row in DEFAULT_PRICES:
        for kind in KINDS:
            ours[row.model, row.above_prompt_tokens, kind] = getattr(row, kind)
            found = getattr(models[row.model], f"{kind}_mtok")
            bands = {0: found} if isinstance(found, Decimal) else {0: found.base}
            bands |= {tier.start: tier.price for tier in getattr(found, "tiers", ())}
            theirs.update({(row.model, above, kind): usd for above, usd in bands.items()})
    assert ours == theirs
