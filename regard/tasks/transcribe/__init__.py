"""Transcribe: a sound in, its words out, with their times."""
