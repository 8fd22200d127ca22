return SD["dbdp"].vouch(model, row_type, description)
