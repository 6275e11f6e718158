"""Compare placet's prices with the data of `genai-prices`, and name each difference."""

from __future__ import annotations

from decimal import Decimal

from genai_prices.data import providers

from placet.chat.budget import DEFAULT_PRICES

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
