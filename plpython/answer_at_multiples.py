from dbdp.interfaces.sql.functions import answer_at_multiples

return answer_at_multiples(*args)
