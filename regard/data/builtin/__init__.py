"""Data that the package makes itself: pairs, labelled texts and pictures with right answers, without any download."""
