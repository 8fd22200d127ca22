"""Speed of dbdp beside the ways of training that it competes with."""
