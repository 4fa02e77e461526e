"""Text in a terminal, with colours or with shades."""
