"""Pictures: decoded, fitted, kept, augmented, and drawn where there are none."""
