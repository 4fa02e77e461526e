"""The studio's page in a real Chromium. Models have random weights (`served.py`), the run is that of `tests/conftest.py`."""
