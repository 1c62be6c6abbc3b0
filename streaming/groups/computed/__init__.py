"""Groups that Counterpoise leads: it decides each generation."""
