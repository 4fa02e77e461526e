"""The command line: thin verbs, one file each. Nothing imports it."""
