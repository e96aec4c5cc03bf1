// String instructions, with and without repetition, in both directions.
    .intel_syntax noprefix
    .text
    .globl main
main:
    push rbx
    call window
    pop rbx
    xor eax, eax
    ret

    .type window, @function
    .globl window
window:
    lea rsi, [rip + from]           #
    lea rdi, [rip + to]             #
    movsb                           # L1 from S1 to
    mov ecx, 100                    #
    rep movsb                       # L100 from+1 S100 to+1
    xor ecx, ecx                    #
    rep stosq                       #
    mov ecx, 5                      #
    rep stosd                       # S20 to+101
    lea rsi, [rip + from + 64]      #
    lea rdi, [rip + to + 64]        #
    mov ecx, 4                      #
    std                             #
    rep movsq                       # L32 from+40 S32 to+40
    cld                             #
    lea rsi, [rip + from]           #
    lea rdi, [rip + zeros]          #
    mov ecx, 50                     #
    mov byte ptr [rsi + 7], 1       # S1 from+7
    repe cmpsb                      # L8 from L8 zeros
    lea rdi, [rip + zeros]          #
    mov al, 1                       #
    mov ecx, 60                     #
    repne scasb                     # L60 zeros
    lea rsi, [rip + from]           #
    lodsw                           # L2 from
    ret                             # L8 @0
    .bss
    .align 64
from:
    .zero 256
to:
    .zero 256
zeros:
    .zero 256
