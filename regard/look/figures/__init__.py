"""Figures as PNG and SVG, drawn by matplotlib."""
