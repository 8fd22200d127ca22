from dbdp.server import answer_at_multiples

return answer_at_multiples(*args)
