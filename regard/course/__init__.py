"""The course: chapters with exercises that are checked. Chapters are in docs/course/; nothing here imports torch."""
