"""Algorithms that search with noisy selections: line searches, private descent, PrivGene."""
