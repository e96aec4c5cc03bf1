// 16-byte vectors.
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
    movups xmm0, [rip + table + 4]  # L16 table+4
    movaps [rip + table + 32], xmm0 # S16 table+32
    movq xmm1, [rip + table]        # L8 table
    movhps [rip + table + 8], xmm1  # S8 table+8
    movss xmm2, [rip + table + 4]   # L4 table+4
    addps xmm2, [rip + table]       # L16 table
    pcmpeqb xmm3, xmm3              #
    pxor xmm4, xmm4                 #
    lea rdi, [rip + table]          #
    maskmovdqu xmm0, xmm3           # S16 table
    maskmovdqu xmm0, xmm4           #
    cvtsi2sd xmm0, qword ptr [rdi]  # L8 table
    fld tbyte ptr [rdi + 16]        # L10 table+16
    fstp qword ptr [rdi]            # S8 table
    stmxcsr [rdi + 4]               # S4 table+4
    fxsave [rdi + 128]              # S512 table+128
    ret                             # L8 @0
    .bss
    .align 64
table:
    .zero 1024
