grammar Tk;
file : EOF ;
WS : [ \t\r\n]+ -> skip ;
