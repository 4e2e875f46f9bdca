// The tile language: source text -> parse tree. It knows no op and no type name: a call is a call.
//
// Every decision looks at one token, so the parser never runs ANTLR's adaptive prediction (its cold start costs more than
// the parse). Four decisions that need more are taken on the token stream by src/syntax/parse.cpp, which retypes
//   '<' '>'  to GENERIC_OPEN, GENERIC_CLOSE  in  name<args>(  and  name<args>[   (no space between name and '<')
//   '<' '>>' to RECORD_OPEN, RECORD_CLOSE    around  <name<args>>[   the type of a record
//   ','      to TRAILING                     before ) ] } ; { a closing '>' or, in `where`, the next clause
//   '('      to ANNOTATION_OPEN              after  @name
// Precedence of binary operators is resolved in src/syntax/build_ast.cpp from the flat list of rule `binary`.
grammar Tk;
tokens { GENERIC_OPEN, GENERIC_CLOSE, RECORD_OPEN, RECORD_CLOSE, TRAILING, ANNOTATION_OPEN }

file : declaration* EOF ;
declaration : importDecl | constDecl | enumDecl | recordDecl | function | kernel | check ;

importDecl : 'import' (name | STRING) ';' ;
constDecl : 'const' name '=' expr ';' ;
enumDecl : 'enum' name '{' (name (',' name)* TRAILING?)? '}' ;
recordDecl : RECORD name genericParams? '{' (field ';')* '}' ;

function : (FN | REFERENCE) name genericParams? '(' params? ')' ('->' results)? (block | '=' expr ';') ;
kernel : (KERNEL | PROGRAM) name genericParams? '(' params? ')' clause* block ;
clause
    : annotation* GRID PERSISTENT? '(' exprs? ')'
    | ORDER name ('(' exprs? ')')?
    | WARPS ternary
    | WHERE ternary (',' ternary)* TRAILING?
    ;
genericParams : open genericParam (',' genericParam)* TRAILING? close ;
genericParam : name (':' type)? ('=' additive)? ;
params : param (',' param)* TRAILING? ;
param : name (':' (OUT | INOUT)? type)? ('=' expr)? ;
results : type | '(' (result (',' result)* TRAILING?)? ')' ;
result : type (':' type)? | (OUT | INOUT) ':' type ;
type : (TENSOR '?'? | TILE | SHARED) ((open name close | recordType) '[' exprs? ']' (STRIDES '(' ANY ')')?)? | typeName ;
recordType : RECORD_OPEN name GENERIC_OPEN genericArg (',' genericArg)* TRAILING? RECORD_CLOSE ;

check : (VERIFY | BENCH) name '{' checkItem* '}' ;
checkItem
    : CASE (name (':' setting (',' setting)* TRAILING?)? (ON GPU)? | '=' expr) ';'
    | INPUT (name '=' expr | '=' expr) ';'
    | TOLERANCE (names ':' measure (',' measure)* TRAILING? | '=' expr) ';'
    | LOCATE (names ':' setting (',' setting)* TRAILING? | '=' expr) ';'
    | letStmt
    | binding
    ;
setting : name '=' expr ;
measure : RMS expr | MAX expr | EXACT ;
binding : (bindingName | '(' names ')') '=' expr ';' ;
names : name (',' name)* TRAILING? ;

block : '{' statement* '}' ;
statement
    : letStmt | ringStmt | roleStmt | ifStmt | annotation* (forStmt | whileStmt | returnStmt | launchStmt | parallelStmt | block | simpleStmt) ;
letStmt : (LET | VAR) (name | '(' names ')') (':' type)? ('=' expr)? ';' ;
ringStmt : RING name ':' '{' (field (',' field)* TRAILING?)? '}' (STAGES ternary)? ';' ;
field : name ':' name '[' exprs? ']' ;
roleStmt : ROLE name (WARPS ternary)? block ;
ifStmt : 'if' expr block ('else' (ifStmt | block))? ;
forStmt : UNROLL? 'for' name 'in' expr ('step' expr)? block ;
whileStmt : 'while' expr block ;
returnStmt : 'return' expr? ';' ;
launchStmt : 'launch' expr ';' ;
parallelStmt : 'parallel' block ;
simpleStmt : expr (assignOp expr)? ';' ;
assignOp : '=' | '+=' | '-=' | '*=' | '/=' | '%=' | '&=' | '|=' | '^=' ;
annotation : '@' name (ANNOTATION_OPEN args? ')')? ;

// Open ends of a range stand only in an index.
expr : ternary ((':' | ':+') ternary)? ;
ternary : binary ('?' ternary ':' ternary)? ;
binary
    : operand (('||' | '&&' | '|' | '^' | '&' | '==' | '!=' | '<' | '>' | '<=' | '>=' | '<<' | '>>' | '+' | '-' | '*' | '/' | '%')
      operand)* ;
// What may stand between < and >: no comparison, no shift.
additive : operand (('+' | '-' | '*' | '/' | '%') operand)* ;
operand : ('-' | '!' | '~')* primary suffix* ;
primary
    : INT | FLOAT | STRING | TRUE | FALSE | NONE
    | name genericArgs?
    | '(' exprs ')'
    | '[' exprs? ']'
    ;
