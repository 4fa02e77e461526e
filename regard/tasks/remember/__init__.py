"""Remember: sequences of bits that come back."""
