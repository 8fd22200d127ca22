"""Describe, tables and synthetic rows of Adult, by SQL, beside OpenDP and SmartNoise SQL at the same guarantee."""
