"""Accuracy of dbdp's default beside that of other systems, of no privacy and of a constant."""
