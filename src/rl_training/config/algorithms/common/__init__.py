"""Settings that several algorithms share: families, and options that an algorithm adds as a mixin. No torch here."""
