"""Algorithms that choose their steps or models by private selections: DP-AGD, line searches, PrivGene."""
