"""Align: a language model that answers as people prefer, by DPO, or by PPO on a reward model."""