suffix : '(' args? ')' | '[' (item (',' item)* TRAILING?)? ']' | '.' name genericArgs? ;
item : ternary (':' ternary? | ':+' ternary)? | ':' ternary? ;
exprs : expr (',' expr)* TRAILING? ;
args : arg (',' arg)* TRAILING? ;
arg : record | expr ('=' expr)? ;
record : '{' (fieldValue (',' fieldValue)* TRAILING?)? '}' ;
fieldValue : name ':' ternary ;
genericArgs : GENERIC_OPEN (genericArg (',' genericArg)* TRAILING?)? GENERIC_CLOSE | recordType ;
genericArg : additive ('=' additive)? ;

// Type positions may hold the pair or the plain comparison tokens; both mean the same there.
open : '<' | GENERIC_OPEN ;
close : '>' | GENERIC_CLOSE ;

// Words with a meaning in one place only stay usable as names everywhere else.
name
    : ID | GRID | ORDER | PERSISTENT | WARPS | WHERE | CASE | INPUT | TOLERANCE | LOCATE | RMS | MAX | EXACT | ON | GPU | OUT | INOUT
    | STRIDES | ANY | STAGES | TILE | TENSOR | SHARED ;
typeName
    : ID | GRID | ORDER | PERSISTENT | WARPS | WHERE | CASE | INPUT | TOLERANCE | LOCATE | RMS | MAX | EXACT | ON | GPU | STRIDES | ANY
    | STAGES ;
bindingName
    : ID | GRID | ORDER | PERSISTENT | WARPS | WHERE | RMS | MAX | EXACT | ON | GPU | OUT | INOUT | STRIDES | ANY | STAGES
    | TILE | TENSOR | SHARED ;

IMPORT : 'import' ; CONST : 'const' ; ENUM : 'enum' ; RECORD : 'record' ; FN : 'fn' ; KERNEL : 'kernel' ; PROGRAM : 'program' ; REFERENCE : 'reference' ;
VERIFY : 'verify' ; BENCH : 'bench' ; LET : 'let' ; VAR : 'var' ; IF : 'if' ; ELSE : 'else' ; FOR : 'for' ;
UNROLL : 'unroll' ; WHILE : 'while' ; IN : 'in' ; STEP : 'step' ; LAUNCH : 'launch' ; PARALLEL : 'parallel' ; RETURN : 'return' ; RING : 'ring' ; ROLE : 'role' ; TRUE : 'true' ; FALSE : 'false' ;
NONE : 'None' ;
GRID : 'grid' ; ORDER : 'order' ; PERSISTENT : 'persistent' ; WARPS : 'warps' ; WHERE : 'where' ;
CASE : 'case' ; INPUT : 'input' ; TOLERANCE : 'tolerance' ; LOCATE : 'locate' ; RMS : 'rms' ; MAX : 'max' ; EXACT : 'exact' ; ON : 'on' ;
GPU : 'gpu' ; OUT : 'out' ; INOUT : 'inout' ; STRIDES : 'strides' ; ANY : 'any' ; STAGES : 'stages' ; TILE : 'tile' ; TENSOR : 'tensor' ;
SHARED : 'shared' ;
// A word of a later version: no rule takes it.
RESERVED : 'instantiate' ;
ID : [A-Za-z_] [A-Za-z0-9_]* ;

LBRACE : '{' ; RBRACE : '}' ; LPAREN : '(' ; RPAREN : ')' ; LBRACKET : '[' ; RBRACKET : ']' ;
COMMA : ',' ; SEMICOLON : ';' ; DOT : '.' ; COLON : ':' ; COLON_PLUS : ':+' ; QUESTION : '?' ; ARROW : '->' ; AT : '@' ;
ASSIGN : '=' ; ADD_ASSIGN : '+=' ; SUB_ASSIGN : '-=' ; MUL_ASSIGN : '*=' ; DIV_ASSIGN : '/=' ; REM_ASSIGN : '%=' ;
AND_ASSIGN : '&=' ; OR_ASSIGN : '|=' ; XOR_ASSIGN : '^=' ;
OR : '||' ; AND : '&&' ; BIT_OR : '|' ; BIT_XOR : '^' ; BIT_AND : '&' ; EQ : '==' ; NE : '!=' ; LT : '<' ; GT : '>' ;
LE : '<=' ; GE : '>=' ; SHL : '<<' ; SHR : '>>' ; PLUS : '+' ; MINUS : '-' ; STAR : '*' ; SLASH : '/' ; PERCENT : '%' ;
NOT : '!' ; TILDE : '~' ;

INT : '0' [xX] [0-9a-fA-F] [0-9a-fA-F_]* | '0' [bB] [01] [01_]* | DIGITS ;
FLOAT : DIGITS '.' DIGITS EXPONENT? | DIGITS EXPONENT ;
STRING : '"' (~["\\\r\n] | '\\' ~[\r\n])* '"' ;
fragment DIGITS : [0-9] [0-9_]* ;
fragment EXPONENT : [eE] [+-]? [0-9]+ ;

LINE_COMMENT : '//' ~[\r\n]* -> skip ;
COMMENT : '/*' (~'*' | '*'+ ~[*/])* '*'+ '/' -> skip ;
WS : [ \t\r\n]+ -> skip ;

// Reported by parse.cpp with their own texts; no rule takes them.
BAD_NUMBER : [0-9] [A-Za-z0-9_]* ;
BAD_STRING : '"' (~["\\\r\n] | '\\' ~[\r\n])* '\\'? ;
BAD_COMMENT : '/*' (~'*' | '*'+ ~[*/])* '*'* ;
BAD_CHAR : . ;
