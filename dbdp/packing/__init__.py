"""Packing: writes a table's rows as packed blocks in a secret order, in bounded memory.

`dbdp.privacy.shuffling` draws the order.
"""
