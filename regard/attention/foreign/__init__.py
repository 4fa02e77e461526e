"""Other people's modules on the recording channel: torch's own attention functions, watched while someone records."""
